// Real spherical harmonics up to degree 3 and their derivatives, order and signs of the INRIA 3DGS files.
#if defined(RECON_SH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_SH_INL_H_
#undef RECON_SH_INL_H_
#else
#define RECON_SH_INL_H_
#endif

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

constexpr float kY0 = 0.28209479177387814f;
constexpr float kY1 = 0.48860251190291987f;
constexpr float kY2a = 1.0925484305920792f, kY2b = 0.31539156525252005f, kY2c = 0.54627421529603959f;
constexpr float kY3a = 0.59004358992664352f, kY3b = 2.8906114426405538f, kY3c = 0.45704579946446572f;
constexpr float kY3d = 0.37317633259011546f, kY3e = 1.4453057213202769f;

HWY_INLINE V Scale(float a, V x) { return hn::Mul(Set(a), x); }

// basis[(degree+1)^2] at the unit vector (x, y, z).
HWY_INLINE void ShBasis(int degree, V x, V y, V z, V* basis) {
  basis[0] = Set(kY0);
  if (degree < 1) return;
  basis[1] = Scale(-kY1, y);
  basis[2] = Scale(kY1, z);
  basis[3] = Scale(-kY1, x);
  if (degree < 2) return;
  const V xx = hn::Mul(x, x), yy = hn::Mul(y, y), zz = hn::Mul(z, z);
  const V xy = hn::Mul(x, y), yz = hn::Mul(y, z), xz = hn::Mul(x, z);
  basis[4] = Scale(kY2a, xy);
  basis[5] = Scale(-kY2a, yz);
  basis[6] = Scale(kY2b, hn::Sub(hn::Add(zz, zz), hn::Add(xx, yy)));
  basis[7] = Scale(-kY2a, xz);
  basis[8] = Scale(kY2c, hn::Sub(xx, yy));
  if (degree < 3) return;
  const V five = hn::Sub(Scale(4.0f, zz), hn::Add(xx, yy));
  basis[9] = hn::Mul(Scale(-kY3a, y), hn::Sub(Scale(3.0f, xx), yy));
  basis[10] = hn::Mul(Scale(kY3b, xy), z);
  basis[11] = hn::Mul(Scale(-kY3c, y), five);
  basis[12] = hn::Mul(Scale(kY3d, z), hn::Sub(hn::Add(zz, zz), Scale(3.0f, hn::Add(xx, yy))));
  basis[13] = hn::Mul(Scale(-kY3c, x), five);
  basis[14] = hn::Mul(Scale(kY3e, z), hn::Sub(xx, yy));
  basis[15] = hn::Mul(Scale(-kY3a, x), hn::Sub(xx, Scale(3.0f, yy)));
}

// sum_k weight[k] d basis[k] / d(x, y, z), each polynomial differentiated as it is written in ShBasis.
HWY_INLINE Vec3 ShGradient(int degree, V x, V y, V z, const V* w) {
  Vec3 g{hn::Zero(kF), hn::Zero(kF), hn::Zero(kF)};
  if (degree < 1) return g;
  g = {Scale(-kY1, w[3]), Scale(-kY1, w[1]), Scale(kY1, w[2])};
  if (degree < 2) return g;
  const V a4 = Scale(kY2a, w[4]), a5 = Scale(-kY2a, w[5]), a6 = Scale(2.0f * kY2b, w[6]);
  const V a7 = Scale(-kY2a, w[7]), a8 = Scale(2.0f * kY2c, w[8]);
  g.x = hn::Add(g.x, hn::MulAdd(a4, y, hn::MulAdd(a7, z, hn::Mul(hn::Sub(a8, a6), x))));
  g.y = hn::Add(g.y, hn::MulAdd(a4, x, hn::NegMulAdd(hn::Add(a8, a6), y, hn::Mul(a5, z))));
  g.z = hn::Add(g.z, hn::MulAdd(a5, y, hn::MulAdd(a7, x, hn::Mul(hn::Add(a6, a6), z))));
  if (degree < 3) return g;
  const V xx = hn::Mul(x, x), yy = hn::Mul(y, y), zz = hn::Mul(z, z);
  const V xy = hn::Mul(x, y), yz = hn::Mul(y, z), xz = hn::Mul(x, z);
  const V minus = hn::Sub(xx, yy), plus = hn::Add(xx, yy);
  const V a9 = Scale(-3.0f * kY3a, w[9]), a10 = Scale(kY3b, w[10]), a11 = Scale(-kY3c, w[11]);
  const V a12 = Scale(3.0f * kY3d, w[12]), a13 = Scale(-kY3c, w[13]), a14 = Scale(kY3e, w[14]);
  const V a15 = Scale(-3.0f * kY3a, w[15]);
  const V two_xy = hn::Add(xy, xy), two_xz = hn::Add(xz, xz), two_yz = hn::Add(yz, yz);
  V gx = hn::Mul(a9, two_xy);
  gx = hn::MulAdd(a10, yz, gx);
  gx = hn::NegMulAdd(a11, two_xy, gx);
  gx = hn::NegMulAdd(a12, two_xz, gx);
  gx = hn::MulAdd(a13, hn::Sub(Scale(4.0f, zz), hn::MulAdd(Set(3.0f), xx, yy)), gx);
  gx = hn::MulAdd(a14, two_xz, gx);
  g.x = hn::Add(g.x, hn::MulAdd(a15, minus, gx));
  V gy = hn::Mul(a9, minus);
  gy = hn::MulAdd(a10, xz, gy);
  gy = hn::MulAdd(a11, hn::Sub(Scale(4.0f, zz), hn::MulAdd(Set(3.0f), yy, xx)), gy);
  gy = hn::NegMulAdd(a12, two_yz, gy);
  gy = hn::NegMulAdd(a13, two_xy, gy);
  gy = hn::NegMulAdd(a14, two_yz, gy);
  g.y = hn::Add(g.y, hn::NegMulAdd(a15, two_xy, gy));
  V gz = hn::Mul(a10, xy);
  gz = hn::MulAdd(a11, Scale(4.0f, two_yz), gz);
  gz = hn::MulAdd(a12, hn::Sub(hn::Add(zz, zz), plus), gz);
  gz = hn::MulAdd(a13, Scale(4.0f, two_xz), gz);
  g.z = hn::Add(g.z, hn::MulAdd(a14, minus, gz));
  return g;
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_SH_INL_H_
