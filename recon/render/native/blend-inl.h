// What one row of pixels gets from one splat: shared by the forward and the backward pass, which must decide alike.
#if defined(RECON_BLEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_BLEND_INL_H_
#undef RECON_BLEND_INL_H_
#else
#define RECON_BLEND_INL_H_
#endif

#include <bit>
#include <cmath>

#include "blend.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

constexpr int kColumns = kTile / kLanes;  // vectors per tile row
constexpr int kPixels = kTile * kTile;

// Where a tile lies and which of its rows still take part, one bit per row and column of vectors.
struct TileFrame {
  int x0, y0, columns, rows;  // first pixel; size within the picture
  uint32_t alive[kColumns];
  HWY_ALIGN float row_y[kTile];  // y of the pixel centres of each row
};

// Transmittance 1 inside the picture; pixels outside are born dead. A dead pixel keeps its transmittance, negated.
HWY_INLINE void StartTile(const BlendInput& in, uint32_t tile, TileFrame& frame, float* transmittance) {
  frame.x0 = static_cast<int>(tile) % in.tiles_x * kTile;
  frame.y0 = static_cast<int>(tile) / in.tiles_x * kTile;
  frame.columns = HWY_MIN(kTile, in.width - frame.x0);
  frame.rows = HWY_MIN(kTile, in.height - frame.y0);
  for (int r = 0; r < kTile; ++r) {
    frame.row_y[r] = static_cast<float>(frame.y0 + r) + 0.5f;
    for (int c = 0; c < kTile; ++c) {
      transmittance[r * kTile + c] = r < frame.rows && c < frame.columns ? 1.0f : -1.0f;
    }
  }
  for (int c = 0; c < kColumns; ++c) frame.alive[c] = c * kLanes < frame.columns ? (1u << frame.rows) - 1u : 0u;
}

HWY_INLINE uint32_t AnyAlive(const TileFrame& frame) {
  uint32_t any = 0;
  for (int c = 0; c < kColumns; ++c) any |= frame.alive[c];
  return any;
}

// A splat against one column of vectors: everything that is the same for all rows.
struct SplatColumn {
  V s;         // first whitened coordinate
  V exponent;  // log2_opacity - s^2
  V shear;     // l21 dx
};

HWY_INLINE SplatColumn MakeColumn(const Splat& g, V pixel_x) {
  const V dx = hn::Sub(pixel_x, Set(g.x));
  const V s = hn::Mul(dx, Set(g.l11));
  return {s, hn::NegMulAdd(s, s, Set(g.log2_opacity)), hn::Mul(dx, Set(g.l21))};
}

// l22 (row_y - y) of the sixteen rows.
HWY_INLINE void RowOffsets(const Splat& g, const TileFrame& frame, float* offsets) {
  for (int r = 0; r < kTile; r += kLanes) {
    hn::Store(hn::Mul(hn::Sub(hn::Load(kF, frame.row_y + r), Set(g.y)), Set(g.l22)), kF, offsets + r);
  }
}

// Whether the splat can touch the column of vectors at all; always true where a row is one vector.
HWY_INLINE bool TouchesColumn(const Splat& g, const TileFrame& frame, int column) {
  if constexpr (kColumns == 1) return true;
  const float centre = static_cast<float>(frame.x0 + column * kLanes) + 0.5f * kLanes;
  return std::fabs(g.x - centre) <= g.half_x + 0.5f * kLanes;
}

struct BlendLimits {
  V alpha_min, alpha_max, transmittance_min, sign;
};

HWY_INLINE BlendLimits MakeLimits(const BlendInput& in) {
  return {Set(in.alpha_min), Set(in.alpha_max), Set(in.transmittance_min), Set(-0.0f)};
}

struct RowBlend {
  V t;       // second whitened coordinate
  V raw;     // o exp(power), before the cap
  V alpha;   // 0 where skipped
  V weight;  // alpha T, 0 where skipped or dead
  V after;   // the new transmittance, negative where dead
  M alive;
};

// alpha = min(alpha_max, raw), 0 if raw < alpha_min; T' = T (1 - alpha); T' < transmittance_min: the pixel stops without this one.
HWY_INLINE RowBlend BlendRow(const SplatColumn& column, V offset, V transmittance, const BlendLimits& limits) {
  RowBlend row;
  row.t = hn::Add(column.shear, offset);
  row.raw = Exp2(hn::NegMulAdd(row.t, row.t, column.exponent));
  row.alpha = hn::IfThenElseZero(hn::Ge(row.raw, limits.alpha_min), hn::Min(row.raw, limits.alpha_max));
  const V next = hn::NegMulAdd(row.alpha, transmittance, transmittance);
  row.alive = hn::Ge(next, limits.transmittance_min);
  row.weight = hn::IfThenElseZero(row.alive, hn::Mul(row.alpha, transmittance));
  row.after = hn::IfThenElse(row.alive, next, hn::Or(transmittance, limits.sign));
  return row;
}

// Bit r set: row r of the tile may be touched by this list entry.
HWY_INLINE uint32_t ItemRows(uint32_t item) { return (2u << (item & 15u)) - (1u << ((item >> 4) & 15u)); }

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_BLEND_INL_H_
