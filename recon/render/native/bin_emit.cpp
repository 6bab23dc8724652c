#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bin_emit.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>

#include "bin.h"
#include "touch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// Keeps the wanted ones of `count` tiles; returns how many there are.
HWY_INLINE size_t KeepWanted(const uint8_t* mask, uint32_t* tiles, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t tile = tiles[i];
    tiles[kept] = tile;
    kept += mask[tile] != 0;
  }
  return kept;
}

// The tiles of the splat's box that it touches, kLanes at a time, row by row. `to` has room for the box and a vector.
HWY_INLINE size_t EmitSplat(const Splat& g, const TileGrid& grid, uint32_t* to) {
  const hn::RebindToUnsigned<Floats> u32;
  const int first_x = static_cast<int>(SpanFirst(g.columns)), first_y = static_cast<int>(SpanFirst(g.rows));
  const int width = static_cast<int>(SpanCount(g.columns)), box = width * static_cast<int>(SpanCount(g.rows));
  const V lane = hn::ConvertTo(kF, hn::Iota(kI, 0));
  const V across = Set(static_cast<float>(width)), per_row = Set(1.0f / static_cast<float>(std::max(1, width)));
  const V left = Set(0.5f - g.x), top = Set(0.5f - g.y);
  const VI corner = hn::Set(kI, first_y * grid.tiles_x + first_x), pitch = hn::Set(kI, grid.tiles_x);
  size_t count = 0;
  for (int k = 0; k < box; k += kLanes) {
    // Box tile number n is (n mod width, n / width); the half keeps the division clear of rounding.
    const V n = hn::Add(lane, Set(static_cast<float>(k)));
    const V row = hn::Floor(hn::Mul(hn::Add(n, Set(0.5f)), per_row)), column = hn::NegMulAdd(row, across, n);
    const V x = hn::MulAdd(hn::Add(column, Set(static_cast<float>(first_x))), Set(kTile), left);
    const V y = hn::MulAdd(hn::Add(row, Set(static_cast<float>(first_y))), Set(kTile), top);
    const M inside = hn::FirstN(kF, static_cast<size_t>(std::min(box - k, kLanes)));
    const M touched = hn::And(inside, Touched(g, grid.log2_inverse_alpha_min, x, y, Set(kTile - 1.0f)));
    const VI tile = hn::Add(corner, hn::Add(hn::Mul(hn::ConvertTo(kI, row), pitch), hn::ConvertTo(kI, column)));
    const VI found = hn::Compress(tile, hn::RebindMask(kI, touched));
    hn::StoreU(hn::BitCast(u32, found), u32, to + count);
    count += hn::CountTrue(kF, touched);
  }
  return grid.mask == nullptr ? count : KeepWanted(grid.mask, to, count);
}

void EmitTilesTarget(const Splat* splats, size_t count, const TileGrid& grid, TileNumbers& out, EntryRange* ranges) {
  for (size_t i = 0; i < count; ++i) {
    const Splat& g = splats[i];
    const size_t box = size_t{SpanCount(g.columns)} * SpanCount(g.rows);
    const size_t found = EmitSplat(g, grid, out.Reserve(box + kTile));
    ranges[i] = {static_cast<uint32_t>(out.size()), static_cast<uint32_t>(found)};
    out.Commit(found);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(EmitTilesTarget);
void EmitTiles(const Splat* splats, size_t count, const TileGrid& grid, TileNumbers& out, EntryRange* ranges) {
  HWY_DYNAMIC_DISPATCH(EmitTilesTarget)(splats, count, grid, out, ranges);
}
}  // namespace recon
#endif
