// From Gaussians in the world to splats on one picture, and the gradient back. Formulas: EWA splatting (Zwicker 2001), with
// the Jacobian's third column clamped near the picture's border as gsplat does.
#pragma once

#include <cstdint>

#include "bin.h"
#include "splat.h"

namespace recon {

// Per-Gaussian results the caller sees; every pointer [n] (means2d [n,2]); may all be null.
struct ProjectionAux {
  uint8_t* visible;
  float* radii;
  float* means2d;
  float* depths;
};

// Projects Gaussians [begin, end), at most kBlock of them, into out[0..]; returns how many are visible.
uint32_t ProjectBlock(const Gaussians& in, const Camera& camera, const Options& options, uint32_t begin, uint32_t end,
                      Splat* out, const ProjectionAux& aux);

// Colours [n,3] of all Gaussians as projecting them for this camera gives them; NaN where one is not finite.
void ViewColors(const Gaussians& in, const Camera& camera, float* rgb);

struct GaussianGradient {
  float* means;
  float* quats;
  float* scales;
  float* opacities;
  float* colors;  // shaped like the inputs
};

// The splats of one block and the sums over their pixels: kSums floats per tile that a splat touches, splat after splat.
struct BlockSums {
  const Splat* splats;
  const EntryRange* entries;
  uint32_t count;     // of splats
  const float* sums;  // at entry number 0 of the picture
};

// The gradient of a block's splats: with `add` it is added to their rows of `out`, else it replaces them. Writes |dL/dmean2d| to
// mean2d_norm[id], and adds dL/drotation (9) and dL/dtranslation (3) to pose[12].
void ProjectBackwardBlock(const Gaussians& in, const Camera& camera, const Options& options, const BlockSums& block, bool add,
                          const GaussianGradient& out, float* mean2d_norm, float pose[12]);

}  // namespace recon
