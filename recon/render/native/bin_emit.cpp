#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bin_emit.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "bin.h"
#include "touch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// Tiles between two positions in pixels, clipped to the picture; none if count is 0.
struct TileSpan {
  int first, count;
};

HWY_INLINE TileSpan TilesWithin(float low, float high, int tiles) {
  const float edge = static_cast<float>(tiles);
  const int first = static_cast<int>(std::clamp(low / kTile, 0.0f, edge));
  const int last = static_cast<int>(std::clamp(high / kTile, -1.0f, edge - 1.0f));  // truncates: -0.5 counts as tile 0
  return {first, high < 0.0f ? 0 : std::max(0, last - first + 1)};
}

// Tries the tiles of the splat's box, kLanes at a time.
void EmitTilesTarget(Splat* splats, const DepthKey* keys, size_t count, const TileGrid& grid, TileEntries& out,
                     uint32_t* per_tile) {
  constexpr float kBoxSlack = 0.01f;  // px
  const V lane = hn::ConvertTo(kF, hn::Iota(kI, 0));
  for (size_t i = 0; i < count; ++i) {
    if (i + 8 < count) __builtin_prefetch(splats + keys[i + 8].splat);
    Splat& g = splats[keys[i].splat];
    const float half_y = g.half_x * std::sqrt(g.l11 * g.l11 + g.l21 * g.l21) / g.l22;  // half_y / half_x = sqrt(c / a)
    const TileSpan xs = TilesWithin(g.x - g.half_x - kBoxSlack, g.x + g.half_x + kBoxSlack, grid.tiles_x);
    const TileSpan ys = TilesWithin(g.y - half_y - kBoxSlack, g.y + half_y + kBoxSlack, grid.tiles_y);
    const size_t before = out.size();
    const int box = xs.count * ys.count;
    const float per_row = 1.0f / static_cast<float>(std::max(1, xs.count));
    for (int k = 0; k < box; k += kLanes) {
      // Box tile number n is (n mod width, n / width); the half keeps the division clear of rounding.
      const V n = hn::Add(lane, Set(static_cast<float>(k)));
      const V row = hn::Floor(hn::Mul(hn::Add(n, Set(0.5f)), Set(per_row)));
      const V column = hn::NegMulAdd(row, Set(static_cast<float>(xs.count)), n);
      const V x = hn::MulAdd(hn::Add(column, Set(static_cast<float>(xs.first))), Set(kTile), Set(0.5f - g.x));
      const V y = hn::MulAdd(hn::Add(row, Set(static_cast<float>(ys.first))), Set(kTile), Set(0.5f - g.y));
      uint32_t bits = TouchedRectangles(g, grid.log2_inverse_alpha_min, x, y, Set(kTile - 1.0f));
      if (box - k < kLanes) bits &= (1u << (box - k)) - 1u;
      for (; bits != 0; bits &= bits - 1) {
        const int at = k + std::countr_zero(bits);
        const int r = static_cast<int>((static_cast<float>(at) + 0.5f) * per_row);
        const uint32_t tile = static_cast<uint32_t>((ys.first + r) * grid.tiles_x + xs.first + at - r * xs.count);
        if (grid.mask != nullptr && grid.mask[tile] == 0) continue;
        out.Push({tile, keys[i].splat});
        ++per_tile[tile];
      }
    }
    g.first = static_cast<uint32_t>(before);
    g.count = static_cast<uint32_t>(out.size() - before);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(EmitTilesTarget);
void EmitTiles(Splat* splats, const DepthKey* keys, size_t count, const TileGrid& grid, TileEntries& out, uint32_t* per_tile) {
  HWY_DYNAMIC_DISPATCH(EmitTilesTarget)(splats, keys, count, grid, out, per_tile);
}
}  // namespace recon
#endif
