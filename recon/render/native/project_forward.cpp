#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "project_forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstddef>

#include "project-inl.h"
#include "touch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace recon {
namespace HWY_NAMESPACE {

// Splats, one per lane: the first twelve fields of Splat in their order, then the spans; and what only the caller sees.
struct SplatLanes {
  V field[12];
  VI columns, rows;
  V radius;
};
constexpr int kFieldX = 0, kFieldY = 1, kFieldZ = 9;
static_assert(offsetof(Splat, z) == kFieldZ * sizeof(float) && offsetof(Splat, id) == 12 * sizeof(float));

// colour = max(0, SH + 0.5), or the given one.
HWY_INLINE Vec3 Color(const Gaussians& in, const Camera& camera, Vec3 world, const Rows& rows) {
  if (in.sh_degree < 0) return Load3(in.colors, rows);
  const Direction dir = ViewDirection(camera, world);
  const int size = BasisSize(in.sh_degree);
  V basis[kMaxBasis];
  Vec3 coefficient[kMaxBasis];
  ShBasis(in.sh_degree, dir.unit.x, dir.unit.y, dir.unit.z, basis);
  LoadSh(in, rows, size, coefficient);
  Vec3 color{Set(0.5f), Set(0.5f), Set(0.5f)};
  for (int k = 0; k < size; ++k) {
    color.x = hn::MulAdd(basis[k], coefficient[k].x, color.x);
    color.y = hn::MulAdd(basis[k], coefficient[k].y, color.y);
    color.z = hn::MulAdd(basis[k], coefficient[k].z, color.z);
  }
  const M finite = hn::And(Bounded(color.x), hn::And(Bounded(color.y), Bounded(color.z)));
  const V zero = hn::Zero(kF), nan = hn::Div(zero, zero);
  return {hn::IfThenElse(finite, hn::Max(color.x, zero), nan), hn::IfThenElse(finite, hn::Max(color.y, zero), nan),
          hn::IfThenElse(finite, hn::Max(color.z, zero), nan)};
}

// The tiles that [center - half, center + half] covers, clipped to the picture.
HWY_INLINE VI Span(V center, V half, int pixels) {
  constexpr float kSlack = 0.01f;  // px
  const float edge = static_cast<float>((pixels + kTile - 1) / kTile);
  const V reach = hn::Add(half, Set(kSlack)), high = hn::Add(center, reach), per_tile = Set(1.0f / kTile);
  const V low_tile = Clamp(hn::Mul(hn::Sub(center, reach), per_tile), hn::Zero(kF), Set(edge));
  const V high_tile = Clamp(hn::Mul(high, per_tile), Set(-1.0f), Set(edge - 1.0f));
  const VI first = hn::ConvertTo(kI, low_tile), last = hn::ConvertTo(kI, high_tile);  // truncate: -0.5 counts as tile 0
  const VI count = hn::Max(hn::Zero(kI), hn::Add(hn::Sub(last, first), hn::Set(kI, 1)));
  return hn::Add(first, hn::IfThenElseZero(hn::RebindMask(kI, hn::Ge(high, hn::Zero(kF))), hn::ShiftLeft<16>(count)));
}

// Fills the lanes; returns which of them are visible.
//   L' = [[sqrt(k/a), 0], [-(b/a) l22, sqrt(k a/det)]], k = kHalfLog2e, [[a, b], [b, c]] the 2D covariance
//   half extents: sqrt(level a/k), sqrt(level c/k), level = log2(o / alpha_min)
HWY_INLINE M ProjectLanes(const Gaussians& in, const Camera& camera, const Options& options, const Rows& rows,
                          SplatLanes& out) {
  const Projected p = Project(in, camera, options, rows);
  const V opacity = hn::Mul(p.opacity, p.compensation);
  M visible = hn::And(hn::FirstN(kF, rows.filled), hn::And(p.valid, hn::Ge(opacity, Set(options.alpha_min))));
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

  const Vec3 color = Color(in, camera, p.world, rows);
  visible = hn::And(visible, hn::And(Bounded(color.x), hn::And(Bounded(color.y), Bounded(color.z))));
  const V fields[12] = {x,       y,       l11,     l21,     l22, log2_opacity, color.x,
                        color.y, color.z, p.cam.z, hn::Div(p.b, p.c), hn::Div(p.b, p.a)};
  for (int i = 0; i < 12; ++i) out.field[i] = fields[i];
  out.columns = Span(x, hn::IfThenElseZero(visible, half_x), camera.width);
  out.rows = Span(y, hn::IfThenElseZero(visible, half_y), camera.height);
  out.radius = hn::Ceil(hn::Max(half_x, half_y));
  return visible;
}

HWY_INLINE void WriteAux(const ProjectionAux& aux, const SplatLanes& lanes, const Rows& rows, M visible, uint32_t bits) {
  const V zero = hn::Zero(kF);
  const bool any = bits != 0;  // else the lanes hold nothing
  const auto seen = [&](V v) HWY_ATTR { return any ? hn::IfThenElseZero(visible, v) : zero; };
  for (uint32_t k = 0; k < rows.filled; ++k) aux.visible[rows.row[k]] = (bits >> k) & 1u;
  const V radius[1] = {seen(lanes.radius)}, depth[1] = {seen(lanes.field[kFieldZ])};
  const V mean[2] = {seen(lanes.field[kFieldX]), seen(lanes.field[kFieldY])};
  StoreRows(radius, aux.radii, rows, false);
  StoreRows(mean, aux.means2d, rows, false);
  StoreRows(depth, aux.depths, rows, false);
}

// All lanes as splats.
HWY_INLINE void StoreSplats(SplatLanes& lanes, const Rows& rows, Splat* out) {
  static_assert(sizeof(Splat) == 16 * sizeof(float));
  float* const to = reinterpret_cast<float*>(out);
  const VI place = hn::Iota(kI, 0);
  HWY_ALIGN int32_t at[kTile];
  hn::Store(place, kI, at);
  for (int i = 0; i < 12; i += 4) StoreColumns4(lanes.field + i, to + i, at, 16);
  V rest[4] = {hn::BitCast(kF, RowIndex(rows)), hn::BitCast(kF, lanes.columns), hn::BitCast(kF, lanes.rows), hn::Zero(kF)};
  StoreColumns4(rest, to + 12, at, 16);
}

// Rows from `first` on, as many as there are lanes and no more than up to `end`.
HWY_INLINE void SetRows(uint32_t first, uint32_t end, Rows& rows) {
  rows.filled = HWY_MIN(static_cast<uint32_t>(kLanes), end - first);
  rows.together = rows.filled == static_cast<uint32_t>(kLanes);
  const VI last = hn::Set(kI, static_cast<int32_t>(end - 1));
  hn::Store(hn::Min(hn::Iota(kI, static_cast<int32_t>(first)), last), kI, rows.row);
}

void ViewColorsTarget(const Gaussians& in, const Camera& camera, float* rgb) {
  Rows rows;
  for (uint32_t i = 0; i < in.n; i += kLanes) {
    SetRows(i, in.n, rows);
    const Vec3 color = Color(in, camera, Load3(in.means, rows), rows);
    const V columns[3] = {color.x, color.y, color.z};
    StoreRows(columns, rgb, rows, false);
  }
}

uint32_t ProjectBlockTarget(const Gaussians& in, const Camera& camera, const Options& options, uint32_t begin, uint32_t end,
                            Splat* out, const ProjectionAux& aux) {
  uint32_t count = 0;
  SplatLanes lanes;
  Rows rows;
  alignas(64) Splat some[kTile];
  for (uint32_t i = begin; i < end; i += kLanes) {
    SetRows(i, end, rows);
    const M visible = ProjectLanes(in, camera, options, rows, lanes);
    uint32_t bits = MaskBits(visible);
    if (aux.visible != nullptr) WriteAux(aux, lanes, rows, visible, bits);
    if (hn::AllTrue(kF, visible)) {
      StoreSplats(lanes, rows, out + count);
      count += kLanes;
    } else if (bits != 0) {
      StoreSplats(lanes, rows, some);
      for (; bits != 0; bits &= bits - 1) out[count++] = some[std::countr_zero(bits)];
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
HWY_EXPORT(ViewColorsTarget);
void ViewColors(const Gaussians& in, const Camera& camera, float* rgb) {
  HWY_DYNAMIC_DISPATCH(ViewColorsTarget)(in, camera, rgb);
}
uint32_t ProjectBlock(const Gaussians& in, const Camera& camera, const Options& options, uint32_t begin, uint32_t end,
                      Splat* out, const ProjectionAux& aux) {
  return HWY_DYNAMIC_DISPATCH(ProjectBlockTarget)(in, camera, options, begin, end, out, aux);
}
}  // namespace recon
#endif
