// The operators that know what device memory is. Everything else is in fallback.cpp.
#include "host.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace musa_sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device chosen(std::optional<c10::Device> asked) {
  return device(asked && asked->index() >= 0 ? asked->index() : current_device());
}

at::ScalarType chosen(std::optional<at::ScalarType> asked) {
  const auto type = asked ? *asked : at::typeMetaToScalarType(at::get_default_dtype());
  check_type(type);
  return type;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> where, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(chosen(where));
  return at::detail::empty_generic(size, c10::GetAllocator(c10::DeviceType::PrivateUse1), kKeys, chosen(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> where, std::optional<bool>) {
  const c10::DeviceGuard guard(chosen(where));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::DeviceType::PrivateUse1), kKeys, chosen(type));
}

// A copy may cross devices, so each side is seen by a call of its own.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  Call one("copy_"), other("copy_");
  one.host_allowed = other.host_allowed = true;
  one.meet(from);
  other.meet(to);
  at::AutoDispatchBelowADInplaceOrView guard;
  other.to_host(to).copy_(one.to_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  Call call("item");
  return at::_local_scalar_dense(call.to_host(tensor));
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  Call call("convolution");
  const bool has_bias = bias && bias->defined();
  for (const auto& tensor : {input, weight}) call.meet(tensor);
  if (has_bias) call.meet(*bias);
  const auto host_bias = has_bias ? std::optional<at::Tensor>(call.to_host(*bias)) : std::nullopt;
  at::AutoDispatchBelowADInplaceOrView guard;
  return call.to_device(at::convolution(call.to_host(input), call.to_host(weight), host_bias, stride, padding, dilation,
                                        transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  Call call("convolution_backward");
  for (const auto& tensor : {grad, input, weight}) call.meet(tensor);
  const std::vector<int64_t> bias_sizes{transposed ? weight.size(1) * groups : weight.size(0)};
  at::AutoDispatchBelowADInplaceOrView guard;
  auto [a, b, c] = at::convolution_backward(call.to_host(grad), call.to_host(input), call.to_host(weight), bias_sizes,
                                            stride, padding, dilation, transposed, output_padding, groups, wanted);
  const auto moved = [&](const at::Tensor& tensor) { return tensor.defined() ? call.to_device(tensor) : tensor; };
  return {moved(a), moved(b), moved(c)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace musa_sim
