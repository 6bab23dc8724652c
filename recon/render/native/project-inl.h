// The geometry of projection, kLanes Gaussians at a time: shared by the forward and the backward pass.
#if defined(RECON_PROJECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RECON_PROJECT_INL_H_
#undef RECON_PROJECT_INL_H_
#else
#define RECON_PROJECT_INL_H_
#endif

#include "project.h"
#include "rows-inl.h"
#include "sh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

constexpr float kMinQuat2 = 1e-24f;      // a shorter quaternion (squared) has no direction
constexpr float kCompensationMin2 = 0.005f * 0.005f;
constexpr int kMaxBasis = 16;

HWY_INLINE V Dot(Vec3 a, Vec3 b) { return hn::MulAdd(a.x, b.x, hn::MulAdd(a.y, b.y, hn::Mul(a.z, b.z))); }

// matrix [3,3] times v, and its transpose times v.
HWY_INLINE Vec3 Rotate(const float* m, Vec3 v) {
  return {Dot({Set(m[0]), Set(m[1]), Set(m[2])}, v), Dot({Set(m[3]), Set(m[4]), Set(m[5])}, v),
          Dot({Set(m[6]), Set(m[7]), Set(m[8])}, v)};
}
HWY_INLINE Vec3 RotateBack(const float* m, Vec3 v) {
  return {Dot({Set(m[0]), Set(m[3]), Set(m[6])}, v), Dot({Set(m[1]), Set(m[4]), Set(m[7])}, v),
          Dot({Set(m[2]), Set(m[5]), Set(m[8])}, v)};
}

HWY_INLINE M Bounded(V x) { return hn::Lt(hn::Abs(x), Set(3.0e38f)); }

struct Quat {
  V w, x, y, z;
};

// Rows of the rotation matrix of a unit quaternion.
struct Rows3 {
  Vec3 row[3];
};

HWY_INLINE Rows3 QuatToRows(const Quat& q) {
  const V one = Set(1.0f);
  const V x2 = hn::Add(q.x, q.x), y2 = hn::Add(q.y, q.y), z2 = hn::Add(q.z, q.z);
  const V xx = hn::Mul(q.x, x2), yy = hn::Mul(q.y, y2), zz = hn::Mul(q.z, z2);
  const V xy = hn::Mul(q.x, y2), xz = hn::Mul(q.x, z2), yz = hn::Mul(q.y, z2);
  const V wx = hn::Mul(q.w, x2), wy = hn::Mul(q.w, y2), wz = hn::Mul(q.w, z2);
  return {{{hn::Sub(one, hn::Add(yy, zz)), hn::Sub(xy, wz), hn::Add(xz, wy)},
           {hn::Add(xy, wz), hn::Sub(one, hn::Add(xx, zz)), hn::Sub(yz, wx)},
           {hn::Sub(xz, wy), hn::Add(yz, wx), hn::Sub(one, hn::Add(xx, yy))}}};
}

// Everything both passes need of one Gaussian. Sigma2 = m1, m2 dotted among themselves, with m = J W R S (2x3).
struct Projected {
  Vec3 world, cam, scale;
  Quat quat;      // unit
  V quat_length;  // of the raw one
  V opacity;
  V inv_z;
  V ratio_x, ratio_y;       // x/z, y/z, clamped
  M free_x, free_y;         // not clamped
  V j00, j02, j11, j12;     // the Jacobian of the pixel position
  Vec3 q_rows[3];           // W R
  Vec3 u1, u2;              // J W R
  Vec3 m1, m2;              // J W R S
  V a0, b, c0;              // Sigma2
  V a, c;                   // diagonal of Sigma2 + eps2d I
  V det0, det;              // determinants of the two
  V compensation;           // factor on the opacity
  M compensation_moves;     // above its floor
  M valid;                  // everything but the picture's bounds and the opacity
};

HWY_INLINE Projected Project(const Gaussians& in, const Camera& camera, const Options& options, const Rows& rows) {
  Projected p;
  p.world = Load3(in.means, rows);
  p.cam = Rotate(camera.rotation, p.world);
  p.cam = {hn::Add(p.cam.x, Set(camera.translation[0])), hn::Add(p.cam.y, Set(camera.translation[1])),
           hn::Add(p.cam.z, Set(camera.translation[2]))};
  p.scale = Load3(in.scales, rows);
  p.opacity = Load1(in.opacities, rows);
  V wxyz[4];
  LoadColumns4(in.quats, rows.row, 4, wxyz);
  const Quat raw{wxyz[0], wxyz[1], wxyz[2], wxyz[3]};
  const V length2 = hn::MulAdd(raw.w, raw.w, Dot({raw.x, raw.y, raw.z}, {raw.x, raw.y, raw.z}));
  p.quat_length = hn::Sqrt(length2);
  const V inv_length = hn::Div(Set(1.0f), p.quat_length);
  p.quat = {hn::Mul(raw.w, inv_length), hn::Mul(raw.x, inv_length), hn::Mul(raw.y, inv_length),
            hn::Mul(raw.z, inv_length)};
  p.valid = hn::And(hn::Gt(p.cam.z, Set(options.near)), hn::Lt(p.cam.z, Set(options.far)));
  p.valid = hn::And(p.valid, hn::And(hn::Gt(length2, Set(kMinQuat2)), Bounded(length2)));

  p.inv_z = hn::Div(Set(1.0f), p.cam.z);
  const V tan_x = hn::Mul(p.cam.x, p.inv_z), tan_y = hn::Mul(p.cam.y, p.inv_z);
  p.ratio_x = hn::Min(hn::Max(tan_x, Set(camera.ratio_min_x)), Set(camera.ratio_max_x));
  p.ratio_y = hn::Min(hn::Max(tan_y, Set(camera.ratio_min_y)), Set(camera.ratio_max_y));
  p.free_x = hn::Eq(tan_x, p.ratio_x);
  p.free_y = hn::Eq(tan_y, p.ratio_y);
  p.j00 = hn::Mul(Set(camera.fx), p.inv_z);
  p.j11 = hn::Mul(Set(camera.fy), p.inv_z);
  p.j02 = hn::Neg(hn::Mul(p.j00, p.ratio_x));
  p.j12 = hn::Neg(hn::Mul(p.j11, p.ratio_y));

  const Rows3 r = QuatToRows(p.quat);
  for (int i = 0; i < 3; ++i) {
    const V w0 = Set(camera.rotation[3 * i]), w1 = Set(camera.rotation[3 * i + 1]), w2 = Set(camera.rotation[3 * i + 2]);
    p.q_rows[i] = {hn::MulAdd(w0, r.row[0].x, hn::MulAdd(w1, r.row[1].x, hn::Mul(w2, r.row[2].x))),
                   hn::MulAdd(w0, r.row[0].y, hn::MulAdd(w1, r.row[1].y, hn::Mul(w2, r.row[2].y))),
                   hn::MulAdd(w0, r.row[0].z, hn::MulAdd(w1, r.row[1].z, hn::Mul(w2, r.row[2].z)))};
  }
  const Vec3 &q0 = p.q_rows[0], &q1 = p.q_rows[1], &q2 = p.q_rows[2];
  p.u1 = {hn::MulAdd(p.j00, q0.x, hn::Mul(p.j02, q2.x)), hn::MulAdd(p.j00, q0.y, hn::Mul(p.j02, q2.y)),
          hn::MulAdd(p.j00, q0.z, hn::Mul(p.j02, q2.z))};
  p.u2 = {hn::MulAdd(p.j11, q1.x, hn::Mul(p.j12, q2.x)), hn::MulAdd(p.j11, q1.y, hn::Mul(p.j12, q2.y)),
          hn::MulAdd(p.j11, q1.z, hn::Mul(p.j12, q2.z))};
  p.m1 = {hn::Mul(p.u1.x, p.scale.x), hn::Mul(p.u1.y, p.scale.y), hn::Mul(p.u1.z, p.scale.z)};
  p.m2 = {hn::Mul(p.u2.x, p.scale.x), hn::Mul(p.u2.y, p.scale.y), hn::Mul(p.u2.z, p.scale.z)};

  // det(m m') = |m1 x m2|^2: no cancellation, however thin the ellipse.
  p.a0 = Dot(p.m1, p.m1);
  p.b = Dot(p.m1, p.m2);
  p.c0 = Dot(p.m2, p.m2);
  const Vec3 cross{hn::MulSub(p.m1.y, p.m2.z, hn::Mul(p.m1.z, p.m2.y)), hn::MulSub(p.m1.z, p.m2.x, hn::Mul(p.m1.x, p.m2.z)),
                   hn::MulSub(p.m1.x, p.m2.y, hn::Mul(p.m1.y, p.m2.x))};
  const V eps = Set(options.eps2d);
  p.det0 = Dot(cross, cross);
  p.det = hn::MulAdd(eps, hn::Add(hn::Add(p.a0, p.c0), eps), p.det0);
  p.a = hn::Add(p.a0, eps);
  p.c = hn::Add(p.c0, eps);
  p.valid = hn::And(p.valid, hn::And(hn::Gt(p.det, Set(1e-30f)), Bounded(p.det)));
  p.compensation = Set(1.0f);
  p.compensation_moves = hn::Lt(p.det, hn::Zero(kF));
  if (options.antialiased) {
    const V ratio = hn::Div(p.det0, p.det);
    p.compensation_moves = hn::Gt(ratio, Set(kCompensationMin2));
    p.compensation = hn::Sqrt(hn::Max(ratio, Set(kCompensationMin2)));
  }
  return p;
}

// Unit vector from the camera centre to the Gaussian, and one over the distance.
struct Direction {
  Vec3 unit;
  V inv_distance;
};

HWY_INLINE Direction ViewDirection(const Camera& camera, Vec3 world) {
  const Vec3 ray{hn::Sub(world.x, Set(camera.centre[0])), hn::Sub(world.y, Set(camera.centre[1])),
                 hn::Sub(world.z, Set(camera.centre[2]))};
  const V inv = hn::Div(Set(1.0f), hn::Sqrt(hn::Max(Dot(ray, ray), Set(1e-30f))));
  return {{hn::Mul(ray.x, inv), hn::Mul(ray.y, inv), hn::Mul(ray.z, inv)}, inv};
}

HWY_INLINE int BasisSize(int degree) { return (degree + 1) * (degree + 1); }

// The first `size` SH coefficients of the rows: 1, 4, 9 or 16 of them.
HWY_INLINE void LoadSh(const Gaussians& in, const Rows& rows, int size, Vec3* out) {
  const size_t stride = 3 * static_cast<size_t>(in.sh_stride);
  int k = 0;
  for (; k + 4 <= size; k += 4) {
    V c[12];
    for (int i = 0; i < 12; i += 4) LoadColumns4(in.colors + 3 * k + i, rows.row, stride, c + i);
    for (int i = 0; i < 4; ++i) out[k + i] = {c[3 * i], c[3 * i + 1], c[3 * i + 2]};
  }
  if (k == size) return;
  const VI start = hn::Mul(RowIndex(rows), hn::Set(kI, 3 * in.sh_stride));
  const float* const last = in.colors + 3 * k;
  out[k] = {hn::GatherIndex(kF, last, start), hn::GatherIndex(kF, last + 1, start), hn::GatherIndex(kF, last + 2, start)};
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#endif  // RECON_PROJECT_INL_H_
