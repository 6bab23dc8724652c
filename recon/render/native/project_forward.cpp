#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "project_forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

#include "project-inl.h"
#include "touch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// The fields of Splat, one lane per Gaussian.
struct SplatLanes {
  HWY_ALIGN float x[kTile], y[kTile], l11[kTile], l21[kTile], l22[kTile], log2_opacity[kTile];
  HWY_ALIGN float r[kTile], g[kTile], b[kTile], z[kTile], half_x[kTile], half_y[kTile];
  HWY_ALIGN float slope_x[kTile], slope_y[kTile];
};

// colour = max(0, SH + 0.5), or the given one.
HWY_INLINE Vec3 Color(const Gaussians& in, const Camera& camera, Vec3 world, VI id) {
  if (in.sh_degree < 0) return Gather3(in.colors, id);
  const Direction dir = ViewDirection(camera, world);
  V basis[kMaxBasis];
  ShBasis(in.sh_degree, dir.unit.x, dir.unit.y, dir.unit.z, basis);
  const VI start = ShStart(in, id);
  Vec3 color{Set(0.5f), Set(0.5f), Set(0.5f)};
  for (int k = 0; k < BasisSize(in.sh_degree); ++k) {
    color.x = hn::MulAdd(basis[k], Gather(in.colors + 3 * k, start), color.x);
    color.y = hn::MulAdd(basis[k], Gather(in.colors + 3 * k + 1, start), color.y);
    color.z = hn::MulAdd(basis[k], Gather(in.colors + 3 * k + 2, start), color.z);
  }
  const M finite = hn::And(Bounded(color.x), hn::And(Bounded(color.y), Bounded(color.z)));
  const V zero = hn::Zero(kF), nan = hn::Div(zero, zero);
  return {hn::IfThenElse(finite, hn::Max(color.x, zero), nan), hn::IfThenElse(finite, hn::Max(color.y, zero), nan),
          hn::IfThenElse(finite, hn::Max(color.z, zero), nan)};
}

// Fills the lanes; returns which of them are visible.
//   L' = [[sqrt(k/a), 0], [-(b/a) l22, sqrt(k a/det)]], k = kHalfLog2e, [[a, b], [b, c]] the 2D covariance
//   half extents: sqrt(level a/k), sqrt(level c/k), level = log2(o / alpha_min)
HWY_INLINE M ProjectLanes(const Gaussians& in, const Camera& camera, const Options& options, VI id, M wanted,
                          SplatLanes& out) {
  const Projected p = Project(in, camera, options, id);
  const V opacity = hn::Mul(p.opacity, p.compensation);
  M visible = hn::And(hn::And(wanted, p.valid), hn::Ge(opacity, Set(options.alpha_min)));
  visible = hn::And(visible, Bounded(opacity));
  if (hn::AllFalse(kF, visible)) return visible;
  const V log2_opacity = hn::Log2(kF, hn::IfThenElse(visible, opacity, Set(1.0f)));
  const V level = hn::Max(hn::Zero(kF), hn::Sub(log2_opacity, Set(std::log2(options.alpha_min))));
  const V reach = hn::Mul(level, Set(1.0f / kHalfLog2e));
  const V half_x = hn::Sqrt(hn::Mul(reach, p.a)), half_y = hn::Sqrt(hn::Mul(reach, p.c));
  const V x = hn::MulAdd(p.j00, p.cam.x, Set(camera.cx)), y = hn::MulAdd(p.j11, p.cam.y, Set(camera.cy));
  const V l22 = hn::Sqrt(hn::Mul(Set(kHalfLog2e), hn::Div(p.a, p.det)));
  const V l11 = hn::Sqrt(hn::Div(Set(kHalfLog2e), p.a));
  const V l21 = hn::Neg(hn::Mul(l22, hn::Div(p.b, p.a)));
  visible = hn::And(visible, hn::And(Bounded(x), Bounded(y)));
  visible = hn::And(visible, hn::And(Bounded(half_x), Bounded(half_y)));
  visible = hn::And(visible, hn::And(Bounded(l11), hn::And(Bounded(l21), Bounded(l22))));
  visible = hn::And(visible, hn::And(hn::Gt(l11, hn::Zero(kF)), hn::Gt(l22, hn::Zero(kF))));
  visible = hn::And(visible, hn::And(hn::Gt(hn::Add(x, half_x), hn::Zero(kF)), hn::Gt(hn::Add(y, half_y), hn::Zero(kF))));
  visible = hn::And(visible, hn::Lt(hn::Sub(x, half_x), Set(static_cast<float>(camera.width))));
  visible = hn::And(visible, hn::Lt(hn::Sub(y, half_y), Set(static_cast<float>(camera.height))));
  if (hn::AllFalse(kF, visible)) return visible;

  const Vec3 color = Color(in, camera, p.world, id);
  visible = hn::And(visible, hn::And(Bounded(color.x), hn::And(Bounded(color.y), Bounded(color.z))));
  hn::Store(x, kF, out.x);
  hn::Store(y, kF, out.y);
  hn::Store(l11, kF, out.l11);
  hn::Store(l21, kF, out.l21);
  hn::Store(l22, kF, out.l22);
  hn::Store(log2_opacity, kF, out.log2_opacity);
  hn::Store(color.x, kF, out.r);
  hn::Store(color.y, kF, out.g);
  hn::Store(color.z, kF, out.b);
  hn::Store(p.cam.z, kF, out.z);
  hn::Store(half_x, kF, out.half_x);
  hn::Store(half_y, kF, out.half_y);
  hn::Store(hn::Div(p.b, p.c), kF, out.slope_x);
  hn::Store(hn::Div(p.b, p.a), kF, out.slope_y);
  return visible;
}

HWY_INLINE void WriteAux(const ProjectionAux& aux, const SplatLanes& lanes, uint32_t lane, uint32_t id, bool visible) {
  aux.visible[id] = visible;
  aux.radii[id] = visible ? std::ceil(HWY_MAX(lanes.half_x[lane], lanes.half_y[lane])) : 0.0f;
  aux.means2d[2 * size_t{id}] = visible ? lanes.x[lane] : 0.0f;
  aux.means2d[2 * size_t{id} + 1] = visible ? lanes.y[lane] : 0.0f;
  aux.depths[id] = visible ? lanes.z[lane] : 0.0f;
}

uint32_t ProjectBlockTarget(const Gaussians& in, const Camera& camera, const Options& options, uint32_t begin, uint32_t end,
                            Splat* out, const ProjectionAux& aux) {
  uint32_t count = 0;
  SplatLanes s;
  for (uint32_t i = begin; i < end; i += kLanes) {
    const uint32_t lanes = HWY_MIN(static_cast<uint32_t>(kLanes), end - i);
    const VI id = hn::Min(hn::Iota(kI, static_cast<int32_t>(i)), hn::Set(kI, static_cast<int32_t>(end - 1)));
    const M visible = ProjectLanes(in, camera, options, id, hn::FirstN(kF, lanes), s);
    const uint32_t bits = MaskBits(visible);
    for (uint32_t k = 0; k < lanes; ++k) {
      const bool seen = ((bits >> k) & 1u) != 0;
      if (aux.visible != nullptr) WriteAux(aux, s, k, i + k, seen);
      if (!seen) continue;
      out[count++] = Splat{s.x[k], s.y[k], s.l11[k],    s.l21[k],     s.l22[k],     s.log2_opacity[k], s.r[k], s.g[k],
                           s.b[k], s.z[k], s.half_x[k], s.slope_x[k], s.slope_y[k], i + k,              0,      0};
    }
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace recon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace recon {
HWY_EXPORT(ProjectBlockTarget);
uint32_t ProjectBlock(const Gaussians& in, const Camera& camera, const Options& options, uint32_t begin, uint32_t end,
                      Splat* out, const ProjectionAux& aux) {
  return HWY_DYNAMIC_DISPATCH(ProjectBlockTarget)(in, camera, options, begin, end, out, aux);
}
}  // namespace recon
#endif
