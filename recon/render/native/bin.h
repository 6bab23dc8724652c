// Depth order and tile lists: one radix sort of the whole picture's splats, then a counting sort into tiles in that order.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"
#include "splat.h"

namespace recon {

// Every tile's splats front to back (ties: by index).
struct TileLists {
  int tiles_x = 0, tiles_y = 0;
  Buffer<uint32_t> starts;  // [tiles + 1]
  Buffer<uint32_t> items;   // splat index << 8 | first row << 4 | last row
  Buffer<uint32_t> slots;   // positions in `items` of splat s: slots[s.first .. s.first + s.count); empty unless asked for
  uint32_t size = 0;
};

// `splats` is laid out in blocks of kBlock, of which the first block_counts[b] are filled. Fills first and count of each when
// `with_slots`. `tile_mask` [tiles_y, tiles_x]: other tiles stay empty; null means all. Throws std::length_error beyond 2^32 - 1
// entries.
TileLists BinSplats(Splat* splats, const std::vector<uint32_t>& block_counts, const Camera& camera, float alpha_min,
                    const uint8_t* tile_mask, bool with_slots);

}  // namespace recon
