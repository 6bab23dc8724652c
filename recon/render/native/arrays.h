// How arrays cross between Python and the kernels.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "pool.h"
#include "splat.h"

namespace nb = nanobind;

namespace recon {

using In = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using InOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Index = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
using Steps = nb::ndarray<int32_t, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T>;

// Pool memory as a NumPy array; it goes back to the pool with the last reference.
template <typename T>
class Output {
 public:
  explicit Output(std::initializer_list<size_t> shape) : shape_(shape) {
    size_t size = 1;
    for (const size_t n : shape) size *= n;
    buffer_ = std::make_unique<Buffer<T>>(std::max<size_t>(1, size));
  }
  T* data() { return buffer_->data(); }

  Out<T> Release() {
    T* const data = buffer_->data();
    nb::capsule owner(buffer_.release(), [](void* p) noexcept { delete static_cast<Buffer<T>*>(p); });
    return Out<T>(data, shape_.size(), shape_.data(), owner);
  }

 private:
  std::vector<size_t> shape_;
  std::unique_ptr<Buffer<T>> buffer_;
};

using OptionTuple = std::tuple<float, float, float, float, float, float, bool>;

inline Options MakeOptions(const OptionTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t), std::get<5>(t), std::get<6>(t)};
}

inline Gaussians MakeGaussians(const In& means, const In& quats, const In& scales, const In& opacities, const In& colors,
                        int sh_degree) {
  Gaussians g{};
  g.means = means.data();
  g.quats = quats.data();
  g.scales = scales.data();
  g.opacities = opacities.data();
  g.colors = colors.data();
  g.n = static_cast<uint32_t>(means.shape(0));
  g.sh_degree = sh_degree;
  g.sh_stride = sh_degree < 0 ? 1 : static_cast<int>(colors.shape(1));
  return g;
}

// Adds what stage.h offers to the module.
void BindStage(nb::module_& m);

}  // namespace recon
