// What one block of 4x4 pixels gets from one splat: shared by the forward and the backward pass, which must decide alike.
//
// A tile is 16 blocks of 4x4 pixels, and its pixels are kept block by block: a block is one vector on AVX-512, two on AVX2.
// Compared with rows of 16 pixels, square blocks waste a third fewer lanes on the typical small ellipse.
#if defined(RECON_BLEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_BLEND_INL_H_
#undef RECON_BLEND_INL_H_
#else
#define RECON_BLEND_INL_H_
#endif

#include <bit>

#include "blend.h"
#include "touch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

constexpr int kSide = 4;                  // pixels per block side
constexpr int kBlockPixels = kSide * kSide;
constexpr int kBlocks = 16;               // per tile, row by row
constexpr int kPixels = kTile * kTile;
constexpr int kParts = kBlockPixels / kLanes;  // vectors per block
constexpr uint32_t kAhead = 32;           // items whose splats are prefetched: a tile's lie scattered over more memory than the
                                          // caches near the core hold

// Where a tile lies and which of its blocks still take part, one bit each.
struct TileFrame {
  int x0, y0, columns, rows;  // first pixel; size within the picture
  uint32_t alive;
  HWY_ALIGN float block_x[kBlocks], block_y[kBlocks];  // first pixel centre of each block
};

HWY_INLINE int PixelAt(int row, int column) {
  return (row / kSide * 4 + column / kSide) * kBlockPixels + row % kSide * kSide + column % kSide;
}

// Transmittance 1 inside the picture; pixels outside are born dead. A dead pixel keeps its transmittance, negated.
HWY_INLINE void StartTile(const BlendInput& in, uint32_t tile, TileFrame& frame, float* transmittance) {
  frame.x0 = static_cast<int>(tile) % in.tiles_x * kTile;
  frame.y0 = static_cast<int>(tile) / in.tiles_x * kTile;
  frame.columns = HWY_MIN(kTile, in.width - frame.x0);
  frame.rows = HWY_MIN(kTile, in.height - frame.y0);
  frame.alive = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const int x = b % 4 * kSide, y = b / 4 * kSide;
    frame.block_x[b] = static_cast<float>(frame.x0 + x) + 0.5f;
    frame.block_y[b] = static_cast<float>(frame.y0 + y) + 0.5f;
    if (x < frame.columns && y < frame.rows) frame.alive |= 1u << b;
  }
  for (uint32_t k = in.starts[tile]; k < HWY_MIN(in.starts[tile + 1], in.starts[tile] + kAhead); ++k) {
    __builtin_prefetch(in.splats + in.items[k].splat);
  }
  for (int i = 0; i < kPixels; i += kLanes) hn::Store(Set(1.0f), kF, transmittance + i);
  if (frame.columns == kTile && frame.rows == kTile) return;
  for (int r = 0; r < kTile; ++r) {
    for (int c = 0; c < kTile; ++c) {
      if (r >= frame.rows || c >= frame.columns) transmittance[PixelAt(r, c)] = -1.0f;
    }
  }
}

// Offsets of a block's pixels from its first one.
struct BlockPattern {
  V x, y[kParts];
};

HWY_INLINE BlockPattern MakePattern() {
  const VI lane = hn::Iota(kI, 0);
  BlockPattern pattern;
  pattern.x = hn::ConvertTo(kF, hn::And(lane, hn::Set(kI, kSide - 1)));
  const VI row = hn::ShiftRight<2>(lane);
  for (int p = 0; p < kParts; ++p) {
    pattern.y[p] = hn::ConvertTo(kF, hn::Add(row, hn::Set(kI, p * kLanes / kSide)));
  }
  return pattern;
}

// A splat in the whitened coordinates w = L'(pixel - mean): of the first pixel of every block, and across a block.
struct SplatOnTile {
  HWY_ALIGN float s[kBlocks], t[kBlocks];
  V s_across, t_across[kParts];
};

HWY_INLINE void PlaceOnTile(const Splat& g, const TileFrame& frame, const BlockPattern& pattern, SplatOnTile& out) {
  const V l11 = Set(g.l11), l21 = Set(g.l21), l22 = Set(g.l22);
  for (int b = 0; b < kBlocks; b += kLanes) {
    const V x = hn::Sub(hn::Load(kF, frame.block_x + b), Set(g.x)), y = hn::Sub(hn::Load(kF, frame.block_y + b), Set(g.y));
    hn::Store(hn::Mul(l11, x), kF, out.s + b);
    hn::Store(hn::MulAdd(l21, x, hn::Mul(l22, y)), kF, out.t + b);
  }
  out.s_across = hn::Mul(l11, pattern.x);
  const V shear = hn::Mul(l21, pattern.x);
  for (int p = 0; p < kParts; ++p) out.t_across[p] = hn::MulAdd(l22, pattern.y[p], shear);
}

struct BlendLimits {
  V alpha_min, alpha_max, transmittance_min, sign;
};

HWY_INLINE BlendLimits MakeLimits(const BlendInput& in) {
  return {Set(in.alpha_min), Set(in.alpha_max), Set(in.transmittance_min), Set(-0.0f)};
}

struct Blended {
  V raw;     // o exp(power), before the cap
  V alpha;   // 0 where skipped
  V weight;  // alpha T, 0 where skipped or dead
  V after;   // the new transmittance, negative where dead
  M alive;
};

// alpha = min(alpha_max, raw), 0 if raw < alpha_min; T' = T (1 - alpha); T' < transmittance_min: the pixel stops without this one.
HWY_INLINE Blended Blend(V exponent, V transmittance, const BlendLimits& limits) {
  Blended out;
  out.raw = Exp2(exponent);
  out.alpha = hn::IfThenElseZero(hn::Ge(out.raw, limits.alpha_min), hn::Min(out.raw, limits.alpha_max));
  const V next = hn::NegMulAdd(out.alpha, transmittance, transmittance);
  out.alive = hn::Ge(next, limits.transmittance_min);
  out.weight = hn::IfThenElseZero(out.alive, hn::Mul(out.alpha, transmittance));
  out.after = hn::IfThenElse(out.alive, next, hn::Or(transmittance, limits.sign));
  return out;
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_BLEND_INL_H_
