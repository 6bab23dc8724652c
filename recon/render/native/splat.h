// The plain data every stage of the rasteriser shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recon {

constexpr int kTile = 16;              // pixels per tile side
constexpr uint32_t kBlock = 1024;      // Gaussians per unit of projection work; fixed, so results never depend on threads
constexpr uint32_t kMaxGaussians = 1u << 24;  // their SH coefficients are then still counted by 32-bit lanes
constexpr float kHalfLog2e = 0.72134752044448170368f;  // 0.5 log2(e): exp(-d'Cd/2) = exp2(-kHalfLog2e d'Cd)

// The Gaussians, as the caller stores them. Activated scales and opacities, raw quaternions (w, x, y, z).
struct Gaussians {
  const float* means;      // [n,3]
  const float* quats;      // [n,4]
  const float* scales;     // [n,3]
  const float* opacities;  // [n]
  const float* colors;     // [n,3] when sh_degree < 0, else [n,sh_stride,3]
  uint32_t n;
  int sh_degree;
  int sh_stride;
};

struct Options {
  float near, far;
  float eps2d;       // added to the diagonal of the 2D covariance, px^2
  float alpha_min, alpha_max, transmittance_min;
  bool antialiased;
};

// A pinhole camera: x_cam = rotation x_world + translation. First pixel centre at (0.5, 0.5).
struct Camera {
  float rotation[9];
  float translation[3];
  float centre[3];  // -rotation' translation
  float fx, fy, cx, cy;
  float ratio_min_x, ratio_max_x, ratio_min_y, ratio_max_y;  // limits of x/z, y/z in the Jacobian's third column
  int width, height;
};

// Neighbouring tiles along one axis, first + 65536 count: which of them a splat's box covers.
using TileSpan = uint32_t;
constexpr uint32_t SpanFirst(TileSpan span) { return span & 0xffffu; }
constexpr uint32_t SpanCount(TileSpan span) { return span >> 16; }

// One Gaussian as one camera sees it: a cache line. With L' = [[l11, 0], [l21, l22]], w = L' (pixel - mean) and
// |w|^2 = kHalfLog2e d' conic d, its alpha is exp2(log2_opacity - |w|^2): a sum of squares, so nothing cancels.
struct alignas(64) Splat {
  float x, y;
  float l11, l21, l22;
  float log2_opacity;
  float r, g, b, z;
  float slope_x, slope_y;  // where alpha is largest for a given dy: dx = slope_x dy; for a given dx: dy = slope_y dx
  uint32_t id;             // index of the Gaussian
  TileSpan columns, rows;  // of the box round the ellipse alpha >= alpha_min
};
static_assert(sizeof(Splat) == 64);

// Ten sums over the pixels of one (tile, Gaussian) pair, v = dL/dpower:
//   v, v w1, v w2, v w1 w1 | v w1 w2, v w2 w2, dL/dz, 0 | dL/drgb, 0
constexpr int kSums = 12;
enum Sum { kV, kVs, kVt, kVss, kVst, kVtt, kZ, kPad, kR, kG, kB };

}  // namespace recon
