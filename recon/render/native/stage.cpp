#include "stage.h"

#include <omp.h>

#include <algorithm>

#include "parts.h"

namespace recon {
namespace {

uint32_t BlockCount(uint32_t n) { return (n + kBlock - 1) / kBlock; }

// body(i) for every world: a world per thread where there are enough of them, else one after the other.
template <typename Body>
void ForWorlds(size_t count, const Body& body) {
  if (count < static_cast<size_t>(omp_get_max_threads())) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (size_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(recon_world_failure)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void DrawWhole(const Gaussians& still, const Gaussians& movers, const Camera& camera, const Options& options,
               const float background[3], const Response& response, const Canvas& to) {
  const uint32_t still_blocks = BlockCount(still.n), blocks = still_blocks + BlockCount(movers.n);
  ViewState state;
  state.camera = camera;
  state.splats = Buffer<Splat>(std::max<size_t>(1, size_t{blocks} * kBlock));
  state.block_counts.assign(blocks, 0);
#pragma omp parallel for schedule(dynamic, 1) if (!omp_in_parallel())
  for (uint32_t b = 0; b < blocks; ++b) {
    const Gaussians& from = b < still_blocks ? still : movers;
    const uint32_t begin = (b < still_blocks ? b : b - still_blocks) * kBlock;
    state.block_counts[b] =
        ProjectBlock(from, camera, options, begin, std::min(begin + kBlock, from.n), state.splats.data() + size_t{b} * kBlock, {});
  }
  state.lists = BinSplats(state.splats.data(), state.block_counts, camera, options.alpha_min, nullptr);
  const size_t pixels = static_cast<size_t>(camera.width) * static_cast<size_t>(camera.height);
  Buffer<float> color(to.color == nullptr ? 3 * pixels : 0), alpha(to.alpha == nullptr ? pixels : 0);
  const Picture picture{to.color == nullptr ? color.data() : to.color, to.alpha == nullptr ? alpha.data() : to.alpha, to.depth};
  BlendView(state, options, background, picture);
  if (to.bytes == nullptr) return;
  for (size_t i = 0; i < pixels; ++i) ToBytes(response, picture.color + 3 * i, to.bytes + 3 * i);
}

void DrawWorlds(const Backdrop& backdrop, const float* eye, const Movers& movers, const std::vector<BodyPoses>& at,
                const std::vector<Canvas>& to) {
  ForWorlds(at.size(), [&](size_t i) {
    PosedMovers posed;
    posed.Pose(movers, at[i], eye);
    backdrop.Draw(posed.View(), to[i]);
  });
}

void DrawWorlds(const Gaussians& still, const Movers& movers, const std::vector<BodyPoses>& at,
                const std::vector<Camera>& cameras, const float* eyes, const Options& options, const float background[3],
                const std::vector<Canvas>& to) {
  ForWorlds(at.size(), [&](size_t i) {
    PosedMovers posed;
    posed.Pose(movers, at[i], eyes + 3 * i);
    DrawWhole(still, posed.View(), cameras[i], options, background, {}, to[i]);
  });
}

}  // namespace recon
