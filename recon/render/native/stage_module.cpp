// The Python face of stage.h; recon.render.stage checks shapes and values.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <optional>

#include "arrays.h"
#include "stage.h"

using nb::literals::operator""_a;

namespace recon {
namespace {

using Doubles = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;

std::vector<float> Copied(const In& array) { return {array.data(), array.data() + array.size()}; }

Movers MakeMovers(const Index& body, const In& means, const In& quats, const In& normals, const In& scales, const In& opacities,
                  const In& rgb, const In& sh, float ambient, float rest, float sh_c1) {
  Movers m;
  m.n = static_cast<uint32_t>(body.size());
  m.captured = static_cast<uint32_t>(sh.shape(0));
  m.body.assign(body.data(), body.data() + body.size());
  for (const int32_t b : m.body) m.bodies = std::max(m.bodies, static_cast<uint32_t>(b) + 1);
  m.means = Copied(means);
  m.quats = Copied(quats);
  m.normals = Copied(normals);
  m.scales = Copied(scales);
  m.opacities = Copied(opacities);
  m.rgb = Copied(rgb);
  m.sh = Copied(sh);
  m.light = {ambient, rest, sh_c1};
  return m;
}

Response MakeResponse(const std::optional<In>& gain) {
  Response response{};
  if (!gain) return response;
  response.given = true;
  std::copy_n(gain->data(), 9, response.matrix);
  std::copy_n(gain->data() + 9, 3, response.offset);
  return response;
}

// The pictures asked for, each [worlds,height,width,...] or none.
class Pictures {
 public:
  Pictures(std::optional<Bytes> bytes, std::optional<InOut> color, std::optional<InOut> alpha, std::optional<InOut> depth)
      : bytes_(std::move(bytes)), color_(std::move(color)), alpha_(std::move(alpha)), depth_(std::move(depth)) {}

  std::vector<Canvas> Canvases(size_t worlds, size_t pixels) const {
    std::vector<Canvas> out(worlds);
    for (size_t i = 0; i < worlds; ++i) {
      out[i] = {bytes_ ? bytes_->data() + 3 * i * pixels : nullptr, color_ ? color_->data() + 3 * i * pixels : nullptr,
                alpha_ ? alpha_->data() + i * pixels : nullptr, depth_ ? depth_->data() + i * pixels : nullptr};
    }
    return out;
  }

 private:
  std::optional<Bytes> bytes_;
  std::optional<InOut> color_, alpha_, depth_;
};

// Worlds as tables of bodies: positions [worlds,bodies,3], quats [worlds,bodies,4], matrices [worlds,bodies,9].
std::vector<BodyPoses> MakeWorlds(const Doubles& positions, const Doubles& quats, const Doubles& matrices, const Movers& movers) {
  const size_t worlds = positions.shape(0), bodies = positions.shape(1);
  if (movers.bodies > bodies) throw nb::value_error("the movers have more bodies than the poses");
  std::vector<BodyPoses> out(worlds);
  for (size_t i = 0; i < worlds; ++i) {
    out[i] = {positions.data() + 3 * i * bodies, quats.data() + 4 * i * bodies, matrices.data() + 9 * i * bodies, bodies};
  }
  return out;
}

void DrawBackdrop(const Backdrop& backdrop, const In& eye, const Movers& movers, const Doubles& positions, const Doubles& quats,
                  const Doubles& matrices, std::optional<Bytes> bytes, std::optional<InOut> color, std::optional<InOut> alpha,
                  std::optional<InOut> depth) {
  const std::vector<BodyPoses> worlds = MakeWorlds(positions, quats, matrices, movers);
  const size_t pixels = static_cast<size_t>(backdrop.camera().width) * static_cast<size_t>(backdrop.camera().height);
  const std::vector<Canvas> canvases = Pictures(bytes, color, alpha, depth).Canvases(worlds.size(), pixels);
  const nb::gil_scoped_release no_gil;
  DrawWorlds(backdrop, eye.data(), movers, worlds, canvases);
}

void DrawAnew(const In& means, const In& quats, const In& scales, const In& opacities, const In& colors, int sh_degree,
              const Movers& movers, const Doubles& positions, const Doubles& body_quats, const Doubles& matrices,
              const In& viewmats, const In& intrinsics, const In& eyes, int width, int height, const OptionTuple& options,
              const In& background, std::optional<Bytes> bytes, std::optional<InOut> color, std::optional<InOut> alpha,
              std::optional<InOut> depth) {
  const std::vector<BodyPoses> worlds = MakeWorlds(positions, body_quats, matrices, movers);
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  const std::vector<Canvas> canvases = Pictures(bytes, color, alpha, depth).Canvases(worlds.size(), pixels);
  const nb::gil_scoped_release no_gil;
  std::vector<Camera> cameras;
  for (size_t i = 0; i < worlds.size(); ++i) {
    cameras.push_back(MakeCamera(viewmats.data() + 16 * i, intrinsics.data() + 9 * i, width, height));
  }
  DrawWorlds(MakeGaussians(means, quats, scales, opacities, colors, sh_degree), movers, worlds, cameras, eyes.data(),
             MakeOptions(options), background.data(), canvases);
}

Out<float> Colors(const In& means, const In& colors, int sh_degree, const In& viewmat) {
  const size_t n = means.shape(0);
  Output<float> rgb({n, 3});
  {
    const nb::gil_scoped_release no_gil;
    Gaussians g{};
    g.means = means.data();
    g.colors = colors.data();
    g.n = static_cast<uint32_t>(n);
    g.sh_degree = sh_degree;
    g.sh_stride = sh_degree < 0 ? 1 : static_cast<int>(colors.shape(1));
    const float pinhole[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    ViewColors(g, MakeCamera(viewmat.data(), pinhole, 1, 1), rgb.data());
  }
  return rgb.Release();
}

}  // namespace

void BindStage(nb::module_& m) {
  nb::class_<Movers>(m, "Movers", "Gaussians in the frames of bodies.")
      .def("__init__",
           [](Movers* self, const Index& body, const In& means, const In& quats, const In& normals, const In& scales,
              const In& opacities, const In& rgb, const In& sh, float ambient, float rest, float sh_c1) {
             new (self) Movers(MakeMovers(body, means, quats, normals, scales, opacities, rgb, sh, ambient, rest, sh_c1));
           })
      .def("__len__", [](const Movers& self) { return self.n; });
  nb::class_<Backdrop>(m, "Backdrop", "What a fixed camera sees of Gaussians that never move.")
      .def("__init__",
           [](Backdrop* self, const In& means, const In& quats, const In& scales, const In& opacities, const In& colors,
              int sh_degree, const In& viewmat, const In& intrinsics, int width, int height, const OptionTuple& options,
              const In& background, std::optional<In> gain) {
             const nb::gil_scoped_release no_gil;
             new (self) Backdrop(MakeGaussians(means, quats, scales, opacities, colors, sh_degree),
                                 MakeCamera(viewmat.data(), intrinsics.data(), width, height), MakeOptions(options),
                                 background.data(), MakeResponse(gain));
           },
           "means"_a, "quats"_a, "scales"_a, "opacities"_a, "colors"_a, "sh_degree"_a, "viewmat"_a, "intrinsics"_a, "width"_a,
           "height"_a, "options"_a, "background"_a, "gain"_a.none())
      .def_prop_ro("kept", &Backdrop::kept)
      .def_prop_ro("items", &Backdrop::items)
      .def("draw", &DrawBackdrop, "eye"_a, "movers"_a, "positions"_a, "quats"_a, "matrices"_a, "bytes"_a.none(),
           "color"_a.none(), "alpha"_a.none(), "depth"_a.none());
  m.def("draw_anew", &DrawAnew, "means"_a, "quats"_a, "scales"_a, "opacities"_a, "colors"_a, "sh_degree"_a, "movers"_a,
        "positions"_a, "body_quats"_a, "matrices"_a, "viewmats"_a, "intrinsics"_a, "eyes"_a, "width"_a, "height"_a, "options"_a,
        "background"_a, "bytes"_a.none(), "color"_a.none(), "alpha"_a.none(), "depth"_a.none());
  m.def("view_colors", &Colors, "means"_a, "colors"_a, "sh_degree"_a, "viewmat"_a);
}

}  // namespace recon
