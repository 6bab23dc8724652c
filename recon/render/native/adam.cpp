#include "adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "adam.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "simd-inl.h"

#ifndef RECON_ADAM_JOB
#define RECON_ADAM_JOB
namespace recon {

constexpr size_t kAdamRows = 1024;   // rows per unit of work

struct AdamJob {
  float *param, *exp_avg, *exp_avg_sq;
  const float* grad;
  int32_t* steps;
  const uint8_t* visible;
  const int32_t* rows;
  const float* columns;
  size_t width;
  float beta1, beta2, rest1, rest2, lr, eps;  // rest = 1 - beta
  const float *unbias1, *unbias2;             // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t); index t, clamped
  size_t max1, max2;                          // last index of each
};

}  // namespace recon
#endif

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// kLanes consecutive floats; lanes outside `mask` keep everything.
HWY_INLINE void AdamVector(const AdamJob& job, float* param, float* exp_avg, float* exp_avg_sq, const float* grad, V step,
                           V unbias2, M mask) {
  const V g = hn::LoadU(kF, grad), p = hn::LoadU(kF, param);
  const V old_m = hn::LoadU(kF, exp_avg), old_v = hn::LoadU(kF, exp_avg_sq);
  const V m = hn::MulAdd(Set(job.beta1), old_m, hn::Mul(Set(job.rest1), g));
  const V v = hn::MulAdd(Set(job.beta2), old_v, hn::Mul(Set(job.rest2), hn::Mul(g, g)));
  const V denominator = hn::MulAdd(hn::Sqrt(v), unbias2, Set(job.eps));
  hn::StoreU(hn::IfThenElse(mask, m, old_m), kF, exp_avg);
  hn::StoreU(hn::IfThenElse(mask, v, old_v), kF, exp_avg_sq);
  hn::StoreU(hn::IfThenElse(mask, hn::NegMulAdd(step, hn::Div(m, denominator), p), p), kF, param);
}

HWY_INLINE bool Seen(const AdamJob& job, size_t i) { return job.visible == nullptr || job.visible[i] != 0; }

// Where row i of the gradient lies in the parameter.
HWY_INLINE size_t RowOf(const AdamJob& job, size_t i) {
  return job.rows == nullptr ? i : static_cast<size_t>(job.rows[i]);
}

struct RowFactors {
  float step, unbias2;
};

// Counts the step.
HWY_INLINE RowFactors Factors(const AdamJob& job, size_t row) {
  const int32_t count = ++job.steps[row];
  const size_t t = static_cast<size_t>(std::max(1, count));
  return {job.lr * job.unbias1[HWY_MIN(t, job.max1)], job.unbias2[HWY_MIN(t, job.max2)]};
}

// Rows of at least one vector: row by row. The last vector of a row overlaps the one before, its first lanes masked off.
void AdamLongRows(const AdamJob& job, size_t begin, size_t end) {
  const size_t lanes = static_cast<size_t>(kLanes), whole = job.width / lanes * lanes;
  HWY_ALIGN float overlap[kTile] = {};
  for (size_t k = whole - (job.width - lanes); k < lanes; ++k) overlap[k] = 1.0f;
  const M all = hn::Eq(Set(1.0f), Set(1.0f)), rest = hn::Gt(hn::Load(kF, overlap), hn::Zero(kF));
  for (size_t i = begin; i < end; ++i) {
    if (!Seen(job, i)) continue;
    const size_t row = RowOf(job, i), at = row * job.width, from = i * job.width;
    const RowFactors f = Factors(job, row);
    const auto update = [&](size_t c, M mask) HWY_ATTR {
      const V step = job.columns == nullptr ? Set(f.step) : hn::Mul(Set(f.step), hn::LoadU(kF, job.columns + c));
      AdamVector(job, job.param + at + c, job.exp_avg + at + c, job.exp_avg_sq + at + c, job.grad + from + c, step,
                 Set(f.unbias2), mask);
    };
    for (size_t c = 0; c < whole; c += lanes) update(c, all);
    if (whole < job.width) update(job.width - lanes, rest);
  }
}

// What a vector of rows needs beside the arrays: per row of the vector its factors and whether it moves.
struct LaneFactors {
  HWY_ALIGN float step[kTile], unbias2[kTile], seen[kTile];
  size_t row[kTile];
};

HWY_INLINE void LoadFactors(const AdamJob& job, size_t first, size_t count, LaneFactors& out) {
  for (size_t k = 0; k < static_cast<size_t>(kLanes); ++k) {
    const bool seen = k < count && Seen(job, first + k);
    out.row[k] = k < count ? RowOf(job, first + k) : 0;
    const RowFactors f = seen ? Factors(job, out.row[k]) : RowFactors{0.0f, 1.0f};
    out.step[k] = f.step;
    out.unbias2[k] = f.unbias2;
    out.seen[k] = seen ? 1.0f : 0.0f;
  }
}

// Where float n of kLanes rows of `width` lies: in which row of them, and which entry of it.
template <size_t kWidth>
struct ShortLayout {
  explicit ShortLayout(const AdamJob& job) : width(kWidth == 0 ? job.width : kWidth) {
    for (size_t n = 0; n < width * static_cast<size_t>(kLanes); ++n) {
      row[n] = static_cast<int32_t>(n / width);
      column[n] = job.columns == nullptr ? 1.0f : job.columns[n % width];
    }
  }
  size_t width;
  HWY_ALIGN int32_t row[kTile * kTile];
  HWY_ALIGN float column[kTile * kTile];
};

// The rows' floats, in place where they lie together, else copied to `floats` and back.
template <size_t kWidth>
HWY_INLINE void AdamShortVector(const AdamJob& job, size_t first, size_t count, const ShortLayout<kWidth>& layout,
                                LaneFactors& f, float* const floats[4]) {
  const size_t width = kWidth == 0 ? layout.width : kWidth;
  LoadFactors(job, first, count, f);
  const bool together = job.rows == nullptr && count == static_cast<size_t>(kLanes);
  float* const arrays[3] = {job.param, job.exp_avg, job.exp_avg_sq};
  float* at[3];
  const float* grad = job.grad + first * width;
  for (int a = 0; a < 3; ++a) at[a] = together ? arrays[a] + first * width : floats[a];
  if (!together) {
    for (size_t k = 0; k < count; ++k) {
      for (int a = 0; a < 3; ++a) {
        for (size_t c = 0; c < width; ++c) floats[a][k * width + c] = arrays[a][f.row[k] * width + c];
      }
    }
  }
  if (count < static_cast<size_t>(kLanes)) {  // the gradient ends here too
    std::copy_n(grad, count * width, floats[3]);
    grad = floats[3];
  }
  for (size_t n = 0; n < width * static_cast<size_t>(kLanes); n += kLanes) {
    const VI row = hn::Load(kI, layout.row + n);
    const V step = hn::Mul(hn::GatherIndex(kF, f.step, row), hn::Load(kF, layout.column + n));
    const M mask = hn::Gt(hn::GatherIndex(kF, f.seen, row), hn::Zero(kF));
    AdamVector(job, at[0] + n, at[1] + n, at[2] + n, grad + n, step, hn::GatherIndex(kF, f.unbias2, row), mask);
  }
  if (together) return;
  for (size_t k = 0; k < count; ++k) {
    if (f.seen[k] == 0.0f) continue;
    for (int a = 0; a < 3; ++a) {
      for (size_t c = 0; c < width; ++c) arrays[a][f.row[k] * width + c] = floats[a][k * width + c];
    }
  }
}

// Short rows: kLanes of them at a time. kWidth 0: any width.
template <size_t kWidth>
void AdamShortRows(const AdamJob& job, size_t begin, size_t end) {
  const ShortLayout<kWidth> layout(job);
  HWY_ALIGN float copies[4][kTile * kTile] = {};
  float* const floats[4] = {copies[0], copies[1], copies[2], copies[3]};
  LaneFactors factors;
  for (size_t i = begin; i < end; i += kLanes) {
    AdamShortVector<kWidth>(job, i, std::min(end - i, static_cast<size_t>(kLanes)), layout, factors, floats);
  }
}

void AdamBlockTarget(const AdamJob& job, size_t begin, size_t end) {
  if (job.width >= static_cast<size_t>(kTile)) {
    AdamLongRows(job, begin, end);
  } else {
    switch (job.width) {
      case 1: return AdamShortRows<1>(job, begin, end);
      case 3: return AdamShortRows<3>(job, begin, end);
      case 4: return AdamShortRows<4>(job, begin, end);
      default: return AdamShortRows<0>(job, begin, end);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(AdamBlockTarget);

namespace {

// (1 - beta^t)^(-power) for t = 0, 1, ... until it is 1 in float32; entry 0 is not used.
std::vector<float> MakeUnbias(double beta, double power) {
  std::vector<float> table{1.0f};
  const double log_beta = std::log(beta);  // -inf for 0: then every entry is 1
  for (double t = 1.0;; t += 1.0) {
    const float value = static_cast<float>(std::pow(-std::expm1(t * log_beta), -power));
    table.push_back(value);
    if (value == 1.0f || table.size() > (size_t{1} << 20)) return table;
  }
}

using Table = std::shared_ptr<const std::vector<float>>;

struct Unbias {
  double beta, power;
  Table table;
};

// The table, made once per beta.
Table UnbiasTable(double beta, double power) {
  static std::mutex mutex;
  static std::vector<Unbias> known;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Unbias& entry : known) {
    if (entry.beta == beta && entry.power == power) return entry.table;
  }
  if (known.size() >= 16) known.clear();
  known.push_back({beta, power, std::make_shared<const std::vector<float>>(MakeUnbias(beta, power))});
  return known.back().table;
}

}  // namespace

void AdamStep(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, int32_t* steps,
              const AdamRows& which, size_t width, const AdamRates& rates) {
  if (which.count == 0 || width == 0) return;
  const Table unbias1 = UnbiasTable(rates.beta1, 1.0), unbias2 = UnbiasTable(rates.beta2, 0.5);
  const AdamJob job{param,
                    exp_avg,
                    exp_avg_sq,
                    grad,
                    steps,
                    which.visible,
                    which.rows,
                    rates.columns,
                    width,
                    static_cast<float>(rates.beta1),
                    static_cast<float>(rates.beta2),
                    static_cast<float>(1.0 - rates.beta1),
                    static_cast<float>(1.0 - rates.beta2),
                    static_cast<float>(rates.lr),
                    static_cast<float>(rates.eps),
                    unbias1->data(),
                    unbias2->data(),
                    unbias1->size() - 1,
                    unbias2->size() - 1};
  const int64_t blocks = static_cast<int64_t>((which.count + kAdamRows - 1) / kAdamRows);
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) {
    const size_t begin = static_cast<size_t>(b) * kAdamRows;
    HWY_DYNAMIC_DISPATCH(AdamBlockTarget)(job, begin, std::min(which.count, begin + kAdamRows));
  }
}

}  // namespace recon
#endif
