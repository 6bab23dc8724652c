#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "blend_block.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <cmath>

#include "blend-inl.h"
#include "block.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

static_assert(kSide == kBlockSide && kBlocks == kBlocksPerTile);

// A block whose sums stay in registers while splat after splat is blended over it.
struct BlockSums {
  V r[kParts], g[kParts], b[kParts], z[kParts], transmittance[kParts];
};

HWY_INLINE BlendLimits LimitsOf(const AlphaLimits& limits) {
  return {Set(limits.alpha_min), Set(limits.alpha_max), Set(limits.transmittance_min), Set(-0.0f)};
}

HWY_INLINE void StartBlock(const BlockPlace& place, BlockSums& px) {
  HWY_ALIGN float t[kBlockPixels];
  for (int i = 0; i < kBlockPixels; ++i) t[i] = i % kSide < place.columns && i / kSide < place.rows ? 1.0f : -1.0f;
  for (int p = 0; p < kParts; ++p) {
    px.r[p] = px.g[p] = px.b[p] = px.z[p] = hn::Zero(kF);
    px.transmittance[p] = hn::Load(kF, t + p * kLanes);
  }
}

// One splat; the arithmetic of PlaceOnTile and BlendSplat. Returns whether a pixel goes on; `taken` says whether one took it or
// stopped at it.
template <bool kAsk>
HWY_INLINE bool BlendOne(const Splat& g, const BlockPlace& place, const BlockPattern& pattern, const BlendLimits& limits,
                         BlockSums& px, bool& taken) {
  const V l11 = Set(g.l11), l21 = Set(g.l21), l22 = Set(g.l22);
  const V x = hn::Sub(Set(place.x), Set(g.x)), y = hn::Sub(Set(place.y), Set(g.y));
  const V first_t = hn::MulAdd(l21, x, hn::Mul(l22, y)), shear = hn::Mul(l21, pattern.x);
  const V s = hn::Add(hn::Mul(l11, pattern.x), hn::Mul(l11, x));
  const V partial = hn::NegMulAdd(s, s, Set(g.log2_opacity));
  const V red = Set(g.r), green = Set(g.g), blue = Set(g.b), depth = Set(g.z);
  M any = hn::Ne(s, s), some = any;
  for (int p = 0; p < kParts; ++p) {
    const V t = hn::Add(hn::MulAdd(l22, pattern.y[p], shear), first_t);
    const V before = px.transmittance[p];
    const Blended one = Blend(hn::NegMulAdd(t, t, partial), before, limits);
    if constexpr (kAsk) {
      some = hn::Or(some, hn::And(hn::Ge(before, hn::Zero(kF)), hn::Ge(one.raw, limits.alpha_min)));
    }
    px.transmittance[p] = one.after;
    px.r[p] = hn::MulAdd(one.weight, red, px.r[p]);
    px.g[p] = hn::MulAdd(one.weight, green, px.g[p]);
    px.b[p] = hn::MulAdd(one.weight, blue, px.b[p]);
    px.z[p] = hn::MulAdd(one.weight, depth, px.z[p]);
    any = hn::Or(any, one.alive);
  }
  if constexpr (kAsk) taken = !hn::AllFalse(kF, some);
  return !hn::AllFalse(kF, any);
}

HWY_INLINE void WriteBlock(const BlockSums& px, BlockPixels& out) {
  for (int p = 0; p < kParts; ++p) {
    const int at = p * kLanes;
    hn::Store(px.r[p], kF, out.r + at);
    hn::Store(px.g[p], kF, out.g + at);
    hn::Store(px.b[p], kF, out.b + at);
    hn::Store(px.z[p], kF, out.z + at);
    hn::Store(px.transmittance[p], kF, out.transmittance + at);
  }
}

void BlendBlockTarget(const BlockPlace& place, const AlphaLimits& alphas, const SplatList& still, const SplatList& moving,
                      BlockPixels& out) {
  constexpr uint32_t kNext = 4;  // still items whose splats are prefetched
  const BlendLimits limits = LimitsOf(alphas);
  const BlockPattern pattern = MakePattern();
  BlockSums px;
  StartBlock(place, px);
  bool alive = true, taken = false;
  uint32_t s = 0, m = 0;
  while (alive && (s < still.count || m < moving.count)) {
    const Splat* const a = s < still.count ? still.splats + still.items[s] : nullptr;
    const Splat* const b = m < moving.count ? moving.splats + moving.items[m] : nullptr;
    if (s + kNext < still.count) __builtin_prefetch(still.splats + still.items[s + kNext]);
    const bool first = b == nullptr || (a != nullptr && a->z <= b->z);
    alive = BlendOne<false>(first ? *a : *b, place, pattern, limits, px, taken);
    s += first;
    m += !first;
  }
  WriteBlock(px, out);
}

uint32_t KeepItemsTarget(const BlockPlace& place, const AlphaLimits& alphas, const SplatList& list, BlockPixels& out,
                         uint32_t* kept) {
  const BlendLimits limits = LimitsOf(alphas);
  const BlockPattern pattern = MakePattern();
  BlockSums px;
  StartBlock(place, px);
  uint32_t count = 0;
  bool alive = true;
  for (uint32_t i = 0; alive && i < list.count; ++i) {
    bool taken = false;
    alive = BlendOne<true>(list.splats[list.items[i]], place, pattern, limits, px, taken);
    if (taken) kept[count++] = list.items[i];
  }
  WriteBlock(px, out);
  return count;
}

struct TileCorners {
  HWY_ALIGN float x[kBlocks], y[kBlocks];  // first pixel centres of the blocks
};

HWY_INLINE void PlaceCorners(int tile_x, int tile_y, TileCorners& corners) {
  for (int b = 0; b < kBlocks; ++b) {
    corners.x[b] = static_cast<float>(tile_x * kTile + b % 4 * kSide) + 0.5f;
    corners.y[b] = static_cast<float>(tile_y * kTile + b / 4 * kSide) + 0.5f;
  }
}

HWY_INLINE uint32_t TouchedOf(const Splat& g, const TileCorners& corners, float log2_inverse_alpha_min) {
  uint32_t bits = 0;
  for (int b = 0; b < kBlocks; b += kLanes) {
    const V x = hn::Sub(hn::Load(kF, corners.x + b), Set(g.x)), y = hn::Sub(hn::Load(kF, corners.y + b), Set(g.y));
    bits |= MaskBits(Touched(g, log2_inverse_alpha_min, x, y, Set(kSide - 1.0f))) << b;
  }
  return bits;
}

void EmitBlocksTarget(const Splat* splats, const uint32_t* order, size_t count, int tiles_x, float alpha_min,
                      std::vector<TileBits>& out) {
  const float log2_inverse = -std::log2(alpha_min);
  TileCorners corners;
  for (size_t i = 0; i < count; ++i) {
    const Splat& g = splats[order[i]];
    const int left = static_cast<int>(SpanFirst(g.columns)), top = static_cast<int>(SpanFirst(g.rows));
    const int right = left + static_cast<int>(SpanCount(g.columns)), bottom = top + static_cast<int>(SpanCount(g.rows));
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) {
        PlaceCorners(x, y, corners);
        const uint32_t bits = TouchedOf(g, corners, log2_inverse);
        if (bits != 0) out.push_back({order[i], static_cast<uint32_t>(y * tiles_x + x), bits});
      }
    }
  }
}

void TouchBlocksTarget(const SplatList& list, uint32_t tile, int tiles_x, float alpha_min, uint16_t* bits) {
  const float log2_inverse = -std::log2(alpha_min);
  TileCorners corners;
  PlaceCorners(static_cast<int>(tile) % tiles_x, static_cast<int>(tile) / tiles_x, corners);
  for (uint32_t i = 0; i < list.count; ++i) {
    bits[i] = static_cast<uint16_t>(TouchedOf(list.splats[list.items[i]], corners, log2_inverse));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(BlendBlockTarget);
HWY_EXPORT(KeepItemsTarget);
HWY_EXPORT(EmitBlocksTarget);
HWY_EXPORT(TouchBlocksTarget);

void BlendBlock(const BlockPlace& place, const AlphaLimits& limits, const SplatList& still, const SplatList& moving,
                BlockPixels& out) {
  HWY_DYNAMIC_DISPATCH(BlendBlockTarget)(place, limits, still, moving, out);
}

uint32_t KeepItems(const BlockPlace& place, const AlphaLimits& limits, const SplatList& list, BlockPixels& out, uint32_t* kept) {
  return HWY_DYNAMIC_DISPATCH(KeepItemsTarget)(place, limits, list, out, kept);
}

void EmitBlocks(const Splat* splats, const uint32_t* order, size_t count, int tiles_x, float alpha_min,
                std::vector<TileBits>& out) {
  HWY_DYNAMIC_DISPATCH(EmitBlocksTarget)(splats, order, count, tiles_x, alpha_min, out);
}

void TouchBlocks(const SplatList& list, uint32_t tile, int tiles_x, float alpha_min, uint16_t* bits) {
  HWY_DYNAMIC_DISPATCH(TouchBlocksTarget)(list, tile, tiles_x, alpha_min, bits);
}
}  // namespace recon
#endif
