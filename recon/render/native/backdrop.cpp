#include "backdrop.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "depth_sort.h"
#include "parts.h"

namespace recon {
namespace {

size_t PixelCount(const Camera& camera) { return static_cast<size_t>(camera.width) * static_cast<size_t>(camera.height); }

// Movers on the picture, front to back, and which blocks they may touch.
struct Projected {
  Buffer<Splat> splats;
  std::vector<uint32_t> order;
  std::vector<TileBits> touches;  // in this order
};

void ProjectMovers(const Gaussians& movers, const Camera& camera, const Options& options, int tiles_x, Projected& out) {
  const uint32_t blocks = (movers.n + kBlock - 1) / kBlock;
  if (out.splats.size() < movers.n) out.splats = Buffer<Splat>(movers.n);
  std::vector<uint32_t> counts(blocks);
#pragma omp parallel for schedule(dynamic, 1) if (!omp_in_parallel())
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint32_t begin = b * kBlock, end = std::min(begin + kBlock, movers.n);
    counts[b] = ProjectBlock(movers, camera, options, begin, end, out.splats.data() + begin, {});
  }
  uint32_t count = 0;
  for (uint32_t b = 0; b < blocks; ++b) {  // one after the other without gaps
    if (b > 0) std::memmove(out.splats.data() + count, out.splats.data() + b * kBlock, counts[b] * sizeof(Splat));
    count += counts[b];
  }
  Buffer<DepthKey> keys(count);
  for (uint32_t i = 0; i < count; ++i) keys[i] = {std::bit_cast<uint32_t>(out.splats[i].z), i};
  SortByDepth(keys, 1);
  out.order.resize(count);
  for (uint32_t i = 0; i < count; ++i) out.order[i] = keys[i].splat;
  out.touches.clear();
  EmitBlocks(out.splats.data(), out.order.data(), count, tiles_x, options.alpha_min, out.touches);
}

// The movers of every block that has some, block after block, each front to back.
struct BlockLists {
  std::vector<uint32_t> blocks, starts, items;  // starts [blocks + 1]

  void Fill(const std::vector<TileBits>& touches, size_t block_count) {
    cursor_.assign(block_count, 0);
    for (const TileBits& touch : touches) {
      for (uint32_t bits = touch.bits; bits != 0; bits &= bits - 1) ++cursor_[touch.tile * kBlocksPerTile + std::countr_zero(bits)];
    }
    blocks.clear();
    starts.clear();
    uint32_t at = 0;
    for (uint32_t block = 0; block < block_count; ++block) {
      if (cursor_[block] == 0) continue;
      blocks.push_back(block);
      starts.push_back(at);
      at += std::exchange(cursor_[block], at);
    }
    starts.push_back(at);
    items.resize(at);
    for (const TileBits& touch : touches) {
      for (uint32_t bits = touch.bits; bits != 0; bits &= bits - 1) {
        items[cursor_[touch.tile * kBlocksPerTile + std::countr_zero(bits)]++] = touch.splat;
      }
    }
  }

 private:
  std::vector<uint32_t> cursor_;
};

}  // namespace

void ToBytes(const Response& response, const float color[3], uint8_t bytes[3]) {
  const float* const m = response.matrix;
  for (int j = 0; j < 3; ++j) {
    float x = color[j];
    if (response.given) x = color[0] * m[3 * j] + color[1] * m[3 * j + 1] + color[2] * m[3 * j + 2] + response.offset[j];
    x = x > 0.0f ? std::min(x, 1.0f) : 0.0f;
    bytes[j] = static_cast<uint8_t>(x * 255.0f + 0.5f);
  }
}

// What one tile's blocks keep: items [starts[b], starts[b + 1]) are splats of the view's layout.
struct Backdrop::Kept {
  std::vector<uint32_t> items;
  uint32_t starts[kBlocksPerTile + 1] = {};
};

Backdrop::Backdrop(const Gaussians& still, const Camera& camera, const Options& options, const float background[3],
                   const Response& response)
    : camera_(camera),
      options_(options),
      limits_{options.alpha_min, options.alpha_max, options.transmittance_min},
      background_{background[0], background[1], background[2]},
      response_(response),
      tiles_x_(static_cast<uint32_t>((camera.width + kTile - 1) / kTile)),
      tiles_y_(static_cast<uint32_t>((camera.height + kTile - 1) / kTile)),
      color_(3 * PixelCount(camera)),
      alpha_(PixelCount(camera)),
      depth_(PixelCount(camera)),
      bytes_(3 * PixelCount(camera)) {
  ViewState state;
  state.camera = camera;
  state.splats = Buffer<Splat>(std::max(1u, still.n));
  ProjectView(still, options, state, {});
  state.lists = BinSplats(state.splats.data(), state.block_counts, camera, options.alpha_min, nullptr);
  std::vector<Kept> kept(size_t{tiles_x_} * tiles_y_);
#pragma omp parallel for schedule(dynamic, 4)
  for (size_t tile = 0; tile < kept.size(); ++tile) KeepTile(state, static_cast<uint32_t>(tile), kept[tile]);
  Compact(state, kept);
}

void Backdrop::KeepTile(const ViewState& state, uint32_t tile, Kept& kept) {
  const uint32_t begin = state.lists.starts[tile], count = state.lists.starts[tile + 1] - begin;
  std::vector<uint32_t> all(count), some(count), found(count);
  std::vector<uint16_t> bits(count);
  for (uint32_t i = 0; i < count; ++i) all[i] = state.lists.items[begin + i].splat;
  TouchBlocks({state.splats.data(), all.data(), count}, tile, static_cast<int>(tiles_x_), options_.alpha_min, bits.data());
  const Canvas own{bytes_.data(), color_.data(), alpha_.data(), depth_.data()};
  for (uint32_t b = 0; b < kBlocksPerTile; ++b) {
    const uint32_t block = tile * kBlocksPerTile + b;
    const BlockPlace place = PlaceOf(block);
    if (place.columns > 0 && place.rows > 0) {
      uint32_t touching = 0;
      for (uint32_t i = 0; i < count; ++i) {
        some[touching] = all[i];
        touching += (bits[i] >> b) & 1u;
      }
      BlockPixels px;
      const uint32_t keeps = KeepItems(place, limits_, {state.splats.data(), some.data(), touching}, px, found.data());
      kept.items.insert(kept.items.end(), found.begin(), found.begin() + keeps);
      Write(block, px, own);
    }
    kept.starts[b + 1] = static_cast<uint32_t>(kept.items.size());
  }
}

// Numbers the splats that some block keeps by depth and lays them out in this order.
void Backdrop::Compact(const ViewState& state, const std::vector<Kept>& kept) {
  std::vector<uint8_t> used(state.splats.size(), 0);
  size_t total = 0;
  for (const Kept& tile : kept) {
    for (const uint32_t item : tile.items) used[item] = 1;
    total += tile.items.size();
  }
  const size_t count = static_cast<size_t>(std::count(used.begin(), used.end(), uint8_t{1}));
  Buffer<DepthKey> keys(count);
  for (size_t i = 0, k = 0; i < used.size(); ++i) {
    if (used[i] != 0) keys[k++] = {std::bit_cast<uint32_t>(state.splats[i].z), static_cast<uint32_t>(i)};
  }
  SortByDepth(keys, PartCount(count, 4096));
  splats_ = Buffer<Splat>(count);
  std::vector<uint32_t> number(used.size());
  for (size_t k = 0; k < count; ++k) {
    splats_[k] = state.splats[keys[k].splat];
    number[keys[k].splat] = static_cast<uint32_t>(k);
  }
  items_ = Buffer<uint32_t>(total);
  starts_.assign(1, 0);
  uint32_t at = 0;
  for (const Kept& tile : kept) {
    for (uint32_t b = 0; b < kBlocksPerTile; ++b) {
      for (uint32_t i = tile.starts[b]; i < tile.starts[b + 1]; ++i) items_[at++] = number[tile.items[i]];
      starts_.push_back(at);
    }
  }
}

BlockPlace Backdrop::PlaceOf(uint32_t block) const {
  const uint32_t tile = block / kBlocksPerTile, b = block % kBlocksPerTile;
  const int x = static_cast<int>(tile % tiles_x_ * kTile + b % 4 * kBlockSide);
  const int y = static_cast<int>(tile / tiles_x_ * kTile + b / 4 * kBlockSide);
  return {static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f, std::clamp(camera_.width - x, 0, kBlockSide),
          std::clamp(camera_.height - y, 0, kBlockSide)};
}

// colour += T background; alpha = 1 - T; depth = sum(w z) / alpha.
void Backdrop::Write(uint32_t block, const BlockPixels& px, const Canvas& to) const {
  const BlockPlace place = PlaceOf(block);
  const size_t left = static_cast<size_t>(place.x), top = static_cast<size_t>(place.y);
  for (int row = 0; row < place.rows; ++row) {
    for (int column = 0; column < place.columns; ++column) {
      const int i = row * kBlockSide + column;
      const size_t at = (top + static_cast<size_t>(row)) * static_cast<size_t>(camera_.width) + left + static_cast<size_t>(column);
      const float t = std::fabs(px.transmittance[i]);
      const float color[3] = {px.r[i] + t * background_[0], px.g[i] + t * background_[1], px.b[i] + t * background_[2]};
      if (to.bytes != nullptr) ToBytes(response_, color, to.bytes + 3 * at);
      if (to.color != nullptr) std::copy_n(color, 3, to.color + 3 * at);
      const float alpha = 1.0f - t;
      if (to.alpha != nullptr) to.alpha[at] = alpha;
      if (to.depth != nullptr) to.depth[at] = alpha > 0.0f ? px.z[i] / alpha : 0.0f;
    }
  }
}

void Backdrop::Copy(const Canvas& to) const {
  const size_t pixels = PixelCount(camera_);
  if (to.bytes != nullptr) std::memcpy(to.bytes, bytes_.data(), 3 * pixels);
  if (to.color != nullptr) std::memcpy(to.color, color_.data(), 3 * pixels * sizeof(float));
  if (to.alpha != nullptr) std::memcpy(to.alpha, alpha_.data(), pixels * sizeof(float));
  if (to.depth != nullptr) std::memcpy(to.depth, depth_.data(), pixels * sizeof(float));
}

void Backdrop::Draw(const Gaussians& movers, const Canvas& to) const {
  Copy(to);
  Projected moving;
  ProjectMovers(movers, camera_, options_, static_cast<int>(tiles_x_), moving);
  BlockLists lists;
  lists.Fill(moving.touches, starts_.size() - 1);
  const int count = static_cast<int>(lists.blocks.size());
#pragma omp parallel for schedule(dynamic, 16) if (count > 64 && !omp_in_parallel())
  for (int i = 0; i < count; ++i) {
    const uint32_t block = lists.blocks[static_cast<size_t>(i)], first = lists.starts[static_cast<size_t>(i)];
    const BlockPlace place = PlaceOf(block);
    if (place.columns == 0 || place.rows == 0) continue;
    const SplatList still{splats_.data(), items_.data() + starts_[block], starts_[block + 1] - starts_[block]};
    const SplatList movers_here{moving.splats.data(), lists.items.data() + first, lists.starts[static_cast<size_t>(i) + 1] - first};
    BlockPixels px;
    BlendBlock(place, limits_, still, movers_here, px);
    Write(block, px, to);
  }
}

}  // namespace recon
