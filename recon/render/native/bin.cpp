#include "bin.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <stdexcept>

namespace recon {
namespace {

struct DepthKey {
  uint32_t depth;  // bits of a positive float: they sort like the float
  uint32_t splat;
};

// Stable least-significant-digit radix sort, 11 bits a pass. A digit that is the same everywhere costs nothing.
Buffer<DepthKey> SortByDepth(const Splat* splats, const std::vector<uint32_t>& block_counts) {
  constexpr uint32_t kDigit = 11, kBuckets = 1u << kDigit, kPasses = 3;
  size_t n = 0;
  for (const uint32_t count : block_counts) n += count;
  Buffer<DepthKey> keys(n), other(n);
  std::vector<uint32_t> histogram(kPasses * kBuckets, 0);
  size_t at = 0;
  for (size_t block = 0; block < block_counts.size(); ++block) {
    for (uint32_t i = 0; i < block_counts[block]; ++i) {
      const uint32_t splat = static_cast<uint32_t>(block) * kBlock + i;
      const uint32_t depth = std::bit_cast<uint32_t>(splats[splat].z);
      keys[at++] = {depth, splat};
      for (uint32_t p = 0; p < kPasses; ++p) ++histogram[p * kBuckets + ((depth >> (p * kDigit)) & (kBuckets - 1))];
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

struct Entry {
  uint32_t tile;
  uint32_t item;
};

// A growing list in pool memory.
class Entries {
 public:
  void Push(Entry entry) {
    if (size_ == buffer_.size()) Grow();
    buffer_[size_++] = entry;
  }
  size_t size() const { return size_; }
  const Entry& operator[](size_t i) const { return buffer_[i]; }

 private:
  void Grow() {
    Buffer<Entry> larger(std::max<size_t>(4096, buffer_.size() * 2));
    std::copy_n(buffer_.data(), size_, larger.data());
    buffer_ = std::move(larger);
  }
  Buffer<Entry> buffer_;
  size_t size_ = 0;
};

// Pixels whose centre (i + 0.5) lies in [low, high], clipped to the picture; empty if first > last.
struct PixelSpan {
  int first, last;
};

PixelSpan CentresWithin(float low, float high, int size) {
  const float edge = static_cast<float>(size);
  const float first = std::ceil(std::clamp(low - 0.5f, -1.0f, edge));
  const float last = std::floor(std::clamp(high - 0.5f, -1.0f, edge));
  return {std::max(0, static_cast<int>(first)), std::min(size - 1, static_cast<int>(last))};
}

constexpr float kSlack = 0.01f;  // px; covers rounding, so that no pixel above alpha_min is lost

// Walks one splat through the columns of tiles it crosses. In a column the ellipse |w|^2 <= level is widest in y at its own
// extreme point, dx = +-top_x, or, if that lies outside the column, at the nearer edge:
//   dy(dx) = (-l21 dx +- sqrt(level - (l11 dx)^2)) / l22
class SplatWalk {
 public:
  SplatWalk(const Splat& g, float log2_inverse_alpha_min, int width, int height)
      : g_(g), level_(g.log2_opacity + log2_inverse_alpha_min), height_(height) {
    columns_ = CentresWithin(g.x - g.half_x - kSlack, g.x + g.half_x + kSlack, width);
  }
  const PixelSpan& columns() const { return columns_; }

  // Rows touched by pixel columns [first, last].
  PixelSpan Rows(int first, int last) const {
    const float low = std::max(static_cast<float>(first) + 0.5f - g_.x, -g_.half_x);
    const float high = std::min(static_cast<float>(last) + 0.5f - g_.x, g_.half_x);
    float down = g_.half_y, up = -g_.half_y;
    if (!(low <= g_.top_x && g_.top_x <= high)) down = Edge(std::clamp(g_.top_x, low, std::max(low, high)), 1.0f);
    if (!(low <= -g_.top_x && -g_.top_x <= high)) up = Edge(std::clamp(-g_.top_x, low, std::max(low, high)), -1.0f);
    return CentresWithin(g_.y + up - kSlack, g_.y + down + kSlack, height_);
  }

 private:
  float Edge(float dx, float side) const {
    const float s = g_.l11 * dx;
    return (side * std::sqrt(std::max(0.0f, level_ - s * s)) - g_.l21 * dx) / g_.l22;
  }

  const Splat& g_;
  float level_;
  int height_;
  PixelSpan columns_;
};

// Calls emit(tile, first row, last row) for every tile the splat touches, rows within the tile.
template <typename Emit>
void ForEachTile(const SplatWalk& walk, int tiles_x, const Emit& emit) {
  const PixelSpan columns = walk.columns();
  for (int x = columns.first; x <= columns.last;) {
    const int tile_x = x / kTile;
    const int last_x = std::min(columns.last, tile_x * kTile + kTile - 1);
    const PixelSpan rows = walk.Rows(x, last_x);
    for (int y = rows.first; y <= rows.last;) {
      const int tile_y = y / kTile;
      const int last_y = std::min(rows.last, tile_y * kTile + kTile - 1);
      emit(static_cast<uint32_t>(tile_y * tiles_x + tile_x), static_cast<uint32_t>(y % kTile),
           static_cast<uint32_t>(last_y % kTile));
      y = last_y + 1;
    }
    x = last_x + 1;
  }
}

// One contiguous part of the depth order. The lists come out the same however many parts there are.
struct Part {
  Entries entries;
  std::vector<uint32_t> cursor;  // per tile: first how many entries, then where the next one goes
};

class Binner {
 public:
  Binner(Splat* splats, const Camera& camera, float alpha_min, const uint8_t* mask, bool with_slots)
      : splats_(splats), camera_(camera), log2_inverse_alpha_min_(-std::log2(alpha_min)), mask_(mask), with_slots_(with_slots) {
    lists_.tiles_x = (camera.width + kTile - 1) / kTile;
    lists_.tiles_y = (camera.height + kTile - 1) / kTile;
  }

  TileLists Run(const std::vector<uint32_t>& block_counts) {
    order_ = SortByDepth(splats_, block_counts);
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
    for (size_t i = begin; i < end; ++i) {
      if (i + 8 < end) __builtin_prefetch(splats_ + order_[i + 8].splat);
      const uint32_t index = order_[i].splat;
      Splat& g = splats_[index];
      const size_t first = part.entries.size();
      ForEachTile(SplatWalk(g, log2_inverse_alpha_min_, camera_.width, camera_.height), lists_.tiles_x,
                  [&](uint32_t tile, uint32_t row0, uint32_t row1) {
                    if (mask_ != nullptr && mask_[tile] == 0) return;
                    part.entries.Push({tile, index << 8 | row0 << 4 | row1});
                    ++part.cursor[tile];
                  });
      if (part.entries.size() > UINT32_MAX) throw std::length_error("more than 2^32 - 1 (tile, Gaussian) pairs in one picture");
      g.first = static_cast<uint32_t>(first);  // within the part; Place makes it global
      g.count = static_cast<uint32_t>(part.entries.size() - first);
    }
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
      const Entry entry = part.entries[e];
      const uint32_t to = part.cursor[entry.tile]++;
      lists_.items[to] = entry.item;
      if (with_slots_) lists_.slots[base + e] = to;
    }
    if (!with_slots_) return;
    const size_t begin = order_.size() * p / parts_.size(), end = order_.size() * (p + 1) / parts_.size();
    for (size_t i = begin; base > 0 && i < end; ++i) splats_[order_[i].splat].first += base;
  }

  size_t Tiles() const { return static_cast<size_t>(lists_.tiles_x) * static_cast<size_t>(lists_.tiles_y); }

  Splat* splats_;
  const Camera& camera_;
  float log2_inverse_alpha_min_;
  const uint8_t* mask_;
  bool with_slots_;
  Buffer<DepthKey> order_;
  std::vector<Part> parts_;
  TileLists lists_;
};

}  // namespace

TileLists BinSplats(Splat* splats, const std::vector<uint32_t>& block_counts, const Camera& camera, float alpha_min,
                    const uint8_t* tile_mask, bool with_slots) {
  return Binner(splats, camera, alpha_min, tile_mask, with_slots).Run(block_counts);
}

}  // namespace recon
