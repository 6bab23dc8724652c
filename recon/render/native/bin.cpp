#include "bin.h"

#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "depth_sort.h"
#include "parts.h"

namespace recon {
namespace {

constexpr size_t kSplatsPerPart = 4096;  // fewer are not worth a thread

// The work is cut into parts, one per thread: contiguous blocks of splats first, then contiguous stretches of the depth order.
// The lists come out the same however many parts there are.
class Binner {
 public:
  Binner(const Splat* splats, const std::vector<uint32_t>& block_counts, const Camera& camera, float alpha_min,
         const uint8_t* mask)
      : splats_(splats), block_counts_(block_counts) {
    lists_.tiles_x = (camera.width + kTile - 1) / kTile;
    lists_.tiles_y = (camera.height + kTile - 1) / kTile;
    grid_ = {lists_.tiles_x, lists_.tiles_y, -std::log2(alpha_min), mask};
    for (const uint32_t count : block_counts) count_ += count;
    parts_.resize(PartCount(count_, kSplatsPerPart));
    lists_.entries = Buffer<EntryRange>(block_counts.size() * kBlock);
    keys_ = Buffer<DepthKey>(count_);
  }

  TileLists Run() {
    size_t place = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      parts_[p].first_key = place;
      for (size_t b = FirstBlock(p); b < FirstBlock(p + 1); ++b) place += block_counts_[b];
    }
    ForParts(parts_.size(), [this](size_t p) { Emit(p); });
    Number();
    ForParts(parts_.size(), [this](size_t p) { Collect(p); });
    SortByDepth(keys_, parts_.size());
    ForParts(parts_.size(), [this](size_t p) { Count(p); });
    Layout();
    ForParts(parts_.size(), [this](size_t p) { Place(p); });
    return std::move(lists_);
  }

 private:
  struct Part {
    TileNumbers tiles;                // of its splats
    size_t first_key = 0;             // of its splats
    uint32_t first_entry = 0;         // of its splats
    std::vector<uint32_t> cursor;     // per tile, of its stretch of the depth order: how many items, then where the next one goes
  };

  size_t FirstBlock(size_t p) const { return block_counts_.size() * p / parts_.size(); }
  size_t FirstInOrder(size_t p) const { return count_ * p / parts_.size(); }
  size_t Tiles() const { return static_cast<size_t>(lists_.tiles_x) * static_cast<size_t>(lists_.tiles_y); }

  void Emit(size_t p) {
    Part& part = parts_[p];
    DepthKey* key = keys_.data() + part.first_key;
    for (size_t b = FirstBlock(p); b < FirstBlock(p + 1); ++b) {
      const size_t begin = b * kBlock;
      EmitTiles(splats_ + begin, block_counts_[b], grid_, part.tiles, lists_.entries.data() + begin);
      for (size_t i = begin; i < begin + block_counts_[b]; ++i) {
        *key++ = {std::bit_cast<uint32_t>(splats_[i].z), static_cast<uint32_t>(i)};
      }
    }
  }

  void Number() {
    uint64_t total = 0;
    for (Part& part : parts_) {
      part.first_entry = static_cast<uint32_t>(total);
      total += part.tiles.size();
      if (total > UINT32_MAX) throw std::length_error("more than 2^32 - 1 (tile, Gaussian) pairs in one picture");
    }
    lists_.size = static_cast<uint32_t>(total);
    tiles_ = Buffer<uint32_t>(total);
    lists_.items = Buffer<TileItem>(total);
  }

  void Collect(size_t p) {
    Part& part = parts_[p];
    std::copy_n(part.tiles.data(), part.tiles.size(), tiles_.data() + part.first_entry);
    part.tiles = TileNumbers();
    for (size_t b = FirstBlock(p); part.first_entry > 0 && b < FirstBlock(p + 1); ++b) {
      EntryRange* const ranges = lists_.entries.data() + b * kBlock;
      for (size_t i = 0; i < block_counts_[b]; ++i) ranges[i].first += part.first_entry;
    }
  }

  void Count(size_t p) {
    std::vector<uint32_t>& count = parts_[p].cursor;
    count.assign(Tiles(), 0);
    for (size_t i = FirstInOrder(p); i < FirstInOrder(p + 1); ++i) {
      const EntryRange range = RangeInOrder(i);
      for (uint32_t e = range.first; e < range.first + range.count; ++e) ++count[tiles_[e]];
    }
  }

  // The entries of splat number i of the depth order, and a prefetch of those to come: they lie scattered.
  EntryRange RangeInOrder(size_t i) const {
    constexpr size_t kAhead = 12;
    if (i + 2 * kAhead < count_) __builtin_prefetch(&lists_.entries[keys_[i + 2 * kAhead].splat]);
    if (i + kAhead < count_) __builtin_prefetch(tiles_.data() + lists_.entries[keys_[i + kAhead].splat].first);
    return lists_.entries[keys_[i].splat];
  }

  void Layout() {
    lists_.starts = Buffer<uint32_t>(Tiles() + 1);
    uint32_t at = 0;
    for (size_t tile = 0; tile < Tiles(); ++tile) {
      lists_.starts[tile] = at;
      for (Part& part : parts_) at += std::exchange(part.cursor[tile], at);
    }
    lists_.starts[Tiles()] = at;
  }

  void Place(size_t p) {
    uint32_t* const cursor = parts_[p].cursor.data();
    TileItem* const items = lists_.items.data();
    for (size_t i = FirstInOrder(p); i < FirstInOrder(p + 1); ++i) {
      const uint32_t splat = keys_[i].splat;
      const EntryRange range = RangeInOrder(i);
      for (uint32_t e = range.first; e < range.first + range.count; ++e) items[cursor[tiles_[e]]++] = {splat, e};
    }
  }

  const Splat* splats_;
  const std::vector<uint32_t>& block_counts_;
  TileGrid grid_;
  size_t count_ = 0;  // of splats
  std::vector<Part> parts_;
  Buffer<DepthKey> keys_;
  Buffer<uint32_t> tiles_;  // of entry e
  TileLists lists_;
};

}  // namespace

TileLists BinSplats(const Splat* splats, const std::vector<uint32_t>& block_counts, const Camera& camera, float alpha_min,
                    const uint8_t* tile_mask) {
  return Binner(splats, block_counts, camera, alpha_min, tile_mask).Run();
}

}  // namespace recon
