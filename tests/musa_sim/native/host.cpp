#include "host.h"

#include <c10/core/TensorImpl.h>

namespace musa_sim {
namespace {

at::Tensor over(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

}  // namespace

void Call::refuse_mix() const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, musa:", int{index_},
              " and cpu! (", name_, " on the simulated musa device)");
}

void Call::meet(c10::Device device) {
  if (device.type() != c10::DeviceType::PrivateUse1) return;
  const auto index = device.index() < 0 ? current_device() : device.index();
  TORCH_CHECK(index_ < 0 || index_ == index,
              "Expected all tensors to be on the same device, but found at least two devices, musa:", int{index_},
              " and musa:", int{index}, "! (", name_, " on the simulated musa device)");
  index_ = index;
  if (host_met_) refuse_mix();
}

void Call::meet(const at::Tensor& tensor) {
  if (tensor.device().type() == c10::DeviceType::PrivateUse1) {
    check_type(tensor.scalar_type());
    meet(tensor.device());
  } else if (tensor.dim() > 0 && !host_allowed) {
    host_met_ = true;
    if (index_ >= 0) refuse_mix();
  }
}

at::Tensor Call::to_host(const at::Tensor& tensor) {
  if (tensor.device().type() != c10::DeviceType::PrivateUse1) return tensor;
  const c10::Storage& mine = tensor.storage();
  auto& host = to_host_[mine.unsafeGetStorageImpl()];
  if (!host) {
    c10::DataPtr pointer(mine.mutable_data(), c10::Device(c10::DeviceType::CPU));  // borrowed
    host = c10::Storage(c10::Storage::use_byte_size_t(), mine.nbytes(), std::move(pointer), nullptr, false);
    from_host_.emplace(host.unsafeGetStorageImpl(), mine);
  }
  return over(host, c10::DispatchKey::CPU, tensor);
}

at::Tensor Call::to_device(const at::Tensor& tensor) {
  const c10::Storage& host = tensor.storage();
  auto found = from_host_.find(host.unsafeGetStorageImpl());
  if (found == from_host_.end()) found = from_host_.emplace(host.unsafeGetStorageImpl(), adopt(host, index())).first;
  check_type(tensor.scalar_type());
  return over(found->second, c10::DispatchKey::PrivateUse1, tensor);
}

}  // namespace musa_sim
