#include "bin.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>

namespace recon {
namespace {

// Stable least-significant-digit radix sort, 11 bits a pass. A digit that is the same everywhere costs nothing.
Buffer<DepthKey> SortByDepth(const DepthKey* blocks, const std::vector<uint32_t>& block_counts) {
  constexpr uint32_t kDigit = 11, kBuckets = 1u << kDigit, kPasses = 3;
  size_t n = 0;
  for (const uint32_t count : block_counts) n += count;
  Buffer<DepthKey> keys(n), other(n);
  std::vector<uint32_t> histogram(kPasses * kBuckets, 0);
  size_t at = 0;
  for (size_t block = 0; block < block_counts.size(); ++block) {
    for (uint32_t i = 0; i < block_counts[block]; ++i) {
      const DepthKey key = blocks[block * kBlock + i];
      keys[at++] = key;
      for (uint32_t p = 0; p < kPasses; ++p) ++histogram[p * kBuckets + ((key.depth >> (p * kDigit)) & (kBuckets - 1))];
    }
  }
  for (uint32_t p = 0; p < kPasses && n > 0; ++p) {
    uint32_t* counts = histogram.data() + p * kBuckets;
    if (counts[(keys[0].depth >> (p * kDigit)) & (kBuckets - 1)] == n) continue;
    uint32_t sum = 0;
    for (uint32_t b = 0; b < kBuckets; ++b) sum += std::exchange(counts[b], sum);
    for (size_t i = 0; i < n; ++i) other[counts[(keys[i].depth >> (p * kDigit)) & (kBuckets - 1)]++] = keys[i];
    std::swap(keys, other);
  }
  return keys;
}

// One contiguous part of the depth order. The lists come out the same however many parts there are.
struct Part {
  TileEntries entries;
  std::vector<uint32_t> cursor;  // per tile: first how many entries, then where the next one goes
};

class Binner {
 public:
  Binner(Splat* splats, const Camera& camera, float alpha_min, const uint8_t* mask, bool with_slots)
      : splats_(splats), with_slots_(with_slots) {
    lists_.tiles_x = (camera.width + kTile - 1) / kTile;
    lists_.tiles_y = (camera.height + kTile - 1) / kTile;
    grid_ = {lists_.tiles_x, lists_.tiles_y, -std::log2(alpha_min), mask};
  }

  TileLists Run(const DepthKey* keys, const std::vector<uint32_t>& block_counts) {
    order_ = SortByDepth(keys, block_counts);
    const size_t threads = static_cast<size_t>(std::max(1, omp_get_max_threads()));
    parts_.resize(std::clamp<size_t>(order_.size() / 4096, 1, threads));
    ForParts([this](size_t p) { Emit(p); });
    Layout();
    ForParts([this](size_t p) { Place(p); });
    return std::move(lists_);
  }

 private:
  template <typename Body>
  void ForParts(const Body& body) {
    std::exception_ptr failure;
    const int count = static_cast<int>(parts_.size());
#pragma omp parallel for schedule(static, 1)
    for (int p = 0; p < count; ++p) {
      try {
        body(static_cast<size_t>(p));
      } catch (...) {
#pragma omp critical(recon_bin_failure)
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  void Emit(size_t p) {
    Part& part = parts_[p];
    part.cursor.assign(Tiles(), 0);
    const size_t begin = order_.size() * p / parts_.size(), end = order_.size() * (p + 1) / parts_.size();
    EmitTiles(splats_, order_.data() + begin, end - begin, grid_, part.entries, part.cursor.data());
  }

  void Layout() {
    uint64_t total = 0;
    for (const Part& part : parts_) total += part.entries.size();
    if (total > UINT32_MAX) throw std::length_error("more than 2^32 - 1 (tile, Gaussian) pairs in one picture");
    lists_.size = static_cast<uint32_t>(total);
    lists_.starts = Buffer<uint32_t>(Tiles() + 1);
    lists_.items = Buffer<uint32_t>(total);
    if (with_slots_) lists_.slots = Buffer<uint32_t>(total);
    uint32_t at = 0;
    for (size_t tile = 0; tile < Tiles(); ++tile) {
      lists_.starts[tile] = at;
      for (Part& part : parts_) at += std::exchange(part.cursor[tile], at);
    }
    lists_.starts[Tiles()] = at;
  }

  void Place(size_t p) {
    Part& part = parts_[p];
    uint32_t base = 0;
    for (size_t before = 0; before < p; ++before) base += static_cast<uint32_t>(parts_[before].entries.size());
    for (size_t e = 0; e < part.entries.size(); ++e) {
      const TileEntry entry = part.entries[e];
      const uint32_t to = part.cursor[entry.tile]++;
      lists_.items[to] = entry.splat;
      if (with_slots_) lists_.slots[base + e] = to;
    }
    if (!with_slots_) return;
    const size_t begin = order_.size() * p / parts_.size(), end = order_.size() * (p + 1) / parts_.size();
    for (size_t i = begin; base > 0 && i < end; ++i) splats_[order_[i].splat].first += base;
  }

  size_t Tiles() const { return static_cast<size_t>(lists_.tiles_x) * static_cast<size_t>(lists_.tiles_y); }

  Splat* splats_;
  TileGrid grid_;
  bool with_slots_;
  Buffer<DepthKey> order_;
  std::vector<Part> parts_;
  TileLists lists_;
};

}  // namespace

TileLists BinSplats(Splat* splats, const DepthKey* keys, const std::vector<uint32_t>& block_counts, const Camera& camera,
                    float alpha_min, const uint8_t* tile_mask, bool with_slots) {
  return Binner(splats, camera, alpha_min, tile_mask, with_slots).Run(keys, block_counts);
}

}  // namespace recon
