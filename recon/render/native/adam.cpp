#include "adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "adam.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "simd-inl.h"

#ifndef RECON_ADAM_JOB
#define RECON_ADAM_JOB
namespace recon {

constexpr size_t kAdamRows = 256;    // rows per unit of work
constexpr size_t kAdamGroup = 1024;  // floats of short rows handled together

struct AdamJob {
  float *param, *exp_avg, *exp_avg_sq;
  const float* grad;
  const int32_t* steps;
  const uint8_t* visible;
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

// kLanes consecutive floats from `i`; lanes outside `mask` keep everything.
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

// `count` floats from `i`, at most kLanes.
HWY_INLINE void AdamSome(const AdamJob& job, size_t i, size_t count, V step, V unbias2, M mask) {
  if (count >= static_cast<size_t>(kLanes)) {
    AdamVector(job, job.param + i, job.exp_avg + i, job.exp_avg_sq + i, job.grad + i, step, unbias2, mask);
    return;
  }
  HWY_ALIGN float copy[4][kLanes] = {};
  float* const arrays[3] = {job.param + i, job.exp_avg + i, job.exp_avg_sq + i};
  for (int a = 0; a < 3; ++a) std::copy_n(arrays[a], count, copy[a]);
  std::copy_n(job.grad + i, count, copy[3]);
  AdamVector(job, copy[0], copy[1], copy[2], copy[3], step, unbias2, mask);
  for (int a = 0; a < 3; ++a) std::copy_n(copy[a], count, arrays[a]);
}

HWY_INLINE bool Seen(const AdamJob& job, size_t row) { return job.visible == nullptr || job.visible[row] != 0; }

struct RowFactors {
  float step, unbias2;
};

HWY_INLINE RowFactors Factors(const AdamJob& job, size_t row) {
  const size_t t = static_cast<size_t>(HWY_MAX(1, job.steps[row]));
  return {job.lr * job.unbias1[HWY_MIN(t, job.max1)], job.unbias2[HWY_MIN(t, job.max2)]};
}

// Rows of at least one vector: row by row.
void AdamLongRows(const AdamJob& job, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    if (!Seen(job, row)) continue;
    const RowFactors f = Factors(job, row);
    for (size_t i = 0; i < job.width; i += kLanes) {
      const V one = Set(1.0f);
      AdamSome(job, row * job.width + i, job.width - i, Set(f.step), Set(f.unbias2), hn::Eq(one, one));
    }
  }
}

// Short rows: their factors are first written out per float.
void AdamShortRows(const AdamJob& job, size_t begin, size_t end) {
  HWY_ALIGN float step[kAdamGroup] = {}, unbias2[kAdamGroup] = {}, seen[kAdamGroup] = {};
  const size_t rows_per_group = kAdamGroup / job.width;
  for (size_t first = begin; first < end; first += rows_per_group) {
    const size_t last = std::min(end, first + rows_per_group);
    size_t n = 0;
    for (size_t row = first; row < last; ++row) {
      const bool visible = Seen(job, row);
      const RowFactors f = visible ? Factors(job, row) : RowFactors{0.0f, 1.0f};
      for (size_t i = 0; i < job.width; ++i, ++n) {
        step[n] = f.step;
        unbias2[n] = f.unbias2;
        seen[n] = visible ? 1.0f : 0.0f;
      }
    }
    for (size_t i = 0; i < n; i += kLanes) {
      const M mask = hn::Gt(hn::Load(kF, seen + i), hn::Zero(kF));
      if (hn::AllFalse(kF, mask)) continue;
      AdamSome(job, first * job.width + i, n - i, hn::Load(kF, step + i), hn::Load(kF, unbias2 + i), mask);
    }
  }
}

void AdamBlockTarget(const AdamJob& job, size_t begin, size_t end) {
  if (job.width >= static_cast<size_t>(kTile)) {
    AdamLongRows(job, begin, end);
  } else {
    AdamShortRows(job, begin, end);
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

struct Unbias {
  double beta, power;
  std::vector<float> table;
};

// A copy of the table, made once per beta.
std::vector<float> UnbiasTable(double beta, double power) {
  static std::mutex mutex;
  static std::vector<Unbias> known;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Unbias& entry : known) {
    if (entry.beta == beta && entry.power == power) return entry.table;
  }
  if (known.size() >= 16) known.clear();
  known.push_back({beta, power, MakeUnbias(beta, power)});
  return known.back().table;
}

}  // namespace

void AdamRows(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, const int32_t* steps, const uint8_t* visible,
              size_t rows, size_t width, const AdamRates& rates) {
  if (rows == 0 || width == 0) return;
  const std::vector<float> unbias1 = UnbiasTable(rates.beta1, 1.0), unbias2 = UnbiasTable(rates.beta2, 0.5);
  const AdamJob job{param,
                    exp_avg,
                    exp_avg_sq,
                    grad,
                    steps,
                    visible,
                    width,
                    static_cast<float>(rates.beta1),
                    static_cast<float>(rates.beta2),
                    static_cast<float>(1.0 - rates.beta1),
                    static_cast<float>(1.0 - rates.beta2),
                    static_cast<float>(rates.lr),
                    static_cast<float>(rates.eps),
                    unbias1.data(),
                    unbias2.data(),
                    unbias1.size() - 1,
                    unbias2.size() - 1};
  const int64_t blocks = static_cast<int64_t>((rows + kAdamRows - 1) / kAdamRows);
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) {
    const size_t begin = static_cast<size_t>(b) * kAdamRows;
    HWY_DYNAMIC_DISPATCH(AdamBlockTarget)(job, begin, std::min(rows, begin + kAdamRows));
  }
}

}  // namespace recon
#endif
