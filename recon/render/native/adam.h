// Adam on the rows of a parameter that were seen.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recon {

struct AdamRates {
  double lr, beta1, beta2, eps;
  const float* columns;  // [width], multiples of lr for the entries of a row, or null: all 1
};

// The rows of a step: row i of the gradient belongs to row rows[i] (null: i) of the parameter, and is skipped unless
// visible[i] (null: none is).
struct AdamRows {
  size_t count;
  const int32_t* rows;  // all different
  const uint8_t* visible;
};

// One step, the t-th of a row. grad [count,width]; param, exp_avg, exp_avg_sq [n,width]; steps [n] holds each row's t - 1 and
// then t.
// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
void AdamStep(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, int32_t* steps, const AdamRows& which,
              size_t width, const AdamRates& rates);

}  // namespace recon
