#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "project_backward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "project-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// The splats of a vector: what the backward pass needs of them, and their sums.
struct BackwardLanes {
  Rows rows;
  V l11, l21, l22, rgb[3];
  V sums[kSums];
};

struct PoseSums {
  V rotation[9], translation[3];
};

// Adds a splat's sums over its tiles, in the order in which they were listed.
HWY_INLINE void AddEntries(const float* from, uint32_t count, float* out) {
  const hn::FixedTag<float, 4> d;
  auto a = hn::Zero(d), b = a, c = a;
  for (const float* const end = from + size_t{count} * kSums; from != end; from += kSums) {
    a = hn::Add(a, hn::LoadU(d, from));
    b = hn::Add(b, hn::LoadU(d, from + 4));
    c = hn::Add(c, hn::LoadU(d, from + 8));
  }
  hn::Store(a, d, out);
  hn::Store(b, d, out + 4);
  hn::Store(c, d, out + 8);
}

// Splats first .. first + filled - 1 of the block. Lanes beyond them repeat the last one, with sums of zero.
HWY_INLINE void LoadLanes(const BlockSums& block, uint32_t first, uint32_t filled, BackwardLanes& lanes) {
  static_assert(kSums % 4 == 0 && offsetof(Splat, l11) == 2 * sizeof(float) && offsetof(Splat, r) == 6 * sizeof(float));
  HWY_ALIGN int32_t place[kTile];
  HWY_ALIGN float sums[kTile * kSums];
  for (uint32_t k = 0; k < static_cast<uint32_t>(kLanes); ++k) {
    const uint32_t i = first + HWY_MIN(k, filled - 1);
    place[k] = static_cast<int32_t>(i);
    lanes.rows.row[k] = static_cast<int32_t>(block.splats[i].id);
    const EntryRange entries = block.entries[i];
    AddEntries(block.sums + size_t{entries.first} * kSums, k < filled ? entries.count : 0, sums + k * kSums);
  }
  lanes.rows.filled = filled;
  lanes.rows.together = filled == static_cast<uint32_t>(kLanes) && lanes.rows.row[kLanes - 1] - lanes.rows.row[0] == kLanes - 1;
  const float* const splats = reinterpret_cast<const float*>(block.splats);
  V field[12];
  for (int i = 0; i < 12; i += 4) LoadColumns4(splats + i, place, sizeof(Splat) / sizeof(float), field + i);
  lanes.l11 = field[2];
  lanes.l21 = field[3];
  lanes.l22 = field[4];
  for (int c = 0; c < 3; ++c) lanes.rgb[c] = field[6 + c];
  hn::Store(hn::Iota(kI, 0), kI, place);
  for (int i = 0; i < kSums; i += 4) LoadColumns4(sums + i, place, kSums, lanes.sums + i);
}

// Gradient of the 2D covariance (symmetric: g00, g01 = g10, g11) and mean.
struct Flat {
  V g00, g01, g11, mean_x, mean_y;
};

// With w = L'd, k = kHalfLog2e and power = -d' C d / 2:  d power/d mean = C d = L w / k,  d power/d Sigma = L w w' L' / (2 k^2).
HWY_INLINE Flat UnwhitenSums(const BackwardLanes& lanes) {
  const V l11 = lanes.l11, l21 = lanes.l21, l22 = lanes.l22;
  const V vs = lanes.sums[kVs], vt = lanes.sums[kVt];
  const V vss = lanes.sums[kVss], vst = lanes.sums[kVst], vtt = lanes.sums[kVtt];
  const V k1 = Set(1.0f / kHalfLog2e), k2 = Set(0.5f / (kHalfLog2e * kHalfLog2e));
  const V row0s = hn::MulAdd(l11, vss, hn::Mul(l21, vst));  // first row of L (w w')
  const V row0t = hn::MulAdd(l11, vst, hn::Mul(l21, vtt));
  Flat flat;
  flat.g00 = hn::Mul(k2, hn::MulAdd(row0s, l11, hn::Mul(row0t, l21)));
  flat.g01 = hn::Mul(k2, hn::Mul(row0t, l22));
  flat.g11 = hn::Mul(k2, hn::Mul(hn::Mul(l22, vtt), l22));
  flat.mean_x = hn::Mul(k1, hn::MulAdd(l11, vs, hn::Mul(l21, vt)));
  flat.mean_y = hn::Mul(k1, hn::Mul(l22, vt));
  return flat;
}

// dL/dopacity; in antialiased mode the compensation passes its share on to the covariance:
//   d comp/d Sigma2 = adj(Sigma2) / (2 comp det) - comp adj(Sigma2 + eps I) / (2 det)
HWY_INLINE V OpacityGradient(const Projected& p, const Options& options, V v_sum, Flat& flat) {
  const V v_opacity = hn::Div(v_sum, p.opacity);  // = dL/d(o comp) * comp
  if (!options.antialiased) return v_opacity;
  const V v_comp = hn::IfThenElseZero(p.compensation_moves, hn::Div(v_sum, p.compensation));
  const V half = hn::Mul(Set(0.5f), hn::Div(v_comp, p.det));
  const V inner = hn::Div(half, p.compensation), outer = hn::Mul(half, p.compensation);
  flat.g00 = hn::Add(flat.g00, hn::MulSub(inner, p.c0, hn::Mul(outer, p.c)));
  flat.g01 = hn::Sub(flat.g01, hn::Mul(hn::Sub(inner, outer), p.b));
  flat.g11 = hn::Add(flat.g11, hn::MulSub(inner, p.a0, hn::Mul(outer, p.a)));
  return v_opacity;
}

HWY_INLINE Vec3 Combine(V a, Vec3 x, V b, Vec3 y) {
  return {hn::MulAdd(a, x.x, hn::Mul(b, y.x)), hn::MulAdd(a, x.y, hn::Mul(b, y.y)), hn::MulAdd(a, x.z, hn::Mul(b, y.z))};
}
HWY_INLINE Vec3 Times(Vec3 a, Vec3 b) { return {hn::Mul(a.x, b.x), hn::Mul(a.y, b.y), hn::Mul(a.z, b.z)}; }
HWY_INLINE Vec3 Times(V a, Vec3 b) { return {hn::Mul(a, b.x), hn::Mul(a, b.y), hn::Mul(a, b.z)}; }
HWY_INLINE Vec3 Plus(Vec3 a, Vec3 b) { return {hn::Add(a.x, b.x), hn::Add(a.y, b.y), hn::Add(a.z, b.z)}; }

// dL/dq of the raw quaternion, from dL/dR (rows): the derivative of QuatToRows, then of q / |q|.
HWY_INLINE Quat QuatGradient(const Projected& p, const Vec3* g) {
  const Quat& q = p.quat;
  const V anti_x = hn::Sub(g[2].y, g[1].z), anti_y = hn::Sub(g[0].z, g[2].x), anti_z = hn::Sub(g[1].x, g[0].y);
  const V sym_xy = hn::Add(g[0].y, g[1].x), sym_xz = hn::Add(g[0].z, g[2].x), sym_yz = hn::Add(g[1].z, g[2].y);
  const V minus2 = Set(-2.0f);
  Quat v;
  v.w = Dot({q.x, q.y, q.z}, {anti_x, anti_y, anti_z});
  v.x = hn::MulAdd(q.w, anti_x, hn::MulAdd(q.y, sym_xy, hn::Mul(q.z, sym_xz)));
  v.x = hn::MulAdd(hn::Mul(minus2, q.x), hn::Add(g[1].y, g[2].z), v.x);
  v.y = hn::MulAdd(q.w, anti_y, hn::MulAdd(q.x, sym_xy, hn::Mul(q.z, sym_yz)));
  v.y = hn::MulAdd(hn::Mul(minus2, q.y), hn::Add(g[0].x, g[2].z), v.y);
  v.z = hn::MulAdd(q.w, anti_z, hn::MulAdd(q.x, sym_xz, hn::Mul(q.y, sym_yz)));
  v.z = hn::MulAdd(hn::Mul(minus2, q.z), hn::Add(g[0].x, g[1].y), v.z);
  const V along = hn::MulAdd(q.w, v.w, Dot({q.x, q.y, q.z}, {v.x, v.y, v.z}));
  const V scale = hn::Div(Set(2.0f), p.quat_length);
  return {hn::Mul(scale, hn::NegMulAdd(along, q.w, v.w)), hn::Mul(scale, hn::NegMulAdd(along, q.x, v.x)),
          hn::Mul(scale, hn::NegMulAdd(along, q.y, v.y)), hn::Mul(scale, hn::NegMulAdd(along, q.z, v.z))};
}

// dL/dx_cam out of the gradients of the Jacobian's entries, the mean and the depth. The third column is -f ratio / z, whose
// ratio moves with x and z only while it is not clamped.
HWY_INLINE Vec3 CameraGradient(const Projected& p, V v_j00, V v_j02, V v_j11, V v_j12, const Flat& flat, V v_depth) {
  const V zero = hn::Zero(kF);
  Vec3 v;
  v.x = hn::Mul(p.j00, hn::Sub(flat.mean_x, hn::IfThenElse(p.free_x, hn::Mul(v_j02, p.inv_z), zero)));
  v.y = hn::Mul(p.j11, hn::Sub(flat.mean_y, hn::IfThenElse(p.free_y, hn::Mul(v_j12, p.inv_z), zero)));
  const V tan_x = hn::Mul(p.cam.x, p.inv_z), tan_y = hn::Mul(p.cam.y, p.inv_z);
  const V times_x = hn::IfThenElse(p.free_x, Set(2.0f), Set(1.0f)), times_y = hn::IfThenElse(p.free_y, Set(2.0f), Set(1.0f));
  V z = hn::MulAdd(hn::Mul(times_x, p.j02), v_j02, hn::Mul(p.j00, v_j00));
  z = hn::MulAdd(hn::Mul(times_y, p.j12), v_j12, hn::MulAdd(p.j11, v_j11, z));
  z = hn::Mul(z, p.inv_z);
  z = hn::MulAdd(hn::Mul(p.j00, tan_x), flat.mean_x, z);
  z = hn::MulAdd(hn::Mul(p.j11, tan_y), flat.mean_y, z);
  v.z = hn::Sub(v_depth, z);
  return v;
}

// Adds dL/dW = g x' (outer product).
HWY_INLINE void AddOuter(V* rotation, Vec3 g, Vec3 x) {
  const V rows[3] = {g.x, g.y, g.z}, columns[3] = {x.x, x.y, x.z};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) rotation[3 * i + j] = hn::MulAdd(rows[i], columns[j], rotation[3 * i + j]);
  }
}

// The share of one colour gradient in dL/d(coefficient): rows of `stride` coefficients, of which the first `size` are used.
HWY_INLINE void StoreSh(const V* basis, int size, const V g[3], const Rows& rows, size_t stride, bool add, float* out) {
  const size_t row = 3 * stride;
  int k = 0;
  if (rows.filled == static_cast<uint32_t>(kLanes) && !add) {
    for (; k + 4 <= size; k += 4) {
      V c[12];
      for (int i = 0; i < 12; ++i) c[i] = hn::Mul(basis[k + i / 3], g[i % 3]);
      for (int i = 0; i < 12; i += 4) StoreColumns4(c + i, out + 3 * k + i, rows.row, row);
    }
  }
  HWY_ALIGN float lanes[3][kTile];
  for (; k < size; ++k) {
    for (int c = 0; c < 3; ++c) hn::Store(hn::Mul(basis[k], g[c]), kF, lanes[c]);
    for (uint32_t n = 0; n < rows.filled; ++n) {
      float* const to = out + static_cast<size_t>(rows.row[n]) * row + 3 * k;
      for (int c = 0; c < 3; ++c) to[c] = add ? to[c] + lanes[c][n] : lanes[c][n];
    }
  }
  const size_t used = 3 * static_cast<size_t>(size);
  for (uint32_t n = 0; !add && used < row && n < rows.filled; ++n) {
    std::fill_n(out + static_cast<size_t>(rows.row[n]) * row + used, row - used, 0.0f);
  }
}

// dL/d(world - centre) through the SH view direction; writes the gradient of the colours or coefficients.
HWY_INLINE Vec3 ColorGradient(const Gaussians& in, const Camera& camera, const Projected& p, const BackwardLanes& lanes, bool add,
                              float* out) {
  const V zero = hn::Zero(kF);
  if (in.sh_degree < 0) {
    const V g[3] = {lanes.sums[kR], lanes.sums[kG], lanes.sums[kB]};
    StoreRows(g, out, lanes.rows, add);
    return {zero, zero, zero};
  }
  V g[3];
  for (int c = 0; c < 3; ++c) g[c] = hn::IfThenElseZero(hn::Gt(lanes.rgb[c], zero), lanes.sums[kR + c]);
  const Direction dir = ViewDirection(camera, p.world);
  V basis[kMaxBasis], weight[kMaxBasis];
  ShBasis(in.sh_degree, dir.unit.x, dir.unit.y, dir.unit.z, basis);
  const int size = BasisSize(in.sh_degree);
  StoreSh(basis, size, g, lanes.rows, static_cast<size_t>(in.sh_stride), add, out);
  if (in.sh_degree == 0) return {zero, zero, zero};
  Vec3 coefficient[kMaxBasis];
  LoadSh(in, lanes.rows, size, coefficient);
  for (int k = 1; k < size; ++k) weight[k] = Dot(coefficient[k], {g[0], g[1], g[2]});
  const Vec3 v = ShGradient(in.sh_degree, dir.unit.x, dir.unit.y, dir.unit.z, weight);
  const V along = Dot(v, dir.unit);
  return {hn::Mul(dir.inv_distance, hn::NegMulAdd(along, dir.unit.x, v.x)),
          hn::Mul(dir.inv_distance, hn::NegMulAdd(along, dir.unit.y, v.y)),
          hn::Mul(dir.inv_distance, hn::NegMulAdd(along, dir.unit.z, v.z))};
}

HWY_INLINE void BackwardOnce(const Gaussians& in, const Camera& camera, const Options& options, const BackwardLanes& lanes,
                             bool add, const GaussianGradient& out, float* mean2d_norm, PoseSums& pose) {
  const Projected p = Project(in, camera, options, lanes.rows);
  Flat flat = UnwhitenSums(lanes);
  const V norm[1] = {hn::Sqrt(hn::MulAdd(flat.mean_x, flat.mean_x, hn::Mul(flat.mean_y, flat.mean_y)))};
  const V v_opacity[1] = {OpacityGradient(p, options, lanes.sums[kV], flat)};

  // Sigma2 = m m', m = U S, U = J Q, Q = W R.
  const V two = Set(2.0f);
  const V g00 = hn::Mul(two, flat.g00), g01 = hn::Mul(two, flat.g01), g11 = hn::Mul(two, flat.g11);
  const Vec3 v_m1 = Combine(g00, p.m1, g01, p.m2), v_m2 = Combine(g01, p.m1, g11, p.m2);
  const Vec3 v_scale = Plus(Times(v_m1, p.u1), Times(v_m2, p.u2));
  const Vec3 v_u1 = Times(v_m1, p.scale), v_u2 = Times(v_m2, p.scale);
  const V v_j00 = Dot(v_u1, p.q_rows[0]), v_j02 = Dot(v_u1, p.q_rows[2]);
  const V v_j11 = Dot(v_u2, p.q_rows[1]), v_j12 = Dot(v_u2, p.q_rows[2]);
  const Vec3 v_q[3] = {Times(p.j00, v_u1), Times(p.j11, v_u2), Combine(p.j02, v_u1, p.j12, v_u2)};

  Vec3 v_r[3];  // W' v_Q
  for (int i = 0; i < 3; ++i) {
    v_r[i] = Combine(Set(camera.rotation[i]), v_q[0], Set(camera.rotation[3 + i]), v_q[1]);
    v_r[i] = Plus(v_r[i], Times(Set(camera.rotation[6 + i]), v_q[2]));
  }
  const Quat v_quat = QuatGradient(p, v_r);
  const Vec3 v_cam = CameraGradient(p, v_j00, v_j02, v_j11, v_j12, flat, lanes.sums[kZ]);
  const Vec3 v_ray = ColorGradient(in, camera, p, lanes, add, out.colors);
  const Vec3 v_mean = Plus(RotateBack(camera.rotation, v_cam), v_ray);

  StoreRows(norm, mean2d_norm, lanes.rows, false);
  StoreRows(v_opacity, out.opacities, lanes.rows, add);
  StoreRows({v_mean.x, v_mean.y, v_mean.z}, out.means, lanes.rows, add);
  StoreRows({v_quat.w, v_quat.x, v_quat.y, v_quat.z}, out.quats, lanes.rows, add);
  StoreRows({v_scale.x, v_scale.y, v_scale.z}, out.scales, lanes.rows, add);

  // Pose: x_cam = W x + t; Q = W R; centre = -W' t with dL/dcentre = -v_ray.
  AddOuter(pose.rotation, v_cam, p.world);
  const Rows3 r = QuatToRows(p.quat);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) pose.rotation[3 * i + j] = hn::Add(pose.rotation[3 * i + j], Dot(v_q[i], r.row[j]));
  }
  const Vec3 t{Set(camera.translation[0]), Set(camera.translation[1]), Set(camera.translation[2])};
  AddOuter(pose.rotation, t, v_ray);
  const Vec3 v_t = Plus(v_cam, Rotate(camera.rotation, v_ray));
  pose.translation[0] = hn::Add(pose.translation[0], v_t.x);
  pose.translation[1] = hn::Add(pose.translation[1], v_t.y);
  pose.translation[2] = hn::Add(pose.translation[2], v_t.z);
}

// The first view writes, the others add: fresh memory need not be cleared first.
void ProjectBackwardBlockTarget(const Gaussians& in, const Camera& camera, const Options& options, const BlockSums& block, bool add,
                                const GaussianGradient& out, float* mean2d_norm, float pose[12]) {
  BackwardLanes lanes;
  PoseSums pose_sums;
  for (V& v : pose_sums.rotation) v = hn::Zero(kF);
  for (V& v : pose_sums.translation) v = hn::Zero(kF);
  for (uint32_t i = 0; i < block.count; i += kLanes) {
    LoadLanes(block, i, HWY_MIN(static_cast<uint32_t>(kLanes), block.count - i), lanes);
    BackwardOnce(in, camera, options, lanes, add, out, mean2d_norm, pose_sums);
  }
  for (int i = 0; i < 9; ++i) pose[i] += hn::GetLane(hn::SumOfLanes(kF, pose_sums.rotation[i]));
  for (int i = 0; i < 3; ++i) pose[9 + i] += hn::GetLane(hn::SumOfLanes(kF, pose_sums.translation[i]));
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(ProjectBackwardBlockTarget);
void ProjectBackwardBlock(const Gaussians& in, const Camera& camera, const Options& options, const BlockSums& block, bool add,
                          const GaussianGradient& out, float* mean2d_norm, float pose[12]) {
  HWY_DYNAMIC_DISPATCH(ProjectBackwardBlockTarget)(in, camera, options, block, add, out, mean2d_norm, pose);
}
}  // namespace recon
#endif
