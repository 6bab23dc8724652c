// Depth order and tile lists: one radix sort of the whole picture's splats, then a counting sort into tiles in that order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pool.h"
#include "splat.h"

namespace recon {

// A growing list of tile numbers in pool memory.
class TileNumbers {
 public:
  // Room for that many more, which `Commit` then makes part of the list.
  uint32_t* Reserve(size_t more) {
    if (buffer_.size() - size_ < more) Grow(size_ + more);
    return buffer_.data() + size_;
  }
  void Commit(size_t count) { size_ += count; }
  size_t size() const { return size_; }
  const uint32_t* data() const { return buffer_.data(); }

 private:
  void Grow(size_t least) {
    Buffer<uint32_t> larger(std::max<size_t>({size_t{1} << 16, 2 * buffer_.size(), least}));
    std::copy_n(buffer_.data(), size_, larger.data());
    buffer_ = std::move(larger);
  }
  Buffer<uint32_t> buffer_;
  size_t size_ = 0;
};

struct TileGrid {
  int tiles_x, tiles_y;
  float log2_inverse_alpha_min;
  const uint8_t* mask;  // [tiles_y,tiles_x] or null: the tiles wanted
};

// Entries first .. first + count - 1: the tiles of one splat.
struct EntryRange {
  uint32_t first, count;
};

// Appends the tiles that each of `count` splats touches; ranges[i] receives the place of splat i's tiles in `out`.
void EmitTiles(const Splat* splats, size_t count, const TileGrid& grid, TileNumbers& out, EntryRange* ranges);

// A splat in a tile's list.
struct TileItem {
  uint32_t splat;
  uint32_t entry;  // in the order of splats: the pairs (splat, tile), numbered splat by splat
};

// Every tile's splats front to back (ties: by index).
struct TileLists {
  int tiles_x = 0, tiles_y = 0;
  Buffer<uint32_t> starts;     // [tiles + 1]
  Buffer<TileItem> items;      // tile after tile
  Buffer<EntryRange> entries;  // per splat, laid out like the splats
  uint32_t size = 0;           // of items
};

// `splats` are laid out in blocks of kBlock, of which the first block_counts[b] are filled. `tile_mask` [tiles_y,tiles_x]: other
// tiles stay empty; null means all. The same for any number of threads. Throws std::length_error beyond 2^32 - 1 entries.
TileLists BinSplats(const Splat* splats, const std::vector<uint32_t>& block_counts, const Camera& camera, float alpha_min,
                    const uint8_t* tile_mask);

}  // namespace recon
