// Device tensors seen as host tensors over the same memory, and back.
#pragma once

#include "device.h"

#include <ATen/core/ivalue.h>

#include <unordered_map>

namespace musa_sim {

// One operator call: its device tensors become host tensors that share storages exactly as the device tensors do, so that
// torch's CPU kernels see the same overlaps. Raises when tensors of several devices meet.
class Call {
 public:
  explicit Call(std::string name) : name_(std::move(name)) {}

  // Notes where `tensor` lies. 0-dimensional host tensors may join, as on real devices.
  void meet(const at::Tensor& tensor);
  void meet(c10::Device device);

  at::Tensor to_host(const at::Tensor& tensor);
  at::Tensor to_device(const at::Tensor& tensor);

  c10::DeviceIndex index() const { return index_ < 0 ? current_device() : index_; }
  bool host_allowed = false;  // index tensors and copies: host tensors of any shape may join

 private:
  std::string name_;
  c10::DeviceIndex index_ = -1;
  bool host_met_ = false;
  std::unordered_map<c10::StorageImpl*, c10::Storage> to_host_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> from_host_;

  void refuse_mix() const;
};

// `value` with every tensor in it, also inside lists, replaced by f(tensor).
template <class F>
c10::IValue map_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(f(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) mapped.push_back(tensor.defined() ? f(tensor) : tensor);
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      mapped.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(f(*tensor)) : tensor);
    }
    return mapped;
  }
  return value;
}

}  // namespace musa_sim
