// Vector helpers, compiled once per target.
#if defined(RECON_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_SIMD_INL_H_
#undef RECON_SIMD_INL_H_
#else
#define RECON_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "splat.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen floats at most.
using Floats = hn::CappedTag<float, kTile>;
using Ints = hn::RebindToSigned<Floats>;
using V = hn::Vec<Floats>;
using VI = hn::Vec<Ints>;
using M = hn::Mask<Floats>;
constexpr Floats kF;
constexpr Ints kI;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kF));
static_assert(kTile % kLanes == 0);

HWY_INLINE V Set(float x) { return hn::Set(kF, x); }

struct Vec3 {
  V x, y, z;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// 2^x for x < 127, relative error below 3e-6. 2^x = 2^i 2^f, i = floor(x): AVX-512 has an operation for f and one for p 2^i, the
// polynomial is the minimax fit of 2^f on [0, 1].
HWY_INLINE V Exp2(V x) {
  constexpr int kFloor = 0x09;  // of _mm512_reduce_ps: x - floor(x)
  const V f{_mm512_reduce_ps(x.raw, kFloor)};
  V p = hn::MulAdd(f, Set(0.013534167781472206f), Set(0.052011460065841675f));
  p = hn::MulAdd(p, f, Set(0.2414427548646927f));
  p = hn::MulAdd(p, f, Set(0.6930038332939148f));
  p = hn::MulAdd(p, f, Set(1.0000026226043701f));
  return V{_mm512_scalef_ps(p.raw, x.raw)};
}
#else
// The same; 2^-126 for anything smaller. Here i is the nearest: adding 1.5 * 2^23 leaves it in the low bits of the mantissa, the
// polynomial is the minimax fit of 2^f on [-0.5, 0.5].
HWY_INLINE V Exp2(V x) {
  const V magic = Set(12582912.0f);
  x = hn::Max(x, Set(-126.0f));
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::MulAdd(f, Set(0.00957010147752921f), Set(0.05591786065266827f));
  p = hn::MulAdd(p, f, Set(0.24024744841756854f));
  p = hn::MulAdd(p, f, Set(0.6931218146984817f));
  p = hn::MulAdd(p, f, Set(0.999999261440536f));
  const VI exponent = hn::ShiftLeft<23>(hn::BitCast(kI, shifted));
  return hn::BitCast(kF, hn::Add(hn::BitCast(kI, p), exponent));
}
#endif

// 1/x to nearly full precision (one Newton step); x normal.
HWY_INLINE V Reciprocal(V x) {
  const V r = hn::ApproximateReciprocal(x);
  return hn::Mul(r, hn::NegMulAdd(r, x, Set(2.0f)));
}

template <class D, class VD>
HWY_INLINE void StoreBlockSum(D d, VD v, float* out) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    StoreBlockSum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  } else {
    hn::StoreU(v, d, out);
  }
}

// out[0..3] = the sums over the lanes of a, b, c, e.
HWY_INLINE void StoreSums4(V a, V b, V c, V e, float* out) {
  const hn::Repartition<uint64_t, Floats> d64;
  const auto ab = hn::BitCast(d64, hn::Add(hn::InterleaveLower(kF, a, b), hn::InterleaveUpper(kF, a, b)));
  const auto ce = hn::BitCast(d64, hn::Add(hn::InterleaveLower(kF, c, e), hn::InterleaveUpper(kF, c, e)));
  const V lower = hn::BitCast(kF, hn::InterleaveLower(d64, ab, ce));
  const V upper = hn::BitCast(kF, hn::InterleaveUpper(d64, ab, ce));
  StoreBlockSum(kF, hn::Add(lower, upper), out);
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_SIMD_INL_H_
