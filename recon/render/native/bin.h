// Depth order and tile lists: one radix sort of the whole picture's splats, then a counting sort into tiles in that order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pool.h"
#include "splat.h"

namespace recon {

struct DepthKey {
  uint32_t depth;  // bits of a positive float: they sort like the float
  uint32_t splat;
};

struct TileEntry {
  uint32_t tile;
  uint32_t splat;
};

// A growing list in pool memory.
class TileEntries {
 public:
  void Push(TileEntry entry) {
    if (size_ == buffer_.size()) Grow();
    buffer_[size_++] = entry;
  }
  size_t size() const { return size_; }
  const TileEntry& operator[](size_t i) const { return buffer_[i]; }

 private:
  void Grow() {
    Buffer<TileEntry> larger(std::max<size_t>(4096, buffer_.size() * 2));
    std::copy_n(buffer_.data(), size_, larger.data());
    buffer_ = std::move(larger);
  }
  Buffer<TileEntry> buffer_;
  size_t size_ = 0;
};

struct TileGrid {
  int tiles_x, tiles_y;
  float log2_inverse_alpha_min;
  const uint8_t* mask;  // [tiles_y,tiles_x] or null: the tiles wanted
};

// Appends the tiles each splat touches, splat after splat in the order of `keys`, and counts them per tile. Sets the splats'
// first and count, relative to `out`.
void EmitTiles(Splat* splats, const DepthKey* keys, size_t count, const TileGrid& grid, TileEntries& out, uint32_t* per_tile);

// Every tile's splats front to back (ties: by index).
struct TileLists {
  int tiles_x = 0, tiles_y = 0;
  Buffer<uint32_t> starts;  // [tiles + 1]
  Buffer<uint32_t> items;   // splat indices
  Buffer<uint32_t> slots;   // positions in `items` of splat s: slots[s.first .. s.first + s.count); empty unless asked for
  uint32_t size = 0;
};

// `splats` and their `keys` are laid out in blocks of kBlock, of which the first block_counts[b] are filled. Fills first and
// count of each when `with_slots`. `tile_mask` [tiles_y, tiles_x]: other tiles stay empty; null means all. Throws std::length_error beyond 2^32 - 1
// entries.
TileLists BinSplats(Splat* splats, const DepthKey* keys, const std::vector<uint32_t>& block_counts, const Camera& camera,
                    float alpha_min, const uint8_t* tile_mask, bool with_slots);

}  // namespace recon
