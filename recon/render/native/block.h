// Blending of one block of 4x4 pixels on its own: bit for bit what BlendTile gives these pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "splat.h"

namespace recon {

constexpr int kBlockSide = 4;
constexpr int kBlocksPerTile = 16;
constexpr int kPixelsPerBlock = kBlockSide * kBlockSide;

struct AlphaLimits {
  float alpha_min, alpha_max, transmittance_min;
};

// Its first pixel centre, and how many of its columns and rows lie within the picture.
struct BlockPlace {
  float x, y;
  int columns, rows;
};

// Splats front to back: splats[items[i]].
struct SplatList {
  const Splat* splats;
  const uint32_t* items;
  uint32_t count;
};

// Sums over the splats, and the transmittance left, negated where the pixel stopped. Row by row.
struct alignas(64) BlockPixels {
  float r[kPixelsPerBlock], g[kPixelsPerBlock], b[kPixelsPerBlock], z[kPixelsPerBlock], transmittance[kPixelsPerBlock];
};

// Blends the two lists, merged by depth; where depths are equal the still one comes first.
void BlendBlock(const BlockPlace& place, const AlphaLimits& limits, const SplatList& still, const SplatList& moving,
                BlockPixels& out);

// Blends one list and writes those of its items to `kept` that some pixel of the block takes or stops at; returns how many.
// Whatever is put between or before them, the others add nothing: the transmittance in front of them can only be less.
uint32_t KeepItems(const BlockPlace& place, const AlphaLimits& limits, const SplatList& list, BlockPixels& out, uint32_t* kept);

// The blocks of one tile in which one splat may reach alpha_min, one bit each.
struct TileBits {
  uint32_t splat, tile, bits;
};

// Appends the tiles of splats[order[0..count)], in this order.
void EmitBlocks(const Splat* splats, const uint32_t* order, size_t count, int tiles_x, float alpha_min,
                std::vector<TileBits>& out);

// bits[i]: the blocks of tile number `tile` that splats[items[i]] may touch.
void TouchBlocks(const SplatList& list, uint32_t tile, int tiles_x, float alpha_min, uint16_t* bits);

}  // namespace recon
