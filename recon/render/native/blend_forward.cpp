#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "blend_forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <cmath>

#include "blend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

constexpr uint32_t kBatch = 32;  // items whose blocks are found ahead of their blending

struct TilePixels {
  HWY_ALIGN float transmittance[kPixels];
  HWY_ALIGN float r[kPixels];
  HWY_ALIGN float g[kPixels];
  HWY_ALIGN float b[kPixels];
  HWY_ALIGN float z[kPixels];  // sum of weight * depth
};

HWY_INLINE void Accumulate(V weight, V value, float* sum) {
  hn::Store(hn::MulAdd(weight, value, hn::Load(kF, sum)), kF, sum);
}

// Bit b set: block b holds a pixel centre where alpha may reach alpha_min.
HWY_INLINE uint32_t TouchedBlocks(const Splat& g, const TileFrame& frame, float log2_inverse_alpha_min) {
  uint32_t bits = 0;
  for (int b = 0; b < kBlocks; b += kLanes) {
    const V x = hn::Sub(hn::Load(kF, frame.block_x + b), Set(g.x)), y = hn::Sub(hn::Load(kF, frame.block_y + b), Set(g.y));
    bits |= MaskBits(Touched(g, log2_inverse_alpha_min, x, y, Set(kSide - 1.0f))) << b;
  }
  return bits;
}

// TouchedBlocks of items first .. first + count - 1, and a prefetch of those after them.
HWY_INLINE void FindTouched(const BlendInput& in, const TileFrame& frame, uint32_t first, uint32_t count, uint32_t end,
                            float log2_inverse_alpha_min, uint32_t* touched) {
  for (uint32_t i = 0; i < count; ++i) {
    if (first + i + kAhead < end) __builtin_prefetch(in.splats + in.items[first + i + kAhead].splat);
    touched[i] = TouchedBlocks(in.splats[in.items[first + i].splat], frame, log2_inverse_alpha_min);
  }
}

// One splat over the blocks `bits`.
HWY_INLINE void BlendSplat(const Splat& g, const SplatOnTile& on, const BlendLimits& limits, uint32_t bits, uint32_t& alive,
                           TilePixels& px) {
  const V opacity = Set(g.log2_opacity), red = Set(g.r), green = Set(g.g), blue = Set(g.b), depth = Set(g.z);
  while (bits != 0) {
    const int b = std::countr_zero(bits);
    bits &= bits - 1;
    const V s = hn::Add(on.s_across, Set(on.s[b]));
    const V partial = hn::NegMulAdd(s, s, opacity);
    M any = hn::Ne(s, s);
    for (int p = 0; p < kParts; ++p) {
      const int at = b * kBlockPixels + p * kLanes;
      const V t = hn::Add(on.t_across[p], Set(on.t[b]));
      const Blended one = Blend(hn::NegMulAdd(t, t, partial), hn::Load(kF, px.transmittance + at), limits);
      hn::Store(one.after, kF, px.transmittance + at);
      Accumulate(one.weight, red, px.r + at);
      Accumulate(one.weight, green, px.g + at);
      Accumulate(one.weight, blue, px.b + at);
      Accumulate(one.weight, depth, px.z + at);
      any = p == 0 ? one.alive : hn::Or(any, one.alive);
    }
    if (HWY_UNLIKELY(hn::AllFalse(kF, any))) alive &= ~(1u << b);
  }
}

// colour += T background; alpha = 1 - T; depth = sum(w z) / alpha.
HWY_INLINE void WritePixel(const BlendInput& in, const TilePixels& px, int at, size_t to, const Picture& out) {
  const float t = std::fabs(px.transmittance[at]);
  out.color[3 * to + 0] = px.r[at] + t * in.background[0];
  out.color[3 * to + 1] = px.g[at] + t * in.background[1];
  out.color[3 * to + 2] = px.b[at] + t * in.background[2];
  out.alpha[to] = 1.0f - t;
  if (out.depth != nullptr) out.depth[to] = t < 1.0f ? px.z[at] / (1.0f - t) : 0.0f;
}

// The same for four pixels side by side.
HWY_INLINE void WriteFour(const BlendInput& in, const TilePixels& px, int at, size_t to, const Picture& out) {
  const hn::FixedTag<float, 4> d;
  const auto t = hn::Abs(hn::Load(d, px.transmittance + at));
  const auto with_background = [&](const float* sum, int c)
                                   HWY_ATTR { return hn::Add(hn::Load(d, sum + at), hn::Mul(t, hn::Set(d, in.background[c]))); };
  hn::StoreInterleaved3(with_background(px.r, 0), with_background(px.g, 1), with_background(px.b, 2), d, out.color + 3 * to);
  const auto alpha = hn::Sub(hn::Set(d, 1.0f), t);
  hn::StoreU(alpha, d, out.alpha + to);
  if (out.depth == nullptr) return;
  const auto depth = hn::Div(hn::Load(d, px.z + at), alpha);
  hn::StoreU(hn::IfThenElseZero(hn::Gt(alpha, hn::Zero(d)), depth), d, out.depth + to);
}

void WriteTile(const BlendInput& in, const TileFrame& frame, const TilePixels& px, const Picture& out) {
  for (int r = 0; r < frame.rows; ++r) {
    const size_t first = static_cast<size_t>(frame.y0 + r) * static_cast<size_t>(in.width) + static_cast<size_t>(frame.x0);
    int c = 0;
    for (; c + kSide <= frame.columns; c += kSide) WriteFour(in, px, PixelAt(r, c), first + static_cast<size_t>(c), out);
    for (; c < frame.columns; ++c) WritePixel(in, px, PixelAt(r, c), first + static_cast<size_t>(c), out);
  }
}

void BlendTileTarget(const BlendInput& in, uint32_t tile, const Picture& out, uint16_t* visited) {
  TileFrame frame;
  TilePixels px;
  StartTile(in, tile, frame, px.transmittance);
  for (float* plane : {px.r, px.g, px.b, px.z}) {
    for (int i = 0; i < kPixels; i += kLanes) hn::Store(hn::Zero(kF), kF, plane + i);
  }
  const BlendLimits limits = MakeLimits(in);
  const BlockPattern pattern = MakePattern();
  const float log2_inverse = -std::log2(in.alpha_min);
  SplatOnTile on;
  uint32_t touched[kBatch];
  const uint32_t end = in.starts[tile + 1];
  uint32_t first = in.starts[tile];
  for (; first < end && frame.alive != 0; first += kBatch) {
    const uint32_t count = HWY_MIN(kBatch, end - first);
    FindTouched(in, frame, first, count, end, log2_inverse, touched);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t bits = touched[i] & frame.alive;
      if (visited != nullptr) visited[first + i] = static_cast<uint16_t>(bits);
      if (bits == 0) continue;
      const Splat& g = in.splats[in.items[first + i].splat];
      PlaceOnTile(g, frame, pattern, on);
      BlendSplat(g, on, limits, bits, frame.alive, px);
    }
  }
  for (; visited != nullptr && first < end; ++first) visited[first] = 0;
  WriteTile(in, frame, px, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(BlendTileTarget);
void BlendTile(const BlendInput& in, uint32_t tile, const Picture& out, uint16_t* visited) {
  HWY_DYNAMIC_DISPATCH(BlendTileTarget)(in, tile, out, visited);
}
}  // namespace recon
#endif
