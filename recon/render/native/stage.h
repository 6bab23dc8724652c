// Many worlds that share the Gaussians that never move: through a fixed camera (a backdrop), or each through one of its own.
#pragma once

#include <vector>

#include "backdrop.h"
#include "movers.h"
#include "raster.h"

namespace recon {

// Everything drawn anew: still Gaussians, then movers, as one set.
void DrawWhole(const Gaussians& still, const Gaussians& movers, const Camera& camera, const Options& options,
               const float background[3], const Response& response, const Canvas& to);

// Pictures of the worlds at[i] through one backdrop; eye [3] is its camera's centre. Several at a time, or one by all threads:
// the same bits.
void DrawWorlds(const Backdrop& backdrop, const float* eye, const Movers& movers, const std::vector<BodyPoses>& at,
                const std::vector<Canvas>& to);

// The same, each through cameras[i], whose centre is eyes[3 i].
void DrawWorlds(const Gaussians& still, const Movers& movers, const std::vector<BodyPoses>& at,
                const std::vector<Camera>& cameras, const float* eyes, const Options& options, const float background[3],
                const std::vector<Canvas>& to);

}  // namespace recon
