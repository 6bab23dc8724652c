// Which rectangles of pixels an ellipse touches, kLanes rectangles at a time: tiles when binning, blocks when blending.
#if defined(RECON_TOUCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_TOUCH_INL_H_
#undef RECON_TOUCH_INL_H_
#else
#define RECON_TOUCH_INL_H_
#endif

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

HWY_INLINE uint32_t MaskBits(M mask) {
  uint8_t bytes[8] = {0};
  hn::StoreMaskBits(kF, mask, bytes);
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
}

HWY_INLINE V Clamp(V x, V low, V high) { return hn::Max(low, hn::Min(high, x)); }

// Within which of the rectangles [x, x + extent] x [y, y + extent], relative to the mean, alpha may reach alpha_min.
// |w|^2 is convex, so its least value over a rectangle lies at the mean or on an edge that faces it: on each of the two lines
// through the rectangle's nearest x and nearest y take the best point (dy = slope_y dx, dx = slope_x dy), clamped.
HWY_INLINE M Touched(const Splat& g, float log2_inverse_alpha_min, V x, V y, V extent) {
  constexpr float kSlack = 0.01f;  // so that rounding loses no pixel above alpha_min
  const V l11 = Set(g.l11), l21 = Set(g.l21), l22 = Set(g.l22), zero = hn::Zero(kF);
  const V x1 = hn::Add(x, extent), y1 = hn::Add(y, extent);
  const V near_x = Clamp(zero, x, x1), near_y = Clamp(zero, y, y1);
  const V best_y = Clamp(hn::Mul(Set(g.slope_y), near_x), y, y1), best_x = Clamp(hn::Mul(Set(g.slope_x), near_y), x, x1);
  const V s1 = hn::Mul(l11, near_x), t1 = hn::MulAdd(l21, near_x, hn::Mul(l22, best_y));
  const V s2 = hn::Mul(l11, best_x), t2 = hn::MulAdd(l21, best_x, hn::Mul(l22, near_y));
  const V least = hn::Min(hn::MulAdd(s1, s1, hn::Mul(t1, t1)), hn::MulAdd(s2, s2, hn::Mul(t2, t2)));
  return hn::Le(least, Set(g.log2_opacity + log2_inverse_alpha_min + kSlack));
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_TOUCH_INL_H_
