// A simulated Moore Threads device for tests: its "device memory" is host memory, its kernels are torch's CPU kernels.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace musa_sim {

constexpr int kDevices = 2;

c10::Device device(c10::DeviceIndex index);
c10::DeviceIndex current_device();

// The device's own generator of random numbers, and the host generator that does the drawing inside one.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator host_generator(const at::Generator& generator);

// The storage of a host result as device storage, without a copy.
c10::Storage adopt(const c10::Storage& host, c10::DeviceIndex index);

// Raises when float64 is forbidden and `type` is that.
void check_type(at::ScalarType type);

}  // namespace musa_sim
