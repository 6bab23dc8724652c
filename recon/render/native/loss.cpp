#include "loss.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loss.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "pool.h"
#include "simd-inl.h"

// With moments under the window, x the picture and y the target:
//   A1 = 2 mx my + C1, A2 = 2 (Exy - mx my) + C2, B1 = mx^2 + my^2 + C1, B2 = E(xx + yy) - mx^2 - my^2 + C2
//   S = A1 A2 / (B1 B2);  dS/dExx = -S / B2;  dS/dExy = 2 A1 / (B1 B2)
//   dS/dmx = 2 my (A2 - A1) / (B1 B2) + 2 mx S (1 / B2 - 1 / B1)
//   dS/dx at a pixel = W'(dS/dmx) + 2 x W'(dS/dExx) + y W'(dS/dExy), W' the transposed window
// Rows stream through: horizontal sums of four planes in a ring of 11 rows, vertical sums out of it, the three derivative maps
// into a second ring, and their transposed sums out of that. Channels stay interleaved: a tap is three floats away. In the rings
// the planes of one vector of pixels lie side by side, so that the vertical sums walk one pointer per row.

#ifndef RECON_LOSS_STRIP
#define RECON_LOSS_STRIP
namespace recon {

constexpr int kWindow = 11, kReach = 5;
constexpr int kPairRows = 240;  // a picture is cut into twice as many strips as it has these
constexpr float kC1 = 0.01f * 0.01f, kC2 = 0.03f * 0.03f;

struct LossJob {
  const float *picture, *target, *weight;
  float* grad;
  int height, width;
  float taps[kWindow];
  float l1_scale;    // (1 - s) / (3 sum w)
  float ssim_scale;  // s / (3 sum w_c)
  bool with_ssim;
};

struct LossSums {
  double l1, ssim;  // sum w |p - t|, sum w_c S; over the three channels
};

// Floats per buffered row: whole vectors, and zeros for taps beyond the end.
constexpr int kMargin = 64;
inline size_t RowStride(int width) { return (static_cast<size_t>(width) * 3 + 15) / 16 * 16 + 2 * kMargin; }
inline size_t ScratchFloats(int width) { return RowStride(width) * (4 * kWindow + 3 * kWindow + 6); }

}  // namespace recon
#endif

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

class Strip {
 public:
  Strip(const LossJob& job, float* scratch)
      : job_(job), stride_(RowStride(job.width)), n_(3 * job.width), valid_(3 * (job.width - kWindow + 1)) {
    std::fill_n(scratch, ScratchFloats(job.width), 0.0f);
    moments_ = scratch;
    derivatives_ = moments_ + 4 * kWindow * stride_;
    picture_ = derivatives_ + 3 * kWindow * stride_;
    target_ = picture_ + stride_;
    weight_ = target_ + stride_;
    for (int i = 0; i < 3; ++i) columns_[i] = weight_ + stride_ * static_cast<size_t>(1 + i) + kMargin;
  }

  LossSums Run(int y0, int y1) {
    LossSums sums{0.0, 0.0};
    const int last_window = job_.height - kWindow;  // first rows of windows: 0 .. last_window
    int next_row = std::max(0, y0 - kWindow + 1);
    for (int y = job_.with_ssim ? next_row : y0; y < y1; ++y) {
      if (job_.with_ssim && y <= last_window) {
        for (; next_row < y + kWindow; ++next_row) SumHorizontally(next_row);
        const double s = Derivatives(y);
        if (y >= y0) sums.ssim += s;
      }
      if (y >= y0) sums.l1 += Pixels(y);
    }
    return sums;
  }

 private:
  // Plane p of the vector that starts at float i: row + i * planes + p * kLanes.
  float* MomentRow(int row) { return moments_ + static_cast<size_t>(row % kWindow * 4) * stride_; }
  float* DerivativeRow(int row) { return derivatives_ + static_cast<size_t>(row % kWindow * 3) * stride_; }

  void CopyRow(const float* image, int y, float* to) const {
    std::copy_n(image + static_cast<size_t>(y) * static_cast<size_t>(n_), n_, to);
  }

  // The row of weights, repeated per channel.
  void ExpandWeight(int y, int first, int count) {
    for (int x = 0; x < count; ++x) {
      const float w = job_.weight == nullptr ? 1.0f : job_.weight[static_cast<size_t>(y) * static_cast<size_t>(job_.width) +
                                                                  static_cast<size_t>(first + x)];
      for (int c = 0; c < 3; ++c) weight_[3 * x + c] = w;
    }
  }

  void SumHorizontally(int y) {
    CopyRow(job_.picture, y, picture_);
    CopyRow(job_.target, y, target_);
    float* to = MomentRow(y);
    for (int i = 0; i < valid_; i += kLanes) {
      V s[4] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
      for (int k = 0; k < kWindow; ++k) {
        const V g = Set(job_.taps[k]);
        const V x = hn::LoadU(kF, picture_ + i + 3 * k), t = hn::LoadU(kF, target_ + i + 3 * k);
        const V gx = hn::Mul(g, x), gt = hn::Mul(g, t);
        s[0] = hn::Add(s[0], gx);
        s[1] = hn::Add(s[1], gt);
        s[2] = hn::MulAdd(gx, x, hn::MulAdd(gt, t, s[2]));
        s[3] = hn::MulAdd(gx, t, s[3]);
      }
      for (int plane = 0; plane < 4; ++plane) hn::Store(s[plane], kF, to + 4 * i + plane * kLanes);
    }
  }

  // Fills the derivative maps of the windows whose first row is y; returns the weighted sum of their SSIM.
  double Derivatives(int y) {
    ExpandWeight(y + kReach, kReach, job_.width - kWindow + 1);
    std::fill(weight_ + valid_, weight_ + stride_, 0.0f);
    const V two = Set(2.0f), one = Set(1.0f), c1 = Set(kC1), c2 = Set(kC2), scale = Set(-job_.ssim_scale);
    V total = hn::Zero(kF);
    const float* rows[kWindow];
    for (int k = 0; k < kWindow; ++k) rows[k] = MomentRow(y + k);
    float* const to = DerivativeRow(y);
    for (int i = 0; i < valid_; i += kLanes) {
      V s[4] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
      for (int k = 0; k < kWindow; ++k) {
        const V g = Set(job_.taps[k]);
        const float* row = rows[k] + 4 * i;
        for (int plane = 0; plane < 4; ++plane) s[plane] = hn::MulAdd(g, hn::Load(kF, row + plane * kLanes), s[plane]);
      }
      const V mx = s[0], my = s[1];
      const V mm = hn::Mul(mx, my), squares = hn::MulAdd(mx, mx, hn::Mul(my, my));
      const V a1 = hn::MulAdd(two, mm, c1), a2 = hn::MulAdd(two, hn::Sub(s[3], mm), c2);
      const V b1 = hn::Add(squares, c1), b2 = hn::Add(hn::Sub(s[2], squares), c2);
      const V inv_b1 = hn::Div(one, b1), inv_b2 = hn::Div(one, b2);
      const V inv = hn::Mul(inv_b1, inv_b2);
      const V ssim = hn::Mul(hn::Mul(a1, a2), inv);
      const V w = hn::Load(kF, weight_ + i);
      total = hn::MulAdd(w, ssim, total);
      const V k = hn::Mul(scale, w), k2 = hn::Mul(two, k);
      V v_mx = hn::Mul(hn::Mul(my, hn::Sub(a2, a1)), inv);
      v_mx = hn::MulAdd(hn::Mul(mx, ssim), hn::Sub(inv_b2, inv_b1), v_mx);
      hn::Store(hn::Mul(k2, v_mx), kF, to + 3 * i);
      hn::Store(hn::Neg(hn::Mul(k, hn::Mul(ssim, inv_b2))), kF, to + 3 * i + kLanes);
      hn::Store(hn::Mul(k2, hn::Mul(a1, inv)), kF, to + 3 * i + 2 * kLanes);
    }
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(kF, total)));
  }

  // Vertical half of the transposed window, for the pixels of row y.
  void SumColumns(int y) {
    const int first = std::max(0, y - kWindow + 1), count = std::min(y, job_.height - kWindow) - first + 1;
    const float* rows[kWindow];
    V taps[kWindow];
    for (int k = 0; k < count; ++k) {
      rows[k] = DerivativeRow(first + k);
      taps[k] = Set(job_.taps[y - first - k]);
    }
    for (int i = 0; i < valid_; i += kLanes) {
      V s[3] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
      for (int k = 0; k < count; ++k) {
        const float* from = rows[k] + 3 * i;
        for (int plane = 0; plane < 3; ++plane) s[plane] = hn::MulAdd(taps[k], hn::Load(kF, from + plane * kLanes), s[plane]);
      }
      for (int plane = 0; plane < 3; ++plane) hn::Store(s[plane], kF, columns_[plane] + i);
    }
  }

  HWY_INLINE V SsimGradient(int i, V x, V t) const {
    V s[3] = {hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
    for (int k = 0; k < kWindow; ++k) {
      const V g = Set(job_.taps[k]);
      for (int plane = 0; plane < 3; ++plane) s[plane] = hn::MulAdd(g, hn::LoadU(kF, columns_[plane] + i - 3 * k), s[plane]);
    }
    return hn::MulAdd(hn::Add(x, x), s[1], hn::MulAdd(t, s[2], s[0]));
  }

  // The gradient of row y, if wanted; returns its weighted sum of |p - t|.
  double Pixels(int y) {
    const bool with_grad = job_.grad != nullptr;
    const bool with_ssim = job_.with_ssim && with_grad;
    if (with_ssim) SumColumns(y);
    ExpandWeight(y, 0, job_.width);
    std::fill(weight_ + n_, weight_ + stride_, 0.0f);
    CopyRow(job_.picture, y, picture_);
    CopyRow(job_.target, y, target_);
    const V zero = hn::Zero(kF), scale = Set(job_.l1_scale);
    V total = zero;
    for (int i = 0; i < n_; i += kLanes) {
      const V x = hn::Load(kF, picture_ + i), t = hn::Load(kF, target_ + i), w = hn::Load(kF, weight_ + i);
      const V d = hn::Sub(x, t);
      total = hn::MulAdd(w, hn::Abs(d), total);
      if (!with_grad) continue;
      const V sized = hn::Mul(scale, w);
      V grad = hn::IfThenElseZero(hn::Ne(d, zero), hn::CopySign(sized, d));
      if (with_ssim) grad = hn::Add(grad, SsimGradient(i, x, t));
      hn::Store(grad, kF, picture_ + i);
    }
    if (with_grad) std::copy_n(picture_, n_, job_.grad + static_cast<size_t>(y) * static_cast<size_t>(n_));
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(kF, total)));
  }

  const LossJob& job_;
  size_t stride_;
  int n_, valid_;
  float *moments_, *derivatives_, *picture_, *target_, *weight_;
  float* columns_[3];
};

LossSums LossStripTarget(const LossJob& job, int y0, int y1, float* scratch) { return Strip(job, scratch).Run(y0, y1); }

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(LossStripTarget);

namespace {

struct WeightSums {
  double all, centres;  // over all pixels; over those with a whole window around them
};

WeightSums SumWeights(const float* weight, int height, int width) {
  if (weight == nullptr) {
    const double inside = static_cast<double>(std::max(0, height - 2 * kReach)) * std::max(0, width - 2 * kReach);
    return {static_cast<double>(height) * width, inside};
  }
  WeightSums sums{0.0, 0.0};
  for (int y = 0; y < height; ++y) {
    const float* row = weight + static_cast<size_t>(y) * static_cast<size_t>(width);
    double inner = 0.0, outer = 0.0;
    for (int x = 0; x < width; ++x) {
      (x >= kReach && x < width - kReach ? inner : outer) += static_cast<double>(row[x]);
    }
    sums.all += inner + outer;
    if (y >= kReach && y < height - kReach) sums.centres += inner;
  }
  return sums;
}

void FillTaps(float* taps) {
  double sum = 0.0, t[kWindow];
  for (int k = 0; k < kWindow; ++k) sum += t[k] = std::exp(-(k - kReach) * (k - kReach) / (2.0 * 1.5 * 1.5));
  for (int k = 0; k < kWindow; ++k) taps[k] = static_cast<float>(t[k] / sum);
}

}  // namespace

double L1Ssim(const float* picture, const float* target, const float* weight, int height, int width, float ssim_weight,
              float* grad) {
  const WeightSums weights = SumWeights(weight, height, width);
  const double s = static_cast<double>(ssim_weight);
  LossJob job{};
  job.picture = picture;
  job.target = target;
  job.weight = weight;
  job.grad = grad;
  job.height = height;
  job.width = width;
  job.with_ssim = ssim_weight > 0.0f && weights.centres > 0.0;
  job.l1_scale = weights.all > 0.0 ? static_cast<float>((1.0 - s) / (3.0 * weights.all)) : 0.0f;
  job.ssim_scale = job.with_ssim ? static_cast<float>(s / (3.0 * weights.centres)) : 0.0f;
  FillTaps(job.taps);

  // By the height alone, so that sums never depend on threads; few, because neighbours repeat each other's border.
  const int wanted = 2 * ((height + kPairRows - 1) / kPairRows);
  const int rows = std::max(2 * kWindow, (height + wanted - 1) / wanted);
  const int strips = (height + rows - 1) / rows;
  const size_t floats = ScratchFloats(width);
  std::vector<LossSums> parts(static_cast<size_t>(strips));
  Buffer<float> scratch(floats * static_cast<size_t>(strips));
#pragma omp parallel for schedule(dynamic, 1)
  for (int i = 0; i < strips; ++i) {
    parts[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(LossStripTarget)(
        job, i * rows, std::min(height, (i + 1) * rows), scratch.data() + floats * static_cast<size_t>(i));
  }
  LossSums total{0.0, 0.0};
  for (const LossSums& part : parts) {
    total.l1 += part.l1;
    total.ssim += part.ssim;
  }
  double loss = weights.all > 0.0 ? (1.0 - s) * total.l1 / (3.0 * weights.all) : 0.0;
  if (job.with_ssim) loss += s * (1.0 - total.ssim / (3.0 * weights.centres));
  return loss;
}

}  // namespace recon
#endif
