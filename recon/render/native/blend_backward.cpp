#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "blend_backward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "blend-inl.h"

// The pass runs front to back, like the forward one, and repeats its decisions. With colour C = sum_i w_i c_i + T_end bg,
// w_i = a_i T_i and S_i the part of (C . g) that lies behind splat i:
//   dL/da_i = T_i (c_i . g) - S_i / (1 - a_i)
// Alpha and depth join in as further channels: sum(w z) with gradient g_depth / alpha, and T_end with gradient -g_alpha.

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

struct TileGradient {
  HWY_ALIGN float transmittance[kPixels];
  HWY_ALIGN float behind[kPixels];  // S
  HWY_ALIGN float r[kPixels];
  HWY_ALIGN float g[kPixels];
  HWY_ALIGN float b[kPixels];
  HWY_ALIGN float z[kPixels];
};

struct PixelSums {
  V v, vs, vt, vss, vst, vtt, z, r, g, b;
};

// One pixel's S and channel gradients out of the outputs and their gradients.
HWY_INLINE void ReadPixel(const PictureGradient& grad, size_t from, int at, TileGradient& px, float v_background[3]) {
  const float alpha = grad.alpha[from];
  const float depth = grad.depth != nullptr ? grad.depth[from] : 0.0f;
  const float v_depth = grad.v_depth != nullptr && alpha > 0.0f ? grad.v_depth[from] / alpha : 0.0f;
  const float v_alpha = (grad.v_alpha != nullptr ? grad.v_alpha[from] : 0.0f) - v_depth * depth;
  float behind = v_depth * depth * alpha - v_alpha * (1.0f - alpha);
  float v_color[3] = {0.0f, 0.0f, 0.0f};
  if (grad.v_color != nullptr) {
    for (int c = 0; c < 3; ++c) {
      v_color[c] = grad.v_color[3 * from + static_cast<size_t>(c)];
      behind += v_color[c] * grad.color[3 * from + static_cast<size_t>(c)];
      v_background[c] += v_color[c] * (1.0f - alpha);
    }
  }
  px.behind[at] = behind;
  px.r[at] = v_color[0];
  px.g[at] = v_color[1];
  px.b[at] = v_color[2];
  px.z[at] = v_depth;
}

// Fills `px`; false if no pixel of the tile has a gradient.
bool ReadTile(const BlendInput& in, const TileFrame& frame, const PictureGradient& grad, TileGradient& px,
              float v_background[3]) {
  for (float* plane : {px.behind, px.r, px.g, px.b, px.z}) {
    for (int i = 0; i < kPixels; i += kLanes) hn::Store(hn::Zero(kF), kF, plane + i);
  }
  for (int r = 0; r < frame.rows; ++r) {
    const size_t first = static_cast<size_t>(frame.y0 + r) * static_cast<size_t>(in.width) + static_cast<size_t>(frame.x0);
    for (int c = 0; c < frame.columns; ++c) ReadPixel(grad, first + static_cast<size_t>(c), r * kTile + c, px, v_background);
  }
  M any = hn::Ne(hn::Zero(kF), hn::Zero(kF));
  for (const float* plane : {px.behind, px.r, px.g, px.b, px.z}) {
    for (int i = 0; i < kPixels; i += kLanes) any = hn::Or(any, hn::Ne(hn::Load(kF, plane + i), hn::Zero(kF)));
  }
  return !hn::AllFalse(kF, any);
}

// Adds one splat's sums over the rows `bits` of one column of vectors.
HWY_INLINE void BackwardColumn(const Splat& g, const SplatColumn& column, const float* offsets, const BlendLimits& limits,
                               uint32_t bits, int lane0, uint32_t& alive, TileGradient& px, PixelSums& sums) {
  V sum_v = hn::Zero(kF), sum_vt = hn::Zero(kF);
  while (bits != 0) {
    const int r = std::countr_zero(bits);
    bits &= bits - 1;
    const int at = r * kTile + lane0;
    const V transmittance = hn::Load(kF, px.transmittance + at);
    const RowBlend row = BlendRow(column, Set(offsets[r]), transmittance, limits);
    const V gr = hn::Load(kF, px.r + at), gg = hn::Load(kF, px.g + at);
    const V gb = hn::Load(kF, px.b + at), gz = hn::Load(kF, px.z + at);
    V along = hn::Mul(gr, Set(g.r));  // (c . g)
    along = hn::MulAdd(gg, Set(g.g), along);
    along = hn::MulAdd(gb, Set(g.b), along);
    along = hn::MulAdd(gz, Set(g.z), along);
    const V behind = hn::NegMulAdd(row.weight, along, hn::Load(kF, px.behind + at));
    const V v_alpha = hn::NegMulAdd(behind, Reciprocal(hn::Sub(Set(1.0f), row.alpha)), hn::Mul(transmittance, along));
    const M moves = hn::And(row.alive, hn::Le(row.raw, limits.alpha_max));
    const V v = hn::IfThenElseZero(moves, hn::Mul(row.alpha, v_alpha));
    const V vt = hn::Mul(v, row.t);
    sum_v = hn::Add(sum_v, v);
    sum_vt = hn::Add(sum_vt, vt);
    sums.vtt = hn::MulAdd(vt, row.t, sums.vtt);
    sums.r = hn::MulAdd(row.weight, gr, sums.r);
    sums.g = hn::MulAdd(row.weight, gg, sums.g);
    sums.b = hn::MulAdd(row.weight, gb, sums.b);
    sums.z = hn::MulAdd(row.weight, gz, sums.z);
    hn::Store(row.after, kF, px.transmittance + at);
    hn::Store(behind, kF, px.behind + at);
    if (HWY_UNLIKELY(hn::AllFalse(kF, row.alive))) alive &= ~(1u << r);
  }
  const V sum_vs = hn::Mul(sum_v, column.s);
  sums.v = hn::Add(sums.v, sum_v);
  sums.vs = hn::Add(sums.vs, sum_vs);
  sums.vt = hn::Add(sums.vt, sum_vt);
  sums.vss = hn::MulAdd(sum_vs, column.s, sums.vss);
  sums.vst = hn::MulAdd(sum_vt, column.s, sums.vst);
}

HWY_INLINE void StoreSums(const PixelSums& s, float* out) {
  StoreSums4(s.v, s.vs, s.vt, s.vss, out);
  StoreSums4(s.vst, s.vtt, s.z, hn::Zero(kF), out + 4);
  StoreSums4(s.r, s.g, s.b, hn::Zero(kF), out + 8);
}

void BlendTileBackwardTarget(const BlendInput& in, uint32_t tile, const PictureGradient& grad, float* sums,
                             float v_background[3]) {
  TileFrame frame;
  TileGradient px;
  StartTile(in, tile, frame, px.transmittance);
  v_background[0] = v_background[1] = v_background[2] = 0.0f;
  const bool any = ReadTile(in, frame, grad, px, v_background);
  V pixel_x[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    pixel_x[c] = hn::ConvertTo(kF, hn::Iota(kI, frame.x0 + c * kLanes));
    pixel_x[c] = hn::Add(pixel_x[c], Set(0.5f));
  }
  const BlendLimits limits = MakeLimits(in);
  const V zero = hn::Zero(kF);
  HWY_ALIGN float offsets[kTile];
  const uint32_t end = in.starts[tile + 1];
  uint32_t k = in.starts[tile];
  for (; any && k < end && AnyAlive(frame) != 0; ++k) {
    if (k + 4 < end) __builtin_prefetch(in.splats + (in.items[k + 4] >> 8));
    const Splat& g = in.splats[in.items[k] >> 8];
    const uint32_t rows = ItemRows(in.items[k]);
    RowOffsets(g, frame, offsets);
    PixelSums s{zero, zero, zero, zero, zero, zero, zero, zero, zero, zero};
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t bits = rows & frame.alive[c];
      if (bits == 0 || !TouchesColumn(g, frame, c)) continue;
      BackwardColumn(g, MakeColumn(g, pixel_x[c]), offsets, limits, bits, c * kLanes, frame.alive[c], px, s);
    }
    StoreSums(s, sums + static_cast<size_t>(k) * kSums);
  }
  for (size_t i = static_cast<size_t>(k) * kSums; i < static_cast<size_t>(end) * kSums; ++i) sums[i] = 0.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(BlendTileBackwardTarget);
void BlendTileBackward(const BlendInput& in, uint32_t tile, const PictureGradient& grad, float* sums, float v_background[3]) {
  HWY_DYNAMIC_DISPATCH(BlendTileBackwardTarget)(in, tile, grad, sums, v_background);
}
}  // namespace recon
#endif
