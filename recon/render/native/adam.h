// Adam on the rows of a parameter that were seen.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recon {

struct AdamRates {
  double lr, beta1, beta2, eps;
};

// One step on rows whose `visible` is set (null: all). Arrays [rows,width]; steps [rows] counts each row's updates, this one
// included. m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
void AdamRows(float* param, const float* grad, float* exp_avg, float* exp_avg_sq, const int32_t* steps, const uint8_t* visible,
              size_t rows, size_t width, const AdamRates& rates);

}  // namespace recon
