// The Python module recon.render._native: arrays in, arrays out. Shapes and values are checked by backends/cpu.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adam.h"
#include "arrays.h"
#include "loss.h"
#include "pool.h"
#include "raster.h"
#include "targets.h"

using nb::literals::operator""_a;

namespace recon {
namespace {

using Times = std::tuple<double, double, double, double, double>;

Times MakeTimes(const Timings& t) { return {t.project, t.bin, t.blend, t.blend_backward, t.project_backward}; }

// What a forward pass keeps for its backward pass.
struct Saved {
  Saved() = default;
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

  std::vector<ViewState> views;
  Options options{};
  uint32_t gaussians = 0;
  int sh_degree = -1;
};

nb::tuple Forward(const In& means, const In& quats, const In& scales, const In& opacities, const In& colors, int sh_degree,
                  const In& viewmats, const In& intrinsics, int width, int height, std::optional<In> background,
                  const OptionTuple& options, std::optional<Mask> tile_mask, bool keep, bool with_aux) {
  const size_t views = viewmats.shape(0), n = means.shape(0);
  const size_t h = static_cast<size_t>(height), w = static_cast<size_t>(width);
  Output<float> color({views, h, w, 3}), alpha({views, h, w}), depth({views, h, w});
  const size_t aux_views = with_aux ? views : 0;
  Output<uint8_t> visible({aux_views, n});
  Output<float> radii({aux_views, n}), means2d({aux_views, n, 2}), depths({aux_views, n});
  auto saved = std::make_unique<Saved>();
  Timings timings;
  {
    const nb::gil_scoped_release no_gil;
    ForwardArguments args{};
    args.gaussians = MakeGaussians(means, quats, scales, opacities, colors, sh_degree);
    args.options = MakeOptions(options);
    for (size_t v = 0; v < views; ++v) {
      args.cameras.push_back(MakeCamera(viewmats.data() + 16 * v, intrinsics.data() + 9 * v, width, height));
    }
    args.background = background ? background->data() : nullptr;
    args.tile_mask = tile_mask ? tile_mask->data() : nullptr;
    args.keep = keep;
    ForwardOutputs out{{color.data(), alpha.data(), depth.data()}, {nullptr, nullptr, nullptr, nullptr}};
    if (with_aux) out.aux = {visible.data(), radii.data(), means2d.data(), depths.data()};
    saved->options = args.options;
    saved->gaussians = args.gaussians.n;
    saved->sh_degree = sh_degree;
    RasterForward(args, out, &saved->views, &timings);
  }
  nb::object kept = keep ? nb::cast(saved.release(), nb::rv_policy::take_ownership) : nb::object(nb::none());
  return nb::make_tuple(color.Release(), alpha.Release(), depth.Release(), visible.Release(), radii.Release(),
                        means2d.Release(), depths.Release(), kept, MakeTimes(timings));
}

nb::tuple Backward(const Saved& saved, const In& means, const In& quats, const In& scales, const In& opacities,
                   const In& colors, const In& color, const In& alpha, const In& depth,
                   std::optional<In> v_color, std::optional<In> v_alpha, std::optional<In> v_depth) {
  const size_t views = saved.views.size(), n = saved.gaussians;
  if (means.shape(0) != n) throw nb::value_error("backward: not the Gaussians of the forward pass");
  Output<float> v_means({n, 3}), v_quats({n, 4}), v_scales({n, 3}), v_opacities({n});
  const int sh_degree = saved.sh_degree;
  const size_t coefficients = sh_degree < 0 ? 1 : colors.shape(1);
  Output<float> v_colors({n, coefficients, 3}), v_viewmats({views, 4, 4}), v_background({views, 3}), norm({views, n});
  Timings timings;
  {
    const nb::gil_scoped_release no_gil;
    const Gaussians gaussians = MakeGaussians(means, quats, scales, opacities, colors, sh_degree);
    const PictureGradient grad{color.data(),
                               alpha.data(),
                               depth.data(),
                               v_color ? v_color->data() : nullptr,
                               v_alpha ? v_alpha->data() : nullptr,
                               v_depth ? v_depth->data() : nullptr};
    const BackwardOutputs out{{v_means.data(), v_quats.data(), v_scales.data(), v_opacities.data(), v_colors.data()},
                              v_viewmats.data(),
                              v_background.data(),
                              norm.data()};
    RasterBackward(gaussians, saved.options, saved.views, grad, out, &timings);
  }
  return nb::make_tuple(v_means.Release(), v_quats.Release(), v_scales.Release(), v_opacities.Release(), v_colors.Release(),
                        v_viewmats.Release(), v_background.Release(), norm.Release(), MakeTimes(timings));
}

// round(255 clamp(x, 0, 1)); NaN gives 0.
Out<uint8_t> ToBytes(const In& image) {
  Output<uint8_t> bytes({image.size()});
  {
    const nb::gil_scoped_release no_gil;
    const float* from = image.data();
    uint8_t* to = bytes.data();
    const int64_t size = static_cast<int64_t>(image.size());
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < size; ++i) {
      const float x = from[i] > 0.0f ? std::min(from[i], 1.0f) : 0.0f;
      to[i] = static_cast<uint8_t>(255.0f * x + 0.5f);
    }
  }
  return bytes.Release();
}

nb::tuple Loss(const In& picture, const In& target, std::optional<In> weight, float ssim_weight, bool want_grad) {
  const size_t height = picture.shape(0), width = picture.shape(1);
  std::optional<Output<float>> grad;
  if (want_grad) grad.emplace(std::initializer_list<size_t>{height, width, 3});
  double loss = 0.0;
  {
    const nb::gil_scoped_release no_gil;
    loss = L1Ssim(picture.data(), target.data(), weight ? weight->data() : nullptr, static_cast<int>(height),
                  static_cast<int>(width), ssim_weight, grad ? grad->data() : nullptr);
  }
  return nb::make_tuple(loss, grad ? nb::cast(grad->Release()) : nb::object(nb::none()));
}

void Adam(const InOut& param, const In& grad, const InOut& exp_avg, const InOut& exp_avg_sq, const Steps& steps,
          std::optional<Index> rows, std::optional<Mask> visible, std::optional<In> columns, double lr, double beta1,
          double beta2, double eps) {
  const nb::gil_scoped_release no_gil;
  if (steps.shape(0) == 0) return;
  const AdamRows which{rows ? rows->shape(0) : steps.shape(0), rows ? rows->data() : nullptr,
                       visible ? visible->data() : nullptr};
  AdamStep(param.data(), grad.data(), exp_avg.data(), exp_avg_sq.data(), steps.data(), which,
           param.size() / steps.shape(0), {lr, beta1, beta2, eps, columns ? columns->data() : nullptr});
}

}  // namespace
}  // namespace recon

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a traceback kept alive at exit is no leak of ours
  m.doc() = "Native kernels of recon.render; use recon.render.backends.cpu.";
  nb::class_<recon::Saved>(m, "Saved", "What a forward pass keeps for its backward pass.");
  m.def("forward", &recon::Forward, "means"_a, "quats"_a, "scales"_a, "opacities"_a, "colors"_a, "sh_degree"_a, "viewmats"_a,
        "intrinsics"_a, "width"_a, "height"_a, "background"_a.none(), "options"_a, "tile_mask"_a.none(), "keep"_a, "with_aux"_a);
  recon::BindStage(m);
  m.def("backward", &recon::Backward, "saved"_a, "means"_a, "quats"_a, "scales"_a, "opacities"_a, "colors"_a,
        "color"_a, "alpha"_a, "depth"_a, "v_color"_a.none(), "v_alpha"_a.none(), "v_depth"_a.none());
  m.def("to_bytes", &recon::ToBytes, "image"_a);
  m.def("l1_ssim", &recon::Loss, "picture"_a, "target"_a, "weight"_a.none(), "ssim_weight"_a, "want_grad"_a);
  m.def("adam_step", &recon::Adam, "param"_a, "grad"_a, "exp_avg"_a, "exp_avg_sq"_a, "steps"_a, "rows"_a.none(),
        "visible"_a.none(), "columns"_a.none(), "lr"_a, "beta1"_a, "beta2"_a, "eps"_a);
  m.def("targets", &recon::Targets);
  m.def("set_target", &recon::SetTarget, "name"_a);
  m.def("set_threads", [](int n) { omp_set_num_threads(n > 0 ? n : omp_get_num_procs()); }, "n"_a);
  m.def("max_threads", [] { return omp_get_max_threads(); });
  m.def("trim", &recon::PoolTrim);
  m.def("idle_bytes", &recon::PoolIdleBytes);
  m.attr("MAX_GAUSSIANS") = recon::kMaxGaussians;
}
