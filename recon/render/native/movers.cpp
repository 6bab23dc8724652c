#include "movers.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace recon {
namespace {

constexpr size_t kBodyFloats = 16;

void PackBodies(const BodyPoses& at, std::vector<float>& to) {
  to.resize(at.bodies * kBodyFloats);
  for (size_t b = 0; b < at.bodies; ++b) {
    float* const row = to.data() + b * kBodyFloats;
    for (size_t k = 0; k < 3; ++k) row[k] = static_cast<float>(at.positions[3 * b + k]);
    for (size_t k = 0; k < 4; ++k) row[3 + k] = static_cast<float>(at.quats[4 * b + k]);
    for (size_t k = 0; k < 9; ++k) row[7 + k] = static_cast<float>(at.matrices[9 * b + k]);
  }
}

// What degree 1 adds to a colour seen along `away`, in the frame of a body turned by `m`: d = R' away / |away|; -y, z, -x.
void AddTurnedLight(const float away[3], const float* m, const float* sh, float c1, float rgb[3]) {
  const float length = std::sqrt(away[0] * away[0] + away[1] * away[1] + away[2] * away[2]);
  float d[3];
  for (int k = 0; k < 3; ++k) d[k] = (m[k] * away[0] + m[3 + k] * away[1] + m[6 + k] * away[2]) / length;
  for (int c = 0; c < 3; ++c) rgb[c] = rgb[c] + c1 * (-d[1] * sh[c] + d[2] * sh[3 + c] - d[0] * sh[6 + c]);
}

}  // namespace

// Operation by operation what sim2real.draw.Movers.posed does: a test compares bits.
void PosedMovers::Pose(const Movers& movers, const BodyPoses& at, const float eye[3]) {
  movers_ = &movers;
  if (means_.size() != 3 * size_t{movers.n}) {
    means_ = Buffer<float>(3 * size_t{movers.n});
    quats_ = Buffer<float>(4 * size_t{movers.n});
    rgb_ = Buffer<float>(3 * size_t{movers.n});
  }
  PackBodies(at, bodies_);
  const uint32_t first = movers.n - movers.captured;
#pragma omp parallel for schedule(static) if (movers.n > 2000 && !omp_in_parallel())
  for (uint32_t i = 0; i < movers.n; ++i) {
    const float* const body = bodies_.data() + static_cast<size_t>(movers.body[i]) * kBodyFloats;
    const float *const p = body, *const q = body + 3, *const m = body + 7;
    const float* const x = movers.means.data() + 3 * size_t{i};
    float* const mean = means_.data() + 3 * size_t{i};
    // mu' = P mu + p
    for (int k = 0; k < 3; ++k) mean[k] = m[3 * k] * x[0] + m[3 * k + 1] * x[1] + m[3 * k + 2] * x[2] + p[k];
    // q' = q_P q (Hamilton)
    const float* const r = movers.quats.data() + 4 * size_t{i};
    float* const turned = quats_.data() + 4 * size_t{i};
    turned[0] = q[0] * r[0] - q[1] * r[1] - q[2] * r[2] - q[3] * r[3];
    turned[1] = q[0] * r[1] + q[1] * r[0] + q[2] * r[3] - q[3] * r[2];
    turned[2] = q[0] * r[2] - q[1] * r[3] + q[2] * r[0] + q[3] * r[1];
    turned[3] = q[0] * r[3] + q[1] * r[2] - q[2] * r[1] + q[3] * r[0];
    const float* const normal = movers.normals.data() + 3 * size_t{i};
    const float facing = m[6] * normal[0] + m[7] * normal[1] + m[8] * normal[2];
    const float lit = movers.light.ambient + movers.light.rest * (0.5f + 0.5f * facing);
    const float shade = i < first ? lit : 1.0f;
    float* const rgb = rgb_.data() + 3 * size_t{i};
    for (int c = 0; c < 3; ++c) rgb[c] = movers.rgb[3 * size_t{i} + static_cast<size_t>(c)] * shade;
    if (movers.captured == 0) continue;
    if (i >= first) {
      const float away[3] = {mean[0] - eye[0], mean[1] - eye[1], mean[2] - eye[2]};
      AddTurnedLight(away, m, movers.sh.data() + 9 * size_t{i - first}, movers.light.sh_c1, rgb);
    }
    for (int c = 0; c < 3; ++c) rgb[c] = rgb[c] < 0.0f ? 0.0f : rgb[c];
  }
}

Gaussians PosedMovers::View() const {
  return {means_.data(), quats_.data(), movers_->scales.data(), movers_->opacities.data(), rgb_.data(), movers_->n, -1, 1};
}

}  // namespace recon
