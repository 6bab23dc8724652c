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
// The horizontal sums are those of u = x + y and v = x - y and of their squares: fewer products than x, y, xx + yy and xy take.
//   2 mx my = (mu^2 - mv^2) / 2, mx^2 + my^2 = (mu^2 + mv^2) / 2;  2 Exy = (Euu - Evv) / 2, E(xx + yy) = (Euu + Evv) / 2
// Rows stream through: horizontal sums of the four planes into a ring of rows, vertical sums out of it, the three derivative maps
// into a second ring, and their transposed sums out of that. Channels stay interleaved: a tap is three floats away. In the rings
// the planes of one vector of pixels lie side by side. Vertical sums are taken for kGroup rows at once, since what they cost is
// reading the rings.

#ifndef RECON_LOSS_STRIP
#define RECON_LOSS_STRIP
namespace recon {

constexpr int kWindow = 11, kReach = 5;
constexpr int kGroup = 4;    // rows
constexpr int kRing = 16;    // rows, at least kWindow + kGroup - 1
constexpr int kPairRows = 256;  // a picture is cut into twice as many strips as it has these
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

// Floats per buffered row: whole vectors, zeros for taps beyond the ends, and never a multiple of a large power of two, which would
// put all rows of a column into the same few places of the cache.
constexpr int kMargin = 64;
inline size_t RowStride(int width) {
  const size_t stride = (static_cast<size_t>(width) * 3 + 15) / 16 * 16 + 2 * kMargin;
  return stride % 128 == 0 ? stride + 16 : stride;
}
constexpr int kRows = 4 * kRing + 3 * kRing + kRing + 3 * kGroup + 2;  // moments, derivatives, weights, columns, u, v
inline size_t ScratchFloats(int width) { return RowStride(width) * kRows; }

}  // namespace recon
#endif

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// The window's weights: the same from either end.
struct Taps {
  explicit Taps(const LossJob& job) {
    for (int k = 0; k <= kReach; ++k) tap[k] = Set(job.taps[k]);
  }
  V At(int k) const { return tap[k <= kReach ? k : kWindow - 1 - k]; }
  V tap[kReach + 1];
};

// A ring of kRing rows in kRing / kGroup groups. Row y of a strip that starts at row y0 lies at (y - y0) % kRing.
struct Ring {
  float* rows;
  size_t stride;
  float* Row(int offset) const { return rows + static_cast<size_t>(offset % kRing) * stride; }
};

// out[r] = sum_k tap k * row[first + r + k], r = 0 .. kGroup - 1, of the vector at `at`: `offset` is that of the oldest group, whose
// row `skip` is `first`.
template <int kSkip>
HWY_INLINE void SumVertically(const Ring& ring, int offset, size_t at, const Taps& taps, V out[kGroup]) {
  for (int r = 0; r < kGroup; ++r) out[r] = hn::Zero(kF);
#pragma GCC unroll 4
  for (int group = 0; group < kRing / kGroup; ++group) {
    const float* const rows = ring.Row(offset + group * kGroup) + at;
#pragma GCC unroll 4
    for (int j = 0; j < kGroup; ++j) {
      const int row = group * kGroup + j - kSkip;
      if (row < 0 || row > kWindow + kGroup - 2) continue;
      const V value = hn::Load(kF, rows + static_cast<size_t>(j) * ring.stride);
#pragma GCC unroll 4
      for (int r = 0; r < kGroup; ++r) {
        const int k = row - r;
        if (k >= 0 && k < kWindow) out[r] = hn::MulAdd(taps.At(k), value, out[r]);
      }
    }
  }
}

class Strip {
 public:
  Strip(const LossJob& job, float* scratch)
      : job_(job), stride_(RowStride(job.width)), n_(3 * job.width), valid_(3 * (job.width - kWindow + 1)) {
    std::fill_n(scratch, ScratchFloats(job.width), 0.0f);
    const auto take = [&](int rows) {
      float* const first = scratch;
      scratch += static_cast<size_t>(rows) * stride_;
      return first;
    };
    moments_ = {take(4 * kRing), 4 * stride_};
    derivatives_ = {take(3 * kRing), 3 * stride_};
    weights_ = take(kRing);
    for (float*& column : columns_) column = take(1) + kMargin;
    sum_ = take(1);
    difference_ = take(1);
    if (job.weight == nullptr) std::fill_n(weights_, n_, 1.0f);
  }

  LossSums Run(int y0, int y1) {
    LossSums sums{0.0, 0.0};
    first_ = job_.with_ssim ? std::max(0, y0 - kWindow + 1) : y0;
    next_row_ = next_weight_ = first_;
    for (int y = first_; y < y1; y += kGroup) {
      const int end = std::min(y + kGroup, y1);
      if (job_.with_ssim) {
        double found[kGroup] = {};
        Derivatives(y, found);
        for (int row = std::max(y, y0); row < end; ++row) sums.ssim += found[row - y];
        if (job_.grad != nullptr && end > y0) SumColumns(y);
      }
      for (int row = std::max(y, y0); row < end; ++row) sums.l1 += Pixels(row, row - y);
    }
    return sums;
  }

 private:
  int LastWindow() const { return job_.height - kWindow; }  // windows are numbered by their first row

  const float* RowOf(const float* image, int y) const { return image + static_cast<size_t>(y) * static_cast<size_t>(n_); }

  // The row of weights, repeated per channel. Rows are asked for in order, and the last kRing of them are kept.
  const float* WeightRow(int y) {
    if (job_.weight == nullptr) return weights_;
    for (; next_weight_ <= y; ++next_weight_) {
      const float* const from = job_.weight + static_cast<size_t>(next_weight_) * static_cast<size_t>(job_.width);
      float* const to = weights_ + static_cast<size_t>(next_weight_ % kRing) * stride_;
      int x = 0;
      for (; x + kLanes <= job_.width; x += kLanes) {
        const V w = hn::LoadU(kF, from + x);
        hn::StoreInterleaved3(w, w, w, kF, to + 3 * x);
      }
      for (; x < job_.width; ++x) std::fill_n(to + 3 * x, 3, from[x]);
    }
    return weights_ + static_cast<size_t>(y % kRing) * stride_;
  }

  void SumHorizontally(int y) {
    const float *const x = RowOf(job_.picture, y), *const t = RowOf(job_.target, y);
    int i = 0;
    for (; i + kLanes <= n_; i += kLanes) {
      const V a = hn::LoadU(kF, x + i), b = hn::LoadU(kF, t + i);
      hn::Store(hn::Add(a, b), kF, sum_ + i);
      hn::Store(hn::Sub(a, b), kF, difference_ + i);
    }
    for (; i < n_; ++i) {
      sum_[i] = x[i] + t[i];
      difference_[i] = x[i] - t[i];
    }
    float* const to = moments_.Row(y - first_);
    const Taps taps(job_);
    for (i = 0; i < valid_; i += kLanes) {
      SumPlane(sum_ + i, taps, to + 4 * i);
      SumPlane(difference_ + i, taps, to + 4 * i + 2 * kLanes);
    }
  }

  // The window's sums of a row and of its squares.
  static HWY_INLINE void SumPlane(const float* from, const Taps& taps, float* to) {
    const V middle = hn::LoadU(kF, from + 3 * kReach);
    V mean = hn::Mul(taps.At(kReach), middle), square = hn::Mul(mean, middle);
    for (int k = 0; k < kReach; ++k) {
      const V a = hn::LoadU(kF, from + 3 * k), b = hn::LoadU(kF, from + 3 * (kWindow - 1 - k));
      mean = hn::MulAdd(taps.At(k), hn::Add(a, b), mean);
      square = hn::MulAdd(taps.At(k), hn::MulAdd(a, a, hn::Mul(b, b)), square);
    }
    hn::Store(mean, kF, to);
    hn::Store(square, kF, to + kLanes);
  }

  // Fills the derivative maps of the windows y .. y + kGroup - 1; found[r] receives the weighted sum of row r's SSIM.
  void Derivatives(int y, double found[kGroup]) {
    const int count = std::clamp(LastWindow() + 1 - y, 0, kGroup), offset = y - first_;
    const int last = count > 0 ? y + count + kWindow - 1 : 0;  // below the last window there are no rows to sum
    for (; next_row_ < last; ++next_row_) SumHorizontally(next_row_);
    const float* weights[kGroup];
    float* to[kGroup];
    V total[kGroup];
    for (int r = 0; r < kGroup; ++r) {
      to[r] = derivatives_.Row(offset + r);
      total[r] = hn::Zero(kF);
      if (r < count) {
        weights[r] = WeightRow(y + r + kReach) + 3 * kReach;
      } else {
        std::fill_n(to[r], derivatives_.stride, 0.0f);
      }
    }
    if (count == 0) return;
    const Taps taps(job_);
    for (int i = 0; i < valid_; i += kLanes) {
      V s[4][kGroup];
      for (int plane = 0; plane < 4; ++plane) SumVertically<0>(moments_, offset, static_cast<size_t>(4 * i + plane * kLanes), taps, s[plane]);
      const M inside = hn::FirstN(kF, static_cast<size_t>(std::min(valid_ - i, kLanes)));
      for (int r = 0; r < count; ++r) {
        const V w = hn::IfThenElseZero(inside, hn::LoadU(kF, weights[r] + i));
        total[r] = hn::MulAdd(w, Window(s[0][r], s[1][r], s[2][r], s[3][r], w, to[r] + 3 * i), total[r]);
      }
    }
    for (int r = 0; r < count; ++r) found[r] = static_cast<double>(hn::GetLane(hn::SumOfLanes(kF, total[r])));
  }

  // SSIM of one vector of windows of weight w, and its three derivatives.
  HWY_INLINE V Window(V mu, V uu, V mv, V vv, V w, float* to) const {
    const V half = Set(0.5f), two = Set(2.0f), c1 = Set(kC1), c2 = Set(kC2);
    const V mx = hn::Mul(half, hn::Add(mu, mv)), my = hn::Mul(half, hn::Sub(mu, mv));
    const V u2 = hn::Mul(mu, mu), v2 = hn::Mul(mv, mv);
    const V var_u = hn::Sub(uu, u2), var_v = hn::Sub(vv, v2);
    const V a1 = hn::MulAdd(half, hn::Sub(u2, v2), c1), a2 = hn::MulAdd(half, hn::Sub(var_u, var_v), c2);
    const V b1 = hn::MulAdd(half, hn::Add(u2, v2), c1), b2 = hn::MulAdd(half, hn::Add(var_u, var_v), c2);
    const V inv = hn::Div(Set(1.0f), hn::Mul(b1, b2)), inv_b1 = hn::Mul(b2, inv), inv_b2 = hn::Mul(b1, inv);
    const V ssim = hn::Mul(hn::Mul(a1, a2), inv);
    const V k = hn::Mul(Set(-job_.ssim_scale), w), k2 = hn::Mul(two, k);
    V v_mx = hn::Mul(hn::Mul(my, hn::Sub(a2, a1)), inv);
    v_mx = hn::MulAdd(hn::Mul(mx, ssim), hn::Sub(inv_b2, inv_b1), v_mx);
    hn::Store(hn::Mul(k2, v_mx), kF, to);
    hn::Store(hn::Neg(hn::Mul(k, hn::Mul(ssim, inv_b2))), kF, to + kLanes);
    hn::Store(hn::Mul(k2, hn::Mul(a1, inv)), kF, to + 2 * kLanes);
    return ssim;
  }

  // Vertical half of the transposed window, for the pixels of rows y .. y + kGroup - 1.
  void SumColumns(int y) {
    constexpr int kSkip = kRing - (kWindow + kGroup - 1);  // the group before the first window y - kWindow + 1 starts so much earlier
    const int offset = y - first_ + kGroup;  // the oldest group lies where the one after this will come
    const Taps taps(job_);
    for (int i = 0; i < valid_; i += kLanes) {
      for (int plane = 0; plane < 3; ++plane) {
        V s[kGroup];
        SumVertically<kSkip>(derivatives_, offset, static_cast<size_t>(3 * i + plane * kLanes), taps, s);
        for (int r = 0; r < kGroup; ++r) hn::Store(s[r], kF, columns_[3 * r + plane] + i);
      }
    }
  }

  // The gradient of the pixels at float i, in the group's row r.
  HWY_INLINE V SsimGradient(int i, int r, const Taps& taps, V x, V t) const {
    V s[3];
    for (int plane = 0; plane < 3; ++plane) {
      const float* const from = columns_[3 * r + plane] + i;
      s[plane] = hn::Mul(taps.At(kReach), hn::LoadU(kF, from - 3 * kReach));
      for (int k = 0; k < kReach; ++k) {
        const V pair = hn::Add(hn::LoadU(kF, from - 3 * k), hn::LoadU(kF, from - 3 * (kWindow - 1 - k)));
        s[plane] = hn::MulAdd(taps.At(k), pair, s[plane]);
      }
    }
    return hn::MulAdd(hn::Add(x, x), s[1], hn::MulAdd(t, s[2], s[0]));
  }

  // The gradient of row y, row r of its group, if wanted; returns the row's weighted sum of |p - t|.
  double Pixels(int y, int r) {
    const float *const x = RowOf(job_.picture, y), *const t = RowOf(job_.target, y), *const w = WeightRow(y);
    float* const grad = job_.grad == nullptr ? nullptr : job_.grad + static_cast<size_t>(y) * static_cast<size_t>(n_);
    const Taps taps(job_);
    V total = hn::Zero(kF);
    int i = 0;
    for (; i + kLanes <= n_; i += kLanes) {
      const V found = Pixel(i, r, taps, hn::LoadU(kF, x + i), hn::LoadU(kF, t + i), hn::LoadU(kF, w + i), total);
      if (grad != nullptr) hn::StoreU(found, kF, grad + i);
    }
    if (i < n_) {  // the last ones, by way of buffers that hold a whole vector
      const int rest = n_ - i;
      HWY_ALIGN float last[3][kTile] = {};
      std::copy_n(x + i, rest, last[0]);
      std::copy_n(t + i, rest, last[1]);
      std::copy_n(w + i, rest, last[2]);
      const V found = Pixel(i, r, taps, hn::Load(kF, last[0]), hn::Load(kF, last[1]), hn::Load(kF, last[2]), total);
      hn::Store(found, kF, last[0]);
      if (grad != nullptr) std::copy_n(last[0], rest, grad + i);
    }
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(kF, total)));
  }

  HWY_INLINE V Pixel(int i, int r, const Taps& taps, V x, V t, V w, V& total) const {
    const V d = hn::Sub(x, t), zero = hn::Zero(kF);
    total = hn::MulAdd(w, hn::Abs(d), total);
    if (job_.grad == nullptr) return zero;
    const V l1 = hn::IfThenElseZero(hn::Ne(d, zero), hn::CopySign(hn::Mul(Set(job_.l1_scale), w), d));
    return job_.with_ssim ? hn::Add(l1, SsimGradient(i, r, taps, x, t)) : l1;
  }

  const LossJob& job_;
  size_t stride_;
  int n_, valid_;
  int first_ = 0, next_row_ = 0, next_weight_ = 0;
  Ring moments_, derivatives_;  // plane p of the vector that starts at float i: row + i * planes + p * kLanes
  float *weights_, *sum_, *difference_;
  float* columns_[3 * kGroup];
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
