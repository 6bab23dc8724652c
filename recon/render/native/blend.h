// Blending of one tile, front to back, and its gradient.
#pragma once

#include <cstdint>

#include "bin.h"
#include "splat.h"

namespace recon {

// What both directions read. `items` holds tile after tile, front to back.
struct BlendInput {
  const Splat* splats;
  const TileItem* items;
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

// Renders tile number `tile` into `out`. Unless it is null, visited[i] receives the blocks of 4x4 pixels over which item i was
// blended, one bit each.
void BlendTile(const BlendInput& in, uint32_t tile, const Picture& out, uint16_t* visited);

// Writes kSums floats per item of the tile to `sums`, at its entry, and the tile's dL/dbackground.
void BlendTileBackward(const BlendInput& in, uint32_t tile, const uint16_t* visited, const PictureGradient& grad, float* sums,
                       float v_background[3]);

}  // namespace recon
