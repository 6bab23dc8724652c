#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "blend_backward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>

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

// The pixel's S and channel gradients, out of the outputs and their gradients.
HWY_INLINE void ReadPixel(const PictureGradient& grad, size_t from, int at, TileGradient& px, float* t_end) {
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
    }
  }
  px.behind[at] = behind;
  px.r[at] = v_color[0];
  px.g[at] = v_color[1];
  px.b[at] = v_color[2];
  px.z[at] = v_depth;
  t_end[at] = 1.0f - alpha;
}

// The same for four pixels side by side.
HWY_INLINE void ReadFour(const PictureGradient& grad, size_t from, int at, TileGradient& px, float* t_end) {
  const hn::FixedTag<float, 4> d;
  using V4 = hn::Vec<decltype(d)>;
  const V4 zero = hn::Zero(d), alpha = hn::LoadU(d, grad.alpha + from);
  const V4 left = hn::Sub(hn::Set(d, 1.0f), alpha);
  V4 v_depth = zero, v_alpha = grad.v_alpha != nullptr ? hn::LoadU(d, grad.v_alpha + from) : zero;
  V4 behind = zero;
  if (grad.v_depth != nullptr) {
    const V4 depth = hn::LoadU(d, grad.depth + from);
    v_depth = hn::IfThenElseZero(hn::Gt(alpha, zero), hn::Div(hn::LoadU(d, grad.v_depth + from), alpha));
    v_alpha = hn::Sub(v_alpha, hn::Mul(v_depth, depth));
    behind = hn::Mul(hn::Mul(v_depth, depth), alpha);
  }
  behind = hn::Sub(behind, hn::Mul(v_alpha, left));
  V4 r = zero, g = zero, b = zero;
  if (grad.v_color != nullptr) {
    V4 cr, cg, cb;
    hn::LoadInterleaved3(d, grad.v_color + 3 * from, r, g, b);
    hn::LoadInterleaved3(d, grad.color + 3 * from, cr, cg, cb);
    behind = hn::Add(behind, hn::Add(hn::Mul(r, cr), hn::Add(hn::Mul(g, cg), hn::Mul(b, cb))));
  }
  hn::Store(behind, d, px.behind + at);
  hn::Store(r, d, px.r + at);
  hn::Store(g, d, px.g + at);
  hn::Store(b, d, px.b + at);
  hn::Store(v_depth, d, px.z + at);
  hn::Store(left, d, t_end + at);
}

// Rows of a picture lie far apart: asks for all of the tile's at once.
HWY_INLINE void PrefetchTile(const BlendInput& in, const TileFrame& frame, const PictureGradient& grad) {
  for (int r = 0; r < frame.rows; ++r) {
    const size_t first = static_cast<size_t>(frame.y0 + r) * static_cast<size_t>(in.width) + static_cast<size_t>(frame.x0);
    __builtin_prefetch(grad.alpha + first);
    for (const float* image : {grad.color, grad.v_color}) {
      for (size_t i = 0; image != nullptr && i < 3 * static_cast<size_t>(frame.columns); i += 16) {
        __builtin_prefetch(image + 3 * first + i);
      }
    }
  }
}

// Fills `px` and the tile's dL/dbackground = sum T_end g; false if no pixel of the tile has a gradient.
bool ReadTile(const BlendInput& in, const TileFrame& frame, const PictureGradient& grad, TileGradient& px,
              float v_background[3]) {
  HWY_ALIGN float t_end[kPixels];
  const V zero = hn::Zero(kF);
  if (frame.columns < kTile || frame.rows < kTile) {
    for (float* plane : {px.behind, px.r, px.g, px.b, px.z, &t_end[0]}) {
      for (int i = 0; i < kPixels; i += kLanes) hn::Store(zero, kF, plane + i);
    }
  }
  for (int r = 0; r < frame.rows; ++r) {
    const size_t first = static_cast<size_t>(frame.y0 + r) * static_cast<size_t>(in.width) + static_cast<size_t>(frame.x0);
    int c = 0;
    for (; c + kSide <= frame.columns; c += kSide) ReadFour(grad, first + static_cast<size_t>(c), PixelAt(r, c), px, t_end);
    for (; c < frame.columns; ++c) ReadPixel(grad, first + static_cast<size_t>(c), PixelAt(r, c), px, t_end);
  }
  V red = zero, green = zero, blue = zero;
  M any = hn::Ne(zero, zero);
  for (int i = 0; i < kPixels; i += kLanes) {
    const V left = hn::Load(kF, t_end + i);
    red = hn::MulAdd(left, hn::Load(kF, px.r + i), red);
    green = hn::MulAdd(left, hn::Load(kF, px.g + i), green);
    blue = hn::MulAdd(left, hn::Load(kF, px.b + i), blue);
    for (const float* plane : {px.behind, px.r, px.g, px.b, px.z}) any = hn::Or(any, hn::Ne(hn::Load(kF, plane + i), zero));
  }
  float sums[4];
  StoreSums4(red, green, blue, zero, sums);
  for (int c = 0; c < 3; ++c) v_background[c] = sums[c];
  return !hn::AllFalse(kF, any);
}

// Adds one splat's sums over the blocks `bits`. kDepth: the picture's depth has a gradient.
template <bool kDepth>
HWY_INLINE void BackwardSplat(const Splat& g, const SplatOnTile& on, const BlendLimits& limits, uint32_t bits,
                              TileGradient& px, PixelSums& sums) {
  const V opacity = Set(g.log2_opacity), one = Set(1.0f);
  const V red = Set(g.r), green = Set(g.g), blue = Set(g.b), depth = Set(g.z);
  while (bits != 0) {
    const int b = std::countr_zero(bits);
    bits &= bits - 1;
    const V s = hn::Add(on.s_across, Set(on.s[b]));
    const V partial = hn::NegMulAdd(s, s, opacity);
    for (int p = 0; p < kParts; ++p) {
      const int at = b * kBlockPixels + p * kLanes;
      const V t = hn::Add(on.t_across[p], Set(on.t[b]));
      const V transmittance = hn::Load(kF, px.transmittance + at);
      const Blended now = Blend(hn::NegMulAdd(t, t, partial), transmittance, limits);
      const V gr = hn::Load(kF, px.r + at), gg = hn::Load(kF, px.g + at);
      const V gb = hn::Load(kF, px.b + at);
      V along = hn::Mul(gr, red);  // (c . g)
      along = hn::MulAdd(gg, green, along);
      along = hn::MulAdd(gb, blue, along);
      if constexpr (kDepth) along = hn::MulAdd(hn::Load(kF, px.z + at), depth, along);
      const V behind = hn::NegMulAdd(now.weight, along, hn::Load(kF, px.behind + at));
      const V v_alpha = hn::NegMulAdd(behind, Reciprocal(hn::Sub(one, now.alpha)), hn::Mul(transmittance, along));
      const M moves = hn::And(now.alive, hn::Le(now.raw, limits.alpha_max));
      const V v = hn::IfThenElseZero(moves, hn::Mul(now.alpha, v_alpha));
      const V vs = hn::Mul(v, s), vt = hn::Mul(v, t);
      sums.v = hn::Add(sums.v, v);
      sums.vs = hn::Add(sums.vs, vs);
      sums.vt = hn::Add(sums.vt, vt);
      sums.vss = hn::MulAdd(vs, s, sums.vss);
      sums.vst = hn::MulAdd(vs, t, sums.vst);
      sums.vtt = hn::MulAdd(vt, t, sums.vtt);
      sums.r = hn::MulAdd(now.weight, gr, sums.r);
      sums.g = hn::MulAdd(now.weight, gg, sums.g);
      sums.b = hn::MulAdd(now.weight, gb, sums.b);
      if constexpr (kDepth) sums.z = hn::MulAdd(now.weight, hn::Load(kF, px.z + at), sums.z);
      hn::Store(now.after, kF, px.transmittance + at);
      hn::Store(behind, kF, px.behind + at);
    }
  }
}

HWY_INLINE void StoreSums(const PixelSums& s, float* out) {
  StoreSums4(s.v, s.vs, s.vt, s.vss, out);
  StoreSums4(s.vst, s.vtt, s.z, hn::Zero(kF), out + 4);
  StoreSums4(s.r, s.g, s.b, hn::Zero(kF), out + 8);
}

template <bool kDepth>
void BlendTileBackwardOnce(const BlendInput& in, uint32_t tile, const uint16_t* visited, const PictureGradient& grad, float* sums,
                           float v_background[3]) {
  TileFrame frame;
  TileGradient px;
  StartTile(in, tile, frame, px.transmittance);
  PrefetchTile(in, frame, grad);
  const bool any = ReadTile(in, frame, grad, px, v_background);
  const BlendLimits limits = MakeLimits(in);
  const BlockPattern pattern = MakePattern();
  const V zero = hn::Zero(kF);
  SplatOnTile on;
  const uint32_t end = in.starts[tile + 1];
  for (uint32_t i = in.starts[tile]; i < end; ++i) {
    if (i + kAhead < end) {
      __builtin_prefetch(in.splats + in.items[i + kAhead].splat);
      __builtin_prefetch(sums + static_cast<size_t>(in.items[i + kAhead].entry) * kSums, 1);
    }
    float* const to = sums + static_cast<size_t>(in.items[i].entry) * kSums;
    const uint32_t bits = any ? visited[i] : 0;
    if (bits == 0) {
      std::fill_n(to, kSums, 0.0f);
      continue;
    }
    const Splat& g = in.splats[in.items[i].splat];
    PixelSums s{zero, zero, zero, zero, zero, zero, zero, zero, zero, zero};
    PlaceOnTile(g, frame, pattern, on);
    BackwardSplat<kDepth>(g, on, limits, bits, px, s);
    StoreSums(s, to);
  }
}

void BlendTileBackwardTarget(const BlendInput& in, uint32_t tile, const uint16_t* visited, const PictureGradient& grad,
                             float* sums, float v_background[3]) {
  const auto run = grad.v_depth != nullptr ? BlendTileBackwardOnce<true> : BlendTileBackwardOnce<false>;
  run(in, tile, visited, grad, sums, v_background);
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(BlendTileBackwardTarget);
void BlendTileBackward(const BlendInput& in, uint32_t tile, const uint16_t* visited, const PictureGradient& grad, float* sums,
                       float v_background[3]) {
  HWY_DYNAMIC_DISPATCH(BlendTileBackwardTarget)(in, tile, visited, grad, sums, v_background);
}
}  // namespace recon
#endif
