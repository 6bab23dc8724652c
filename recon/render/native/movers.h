// Gaussians that move with rigid bodies, and where they are when the bodies stand somewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"
#include "splat.h"

namespace recon {

// Light on a mover: its share that does not depend on where the surface faces, the rest, and the first SH constant.
struct Light {
  float ambient, rest, sh_c1;
};

// n Gaussians in the frames of bodies. The last `captured` of them carry their light in `rgb` and `sh`, the others are lit from
// above, on their normals.
struct Movers {
  uint32_t n = 0, captured = 0, bodies = 0;  // bodies: one more than the largest index
  std::vector<int32_t> body;                 // [n]
  std::vector<float> means, quats, normals;  // [n,3], [n,4], [n,3]
  std::vector<float> scales, opacities, rgb; // [n,3], [n], [n,3]
  std::vector<float> sh;                     // [captured,3,3]: coefficients of degree 1
  Light light{};
};

// All bodies of one world: positions [bodies,3], quaternions wxyz [bodies,4], matrices [bodies,9].
struct BodyPoses {
  const double* positions;
  const double* quats;
  const double* matrices;
  size_t bodies;
};

// The movers of one world as one eye sees them.
class PosedMovers {
 public:
  void Pose(const Movers& movers, const BodyPoses& at, const float eye[3]);
  Gaussians View() const;

 private:
  const Movers* movers_ = nullptr;
  std::vector<float> bodies_;  // [bodies,16]: position, quaternion, matrix
  Buffer<float> means_, quats_, rgb_;
};

}  // namespace recon
