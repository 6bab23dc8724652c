// Blending of one tile, front to back, and its gradient.
#pragma once

#include <cstdint>

#include "splat.h"

namespace recon {

// What both directions read. `items` holds the splats' indices, tile after tile and front to back.
struct BlendInput {
  const Splat* splats;
  const uint32_t* items;
  const uint32_t* starts;  // [tiles + 1]
  int width, height, tiles_x;
  float alpha_min, alpha_max, transmittance_min;
  float background[3];
};

struct Picture {
  float* color;  // [height,width,3]
  float* alpha;  // [height,width]
  float* depth;  // [height,width] or null
};

struct PictureGradient {
  const float *color, *alpha, *depth;        // the outputs of the forward pass
  const float *v_color, *v_alpha, *v_depth;  // dL/d(output); each may be null
};

// Renders tile number `tile` into `out`.
void BlendTile(const BlendInput& in, uint32_t tile, const Picture& out);

// Writes kSums floats per list entry of the tile to `sums` (indexed like `items`), and the tile's dL/dbackground.
void BlendTileBackward(const BlendInput& in, uint32_t tile, const PictureGradient& grad, float* sums, float v_background[3]);

}  // namespace recon
