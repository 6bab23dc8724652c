#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "blend_forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "blend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

struct TilePixels {
  HWY_ALIGN float transmittance[kPixels];
  HWY_ALIGN float r[kPixels];
  HWY_ALIGN float g[kPixels];
  HWY_ALIGN float b[kPixels];
  HWY_ALIGN float z[kPixels];  // sum of weight * depth
};

HWY_INLINE void Accumulate(V weight, float value, float* sum) {
  hn::Store(hn::MulAdd(weight, Set(value), hn::Load(kF, sum)), kF, sum);
}

// One splat over one column of vectors, rows `bits`.
HWY_INLINE void BlendColumn(const Splat& g, const SplatColumn& column, const float* offsets, const BlendLimits& limits,
                            uint32_t bits, int lane0, uint32_t& alive, TilePixels& px) {
  while (bits != 0) {
    const int r = std::countr_zero(bits);
    bits &= bits - 1;
    const int at = r * kTile + lane0;
    const RowBlend row = BlendRow(column, Set(offsets[r]), hn::Load(kF, px.transmittance + at), limits);
    hn::Store(row.after, kF, px.transmittance + at);
    Accumulate(row.weight, g.r, px.r + at);
    Accumulate(row.weight, g.g, px.g + at);
    Accumulate(row.weight, g.b, px.b + at);
    Accumulate(row.weight, g.z, px.z + at);
    if (HWY_UNLIKELY(hn::AllFalse(kF, row.alive))) alive &= ~(1u << r);
  }
}

// colour += T background; alpha = 1 - T; depth = sum(w z) / alpha.
void WriteTile(const BlendInput& in, const TileFrame& frame, const TilePixels& px, const Picture& out) {
  for (int r = 0; r < frame.rows; ++r) {
    const size_t first = static_cast<size_t>(frame.y0 + r) * static_cast<size_t>(in.width) + static_cast<size_t>(frame.x0);
    for (int c = 0; c < frame.columns; ++c) {
      const int at = r * kTile + c;
      const size_t to = first + static_cast<size_t>(c);
      const float t = std::fabs(px.transmittance[at]);
      out.color[3 * to + 0] = px.r[at] + t * in.background[0];
      out.color[3 * to + 1] = px.g[at] + t * in.background[1];
      out.color[3 * to + 2] = px.b[at] + t * in.background[2];
      out.alpha[to] = 1.0f - t;
      if (out.depth != nullptr) out.depth[to] = t < 1.0f ? px.z[at] / (1.0f - t) : 0.0f;
    }
  }
}

void BlendTileTarget(const BlendInput& in, uint32_t tile, const Picture& out) {
  TileFrame frame;
  TilePixels px;
  StartTile(in, tile, frame, px.transmittance);
  for (float* plane : {px.r, px.g, px.b, px.z}) {
    for (int i = 0; i < kPixels; i += kLanes) hn::Store(hn::Zero(kF), kF, plane + i);
  }
  V pixel_x[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    pixel_x[c] = hn::ConvertTo(kF, hn::Iota(kI, frame.x0 + c * kLanes));
    pixel_x[c] = hn::Add(pixel_x[c], Set(0.5f));
  }
  const BlendLimits limits = MakeLimits(in);
  HWY_ALIGN float offsets[kTile];
  const uint32_t end = in.starts[tile + 1];
  for (uint32_t k = in.starts[tile]; k < end && AnyAlive(frame) != 0; ++k) {
    if (k + 4 < end) __builtin_prefetch(in.splats + (in.items[k + 4] >> 8));
    const Splat& g = in.splats[in.items[k] >> 8];
    const uint32_t rows = ItemRows(in.items[k]);
    RowOffsets(g, frame, offsets);
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t bits = rows & frame.alive[c];
      if (bits == 0 || !TouchesColumn(g, frame, c)) continue;
      BlendColumn(g, MakeColumn(g, pixel_x[c]), offsets, limits, bits, c * kLanes, frame.alive[c], px);
    }
  }
  WriteTile(in, frame, px, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(BlendTileTarget);
void BlendTile(const BlendInput& in, uint32_t tile, const Picture& out) {
  HWY_DYNAMIC_DISPATCH(BlendTileTarget)(in, tile, out);
}
}  // namespace recon
#endif
