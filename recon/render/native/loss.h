// L1 + SSIM between two float32 RGB pictures, with its gradient.
#pragma once

namespace recon {

// loss = (1 - s) sum w |p - t| / (3 sum w) + s (1 - sum w_c SSIM / (3 sum w_c)), SSIM over the valid 11x11 windows (Gaussian
// weights, sigma 1.5, C1 = 0.01^2, C2 = 0.03^2), w_c the weight at a window's centre. `weight` [height,width] may be null (1
// everywhere), `grad` [height,width,3] may be null. Sums of zero weight give 0. Pictures [height,width,3]; at least 11 px a side
// if s > 0.
double L1Ssim(const float* picture, const float* target, const float* weight, int height, int width, float ssim_weight,
              float* grad);

}  // namespace recon
