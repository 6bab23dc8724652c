// Drives every kernel on awkward input; meant for the address and undefined behaviour sanitizers:
//
//   cmake -S . -B build/asan -G Ninja -DRECON_KERNEL_TEST=ON -DRECON_SANITIZE=ON && cmake --build build/asan && build/asan/kernel_test
//
// Checks what can be checked without a reference: finite outputs, the same bits for one thread and for three, and that the
// gradient of one opacity agrees with a finite difference.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "adam.h"
#include "loss.h"
#include "raster.h"
#include "stage.h"
#include "targets.h"

namespace {

using namespace recon;

int failures = 0;

void Check(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// Exactly sized vectors, so that the sanitizer sees a read or write one past the end.
struct Scene {
  std::vector<float> means, quats, scales, opacities, colors;
  int degree;
  uint32_t n;

  Scene(uint32_t count, int sh_degree, unsigned seed) : degree(sh_degree), n(count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    const auto fill = [&](std::vector<float>& v, size_t size, auto make) {
      v.resize(size);
      for (float& x : v) x = make();
    };
    fill(means, 3 * n, [&] { return normal(random); });
    fill(quats, 4 * n, [&] { return normal(random); });
    fill(scales, 3 * n, [&] { return 0.1f * std::exp(normal(random)); });
    fill(opacities, n, [&] { return 0.05f + 0.9f * uniform(random); });
    fill(colors, degree < 0 ? 3 * n : 3 * n * static_cast<size_t>((degree + 1) * (degree + 1)), [&] { return 0.5f * normal(random); });
  }

  // Every eighth Gaussian gets one value no camera can draw, or an extreme one.
  void Poison() {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    const float values[] = {nan, inf, -inf, 0.0f, 1e30f, -1e30f, 1e-30f, 3e38f};
    for (uint32_t i = 0; i < n; i += 8) {
      const float value = values[i / 8 % 8];
      switch (i / 64 % 5) {
        case 0: means[3 * i + i % 3] = value; break;
        case 1: std::fill_n(&quats[4 * i], 4, value); break;
        case 2: scales[3 * i + i % 3] = value; break;
        case 3: opacities[i] = value; break;
        default: colors[i] = value; break;
      }
    }
  }

  Gaussians View() const {
    return {means.data(), quats.data(), scales.data(), opacities.data(), colors.data(), n, degree, (degree + 1) * (degree + 1)};
  }
};

struct Result {
  std::vector<float> color, alpha, depth, v_means, v_quats, v_scales, v_opacities, v_colors, v_viewmats, v_background, norm;
};

constexpr Options kOptions{0.02f, 1e4f, 0.3f, 1.0f / 255.0f, 0.99f, 1e-4f, false};

ForwardArguments Arguments(const Scene& scene, int width, int height, int views, const Options& options) {
  ForwardArguments args{};
  args.gaussians = scene.View();
  args.options = options;
  args.keep = true;
  for (int v = 0; v < views; ++v) {
    const float viewmat[16] = {1, 0, 0, 0.1f * static_cast<float>(v), 0, 1, 0, 0, 0, 0, 1, 2.0f, 0, 0, 0, 1};
    const float focal = 0.8f * static_cast<float>(width);
    const float intrinsics[9] = {focal, 0, 0.45f * static_cast<float>(width), 0, focal, 0.55f * static_cast<float>(height), 0, 0, 1};
    args.cameras.push_back(MakeCamera(viewmat, intrinsics, width, height));
  }
  return args;
}

Result Run(const Scene& scene, int width, int height, int views, const Options& options) {
  const ForwardArguments args = Arguments(scene, width, height, views, options);
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height) * static_cast<size_t>(views);
  const size_t n = scene.n, rows = n * static_cast<size_t>(views);
  Result r;
  r.color.resize(3 * pixels);
  r.alpha.resize(pixels);
  r.depth.resize(pixels);
  std::vector<uint8_t> visible(rows);
  std::vector<float> radii(rows), means2d(2 * rows), depths(rows);
  std::vector<ViewState> states;
  Timings timings;
  RasterForward(args, {{r.color.data(), r.alpha.data(), r.depth.data()}, {visible.data(), radii.data(), means2d.data(), depths.data()}},
                &states, &timings);
  const std::vector<float> v_color(3 * pixels, 1.0f), v_alpha(pixels, 0.5f), v_depth(pixels, 0.25f);
  r.v_means.resize(3 * n);
  r.v_quats.resize(4 * n);
  r.v_scales.resize(3 * n);
  r.v_opacities.resize(n);
  r.v_colors.resize(scene.colors.size());
  r.v_viewmats.resize(16 * static_cast<size_t>(views));
  r.v_background.resize(3 * static_cast<size_t>(views));
  r.norm.resize(rows);
  RasterBackward(args.gaussians, options, states,
                 {r.color.data(), r.alpha.data(), r.depth.data(), v_color.data(), v_alpha.data(), v_depth.data()},
                 {{r.v_means.data(), r.v_quats.data(), r.v_scales.data(), r.v_opacities.data(), r.v_colors.data()},
                  r.v_viewmats.data(), r.v_background.data(), r.norm.data()},
                 &timings);
  return r;
}

std::vector<const std::vector<float>*> Fields(const Result& r) {
  return {&r.color, &r.alpha, &r.depth, &r.v_means, &r.v_quats, &r.v_scales, &r.v_opacities, &r.v_colors, &r.v_viewmats, &r.v_background, &r.norm};
}

void RasterCase(uint32_t n, int degree, int width, int height, int views, const Options& options, bool poison, const std::string& name) {
  Scene scene(n, degree, n + static_cast<uint32_t>(width));
  if (poison) scene.Poison();
  omp_set_num_threads(1);
  const Result one = Run(scene, width, height, views, options);
  omp_set_num_threads(3);
  const Result three = Run(scene, width, height, views, options);
  const auto a = Fields(one), b = Fields(three);
  for (size_t i = 0; i < a.size(); ++i) {
    Check(AllFinite(*a[i]), name + ": field " + std::to_string(i) + " is finite");
    Check(a[i]->empty() || std::memcmp(a[i]->data(), b[i]->data(), a[i]->size() * sizeof(float)) == 0,
          name + ": field " + std::to_string(i) + " does not depend on the threads");
  }
}

// Worlds through a backdrop and drawn anew: the same bits, for any number of threads.
void StageCase(uint32_t n, uint32_t moving, int degree, int width, int height, bool poison, const std::string& name) {
  Scene still(n, degree, n + 5), own(moving, -1, moving + 9);
  if (poison) still.Poison();
  if (poison) own.Poison();
  Movers movers;
  movers.n = moving;
  movers.captured = moving / 3;
  movers.bodies = 2;
  movers.body.assign(moving, 1);
  movers.means = own.means;
  movers.quats = own.quats;
  movers.normals = own.means;
  movers.scales = own.scales;
  movers.opacities = own.opacities;
  movers.rgb = own.colors;
  movers.sh.assign(9 * size_t{movers.captured}, 0.1f);
  movers.light = {0.6f, 0.4f, 0.5f};
  const std::vector<double> positions{0, 0, 0, 0.2, 0, -0.5, 0, 0, 0, 9, 0, 0}, quats(16, 0.5), matrices(36, 0.5);
  const std::vector<BodyPoses> worlds{{positions.data(), quats.data(), matrices.data(), 2},
                                      {positions.data() + 6, quats.data() + 8, matrices.data() + 18, 2}};
  const float pose[16] = {1, 0, 0, 0.1f, 0, 1, 0, 0, 0, 0, 1, 2.0f, 0, 0, 0, 1}, eyes[6] = {-0.1f, 0, -2, -0.1f, 0, -2};
  const float focal = 0.8f * static_cast<float>(width), background[3] = {0.1f, 0.2f, 0.3f};
  const float intrinsics[9] = {focal, 0, 0.45f * static_cast<float>(width), 0, focal, 0.55f * static_cast<float>(height), 0, 0, 1};
  const Camera camera = MakeCamera(pose, intrinsics, width, height);
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  std::vector<std::vector<float>> found;
  std::vector<std::vector<uint8_t>> bytes;
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    const Backdrop backdrop(still.View(), camera, kOptions, background, {});
    for (const bool anew : {false, true}) {
      std::vector<float> values(2 * 5 * pixels);
      std::vector<uint8_t> shown(2 * 3 * pixels);
      std::vector<Canvas> to;
      for (size_t i = 0; i < 2; ++i) {
        float* const first = values.data() + 5 * i * pixels;
        to.push_back({shown.data() + 3 * i * pixels, first, first + 3 * pixels, first + 4 * pixels});
      }
      if (anew) DrawWorlds(still.View(), movers, worlds, {camera, camera}, eyes, kOptions, background, to);
      else DrawWorlds(backdrop, eyes, movers, worlds, to);
      Check(AllFinite(values), name + ": worlds are finite");
      found.push_back(std::move(values));
      bytes.push_back(std::move(shown));
    }
  }
  for (size_t i = 1; i < found.size(); ++i) {
    Check(std::memcmp(found[0].data(), found[i].data(), found[0].size() * sizeof(float)) == 0, name + ": a backdrop changes no bit");
    Check(bytes[0] == bytes[i], name + ": a backdrop changes no byte");
  }
}

// d(sum of all outputs, weighted as in Run) / d(one opacity), against a central difference.
void OpacityDifference() {
  Scene scene(40, 1, 7);
  const auto objective = [&] {
    const Result r = Run(scene, 33, 29, 1, kOptions);
    double sum = 0.0;
    for (const float x : r.color) sum += static_cast<double>(x);
    for (const float x : r.alpha) sum += 0.5 * static_cast<double>(x);
    for (const float x : r.depth) sum += 0.25 * static_cast<double>(x);
    return sum;
  };
  const Result r = Run(scene, 33, 29, 1, kOptions);
  const size_t at = static_cast<size_t>(std::max_element(r.v_opacities.begin(), r.v_opacities.end()) - r.v_opacities.begin());
  const float step = 1e-3f, opacity = scene.opacities[at];
  scene.opacities[at] = opacity + step;
  const double above = objective();
  scene.opacities[at] = opacity - step;
  const double slope = (above - objective()) / (2.0 * static_cast<double>(step));
  Check(std::fabs(slope - static_cast<double>(r.v_opacities[at])) < 0.05 * std::fabs(slope), "opacity gradient against a difference");
}

void LossCase(int height, int width, float ssim_weight, bool weighted) {
  const size_t pixels = static_cast<size_t>(height) * static_cast<size_t>(width);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> picture(3 * pixels), target(3 * pixels), weight(pixels), grad(3 * pixels);
  for (float& x : picture) x = uniform(random);
  for (float& x : target) x = uniform(random);
  for (float& x : weight) x = uniform(random);
  const double loss = L1Ssim(picture.data(), target.data(), weighted ? weight.data() : nullptr, height, width, ssim_weight, grad.data());
  Check(std::isfinite(loss) && loss > 0.0 && AllFinite(grad), "loss of " + std::to_string(width) + " x " + std::to_string(height));
}

void AdamCase(size_t rows, size_t width) {
  std::vector<float> param(rows * width, 1.0f), grad(rows * width, 0.5f), m(rows * width), v(rows * width);
  std::vector<int32_t> steps(rows);
  std::vector<uint8_t> visible(rows);
  for (size_t i = 0; i < rows; i += 2) visible[i] = 1;
  AdamStep(param.data(), grad.data(), m.data(), v.data(), steps.data(), {rows, nullptr, visible.data()}, width, {0.1, 0.9, 0.999, 1e-15, nullptr});
  for (size_t i = 0; i < rows; ++i) {  // the first step is lr sign(g)
    const float wanted = visible[i] != 0 ? 0.9f : 1.0f;
    Check(steps[i] == visible[i], "adam counts the steps of the rows that move");
    for (size_t k = 0; k < width; ++k) Check(std::fabs(param[i * width + k] - wanted) < 1e-5f, "adam, width " + std::to_string(width));
  }
}

// Gradients of every third row, in reverse; entries of a row at rates that grow with their place.
void AdamRowsCase(size_t rows, size_t width) {
  std::vector<float> param(rows * width, 1.0f), m(rows * width), v(rows * width), columns(width);
  std::vector<int32_t> steps(rows), index;
  for (size_t i = rows; i-- > 0;) {
    if (i % 3 == 0) index.push_back(static_cast<int32_t>(i));
  }
  const std::vector<float> grad(index.size() * width, 0.5f);
  for (size_t k = 0; k < width; ++k) columns[k] = static_cast<float>(k + 1);
  AdamStep(param.data(), grad.data(), m.data(), v.data(), steps.data(), {index.size(), index.data(), nullptr}, width,
           {0.01, 0.9, 0.999, 1e-15, columns.data()});
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < width; ++k) {
      const float wanted = i % 3 == 0 ? 1.0f - 0.01f * columns[k] : 1.0f;
      Check(std::fabs(param[i * width + k] - wanted) < 1e-5f, "adam by rows, width " + std::to_string(width));
    }
  }
}

void RunAll(const std::string& target) {
  SetTarget(target);
  Options antialiased = kOptions;
  antialiased.antialiased = true;
  for (int degree = -1; degree <= 3; ++degree) RasterCase(301, degree, 50, 37, 2, kOptions, false, target + " degree " + std::to_string(degree));
  RasterCase(301, 2, 64, 48, 1, antialiased, false, target + " antialiased");
  RasterCase(2049, 3, 17, 16, 1, kOptions, true, target + " poisoned");
  RasterCase(2049, 1, 40, 40, 2, antialiased, true, target + " poisoned, antialiased");
  RasterCase(0, 3, 20, 20, 1, kOptions, false, target + " nothing");
  RasterCase(1, -1, 1, 1, 1, kOptions, false, target + " one pixel");
  StageCase(1500, 90, 1, 50, 37, false, target + " stage");
  StageCase(2049, 200, 2, 33, 16, true, target + " poisoned stage");
  StageCase(0, 40, 0, 5, 3, false, target + " empty stage");
  StageCase(60, 0, -1, 20, 20, false, target + " stage without movers");
  OpacityDifference();
  for (const bool weighted : {false, true}) {
    LossCase(11, 11, 0.2f, weighted);
    LossCase(75, 23, 1.0f, weighted);
    LossCase(3, 5, 0.0f, weighted);
  }
  for (const size_t width : {1u, 3u, 4u, 15u, 16u, 27u, 48u}) {
    AdamCase(301, width);
    AdamRowsCase(301, width);
  }
}

}  // namespace

int main() {
  for (const std::string& target : recon::Targets()) RunAll(target);
  if (failures == 0) std::puts("all kernel tests passed");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
