#include "raster.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace recon {
namespace {

class Stopwatch {
 public:
  // Milliseconds since construction or the last lap.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

int BlockCount(uint32_t n) { return static_cast<int>((n + kBlock - 1) / kBlock); }

ProjectionAux AuxOfView(const ProjectionAux& aux, size_t view, size_t n) {
  if (aux.visible == nullptr) return aux;
  return {aux.visible + view * n, aux.radii + view * n, aux.means2d + 2 * view * n, aux.depths + view * n};
}

Picture PictureOfView(const Picture& picture, size_t pixels) {
  return {picture.color + 3 * pixels, picture.alpha + pixels, picture.depth == nullptr ? nullptr : picture.depth + pixels};
}

const float* Offset(const float* p, size_t n) { return p == nullptr ? nullptr : p + n; }

PictureGradient GradientOfView(const PictureGradient& g, size_t pixels) {
  return {Offset(g.color, 3 * pixels),   Offset(g.alpha, pixels),   Offset(g.depth, pixels),
          Offset(g.v_color, 3 * pixels), Offset(g.v_alpha, pixels), Offset(g.v_depth, pixels)};
}

BlendInput MakeBlendInput(const ViewState& state, const Options& options, const float* background) {
  BlendInput in{};
  in.splats = state.splats.data();
  in.items = state.lists.items.data();
  in.starts = state.lists.starts.data();
  in.width = state.camera.width;
  in.height = state.camera.height;
  in.tiles_x = state.lists.tiles_x;
  in.alpha_min = options.alpha_min;
  in.alpha_max = options.alpha_max;
  in.transmittance_min = options.transmittance_min;
  for (int c = 0; c < 3; ++c) in.background[c] = background == nullptr ? 0.0f : background[c];
  return in;
}

int TileCount(const TileLists& lists) { return lists.tiles_x * lists.tiles_y; }

void BlendTiles(const BlendInput& in, int tiles, const Picture& out, uint16_t* visited) {
#pragma omp parallel for schedule(dynamic, 4)
  for (int t = 0; t < tiles; ++t) BlendTile(in, static_cast<uint32_t>(t), out, visited);
}

// dL/dbackground of one view, tiles added in order.
void BlendViewBackward(const BlendInput& in, int tiles, const uint16_t* visited, const PictureGradient& grad, float* sums,
                       float* v_background) {
  Buffer<float> partial(3 * static_cast<size_t>(tiles));
  float* const parts = partial.data();
#pragma omp parallel for schedule(dynamic, 4)
  for (int t = 0; t < tiles; ++t) BlendTileBackward(in, static_cast<uint32_t>(t), visited, grad, sums, parts + 3 * t);
  double total[3] = {0.0, 0.0, 0.0};
  for (int t = 0; t < tiles; ++t) {
    for (int c = 0; c < 3; ++c) total[c] += static_cast<double>(parts[3 * t + c]);
  }
  for (int c = 0; c < 3; ++c) v_background[c] = static_cast<float>(total[c]);
}

void ZeroRows(const Gaussians& in, uint32_t begin, uint32_t end, const GaussianGradient& out) {
  const size_t first = begin, count = end - begin;
  const size_t color = in.sh_degree < 0 ? 3 : 3 * static_cast<size_t>(in.sh_stride);
  std::fill_n(out.means + 3 * first, 3 * count, 0.0f);
  std::fill_n(out.quats + 4 * first, 4 * count, 0.0f);
  std::fill_n(out.scales + 3 * first, 3 * count, 0.0f);
  std::fill_n(out.opacities + first, count, 0.0f);
  std::fill_n(out.colors + color * first, color * count, 0.0f);
}

// Zeroes the rows of [begin, end) that belong to no splat; splats are in the order of their Gaussians.
void ZeroCulled(const Gaussians& in, const Splat* splats, uint32_t count, uint32_t begin, uint32_t end,
                const GaussianGradient& out) {
  uint32_t next = begin;
  for (uint32_t i = 0; i < count; ++i) {
    if (splats[i].id > next) ZeroRows(in, next, splats[i].id, out);
    next = splats[i].id + 1;
  }
  if (next < end) ZeroRows(in, next, end, out);
}

// Adds one view's share to the Gaussians' gradients; writes the 4x4 pose gradient.
void ProjectViewBackward(const Gaussians& gaussians, const Options& options, const ViewState& state, const float* sums,
                         bool first_view, const GaussianGradient& out, float* mean2d_norm, float* v_viewmat) {
  const int blocks = BlockCount(gaussians.n);
  Buffer<float> poses(12 * static_cast<size_t>(blocks));
  float* const pose = poses.data();
  std::fill_n(pose, poses.size(), 0.0f);
#pragma omp parallel for schedule(dynamic, 1)
  for (int b = 0; b < blocks; ++b) {
    const uint32_t begin = static_cast<uint32_t>(b) * kBlock, end = std::min(begin + kBlock, gaussians.n);
    const Splat* const splats = state.splats.data() + begin;
    const uint32_t count = state.block_counts[static_cast<size_t>(b)];
    if (first_view) ZeroCulled(gaussians, splats, count, begin, end, out);
    std::fill(mean2d_norm + begin, mean2d_norm + end, 0.0f);
    const BlockSums block{splats, state.lists.entries.data() + begin, count, sums};
    ProjectBackwardBlock(gaussians, state.camera, options, block, !first_view, out, mean2d_norm, pose + 12 * b);
  }
  double total[12] = {};
  for (int b = 0; b < blocks; ++b) {
    for (int i = 0; i < 12; ++i) total[i] += static_cast<double>(pose[12 * b + i]);
  }
  std::fill_n(v_viewmat, 16, 0.0f);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) v_viewmat[4 * i + j] = static_cast<float>(total[3 * i + j]);
    v_viewmat[4 * i + 3] = static_cast<float>(total[9 + i]);
  }
}

}  // namespace

Camera MakeCamera(const float* viewmat, const float* intrinsics, int width, int height) {
  Camera camera{};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) camera.rotation[3 * i + j] = viewmat[4 * i + j];
    camera.translation[i] = viewmat[4 * i + 3];
  }
  for (int j = 0; j < 3; ++j) {
    for (int i = 0; i < 3; ++i) camera.centre[j] -= camera.rotation[3 * i + j] * camera.translation[i];
  }
  camera.fx = intrinsics[0];
  camera.fy = intrinsics[4];
  camera.cx = intrinsics[2];
  camera.cy = intrinsics[5];
  camera.width = width;
  camera.height = height;
  const float margin_x = 0.15f * static_cast<float>(width), margin_y = 0.15f * static_cast<float>(height);
  camera.ratio_min_x = (-camera.cx - margin_x) / camera.fx;
  camera.ratio_max_x = (static_cast<float>(width) - camera.cx + margin_x) / camera.fx;
  camera.ratio_min_y = (-camera.cy - margin_y) / camera.fy;
  camera.ratio_max_y = (static_cast<float>(height) - camera.cy + margin_y) / camera.fy;
  return camera;
}

void ProjectView(const Gaussians& gaussians, const Options& options, ViewState& state, const ProjectionAux& aux) {
  const int blocks = BlockCount(gaussians.n);
  state.block_counts.assign(static_cast<size_t>(blocks), 0);
  Splat* const splats = state.splats.data();
  uint32_t* const counts = state.block_counts.data();
#pragma omp parallel for schedule(dynamic, 1)
  for (int b = 0; b < blocks; ++b) {
    const uint32_t begin = static_cast<uint32_t>(b) * kBlock;
    counts[b] = ProjectBlock(gaussians, state.camera, options, begin, std::min(begin + kBlock, gaussians.n), splats + begin, aux);
  }
}

void BlendView(const ViewState& state, const Options& options, const float* background, const Picture& out) {
  BlendTiles(MakeBlendInput(state, options, background), TileCount(state.lists), out, nullptr);
}

void RasterForward(const ForwardArguments& args, const ForwardOutputs& out, std::vector<ViewState>* states, Timings* timings) {
  const size_t n = args.gaussians.n;
  ViewState scratch;
  Stopwatch watch;
  for (size_t view = 0; view < args.cameras.size(); ++view) {
    ViewState state;
    state.camera = args.cameras[view];
    state.splats = args.keep || scratch.splats.size() < n ? Buffer<Splat>(n) : std::move(scratch.splats);
    const size_t pixels = static_cast<size_t>(state.camera.width) * static_cast<size_t>(state.camera.height);
    const size_t tiles_x = static_cast<size_t>((state.camera.width + kTile - 1) / kTile);
    const size_t tiles_y = static_cast<size_t>((state.camera.height + kTile - 1) / kTile);
    const uint8_t* mask = args.tile_mask == nullptr ? nullptr : args.tile_mask + view * tiles_x * tiles_y;
    watch.Lap();
    ProjectView(args.gaussians, args.options, state, AuxOfView(out.aux, view, n));
    timings->project += watch.Lap();
    state.lists = BinSplats(state.splats.data(), state.block_counts, state.camera, args.options.alpha_min, mask);
    if (args.keep) state.visited = Buffer<uint16_t>(state.lists.size);
    timings->bin += watch.Lap();
    const BlendInput in = MakeBlendInput(state, args.options, Offset(args.background, 3 * view));
    BlendTiles(in, TileCount(state.lists), PictureOfView(out.picture, view * pixels), state.visited.data());
    timings->blend += watch.Lap();
    if (args.keep) {
      states->push_back(std::move(state));
    } else {
      scratch = std::move(state);
    }
  }
}

void RasterBackward(const Gaussians& gaussians, const Options& options, const std::vector<ViewState>& states,
                    const PictureGradient& grad, const BackwardOutputs& out, Timings* timings) {
  if (states.empty()) {
    for (uint32_t begin = 0; begin < gaussians.n; begin += kBlock) {
      ZeroRows(gaussians, begin, std::min(begin + kBlock, gaussians.n), out.gaussians);
    }
  }
  Stopwatch watch;
  for (size_t view = 0; view < states.size(); ++view) {
    const ViewState& state = states[view];
    const size_t pixels = static_cast<size_t>(state.camera.width) * static_cast<size_t>(state.camera.height);
    Buffer<float> sums(static_cast<size_t>(state.lists.size) * kSums);
    watch.Lap();
    // The background is part of the colour the gradient starts from, so the blend needs no background of its own.
    BlendViewBackward(MakeBlendInput(state, options, nullptr), TileCount(state.lists), state.visited.data(),
                      GradientOfView(grad, view * pixels), sums.data(), out.background + 3 * view);
    timings->blend_backward += watch.Lap();
    ProjectViewBackward(gaussians, options, state, sums.data(), view == 0, out.gaussians, out.mean2d_norm + view * gaussians.n,
                        out.viewmats + 16 * view);
    timings->project_backward += watch.Lap();
  }
}

}  // namespace recon
