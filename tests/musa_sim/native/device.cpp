// What torch asks of any accelerator: memory, current device, streams and events, generators.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>

namespace musa_sim {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr size_t kAlignment = 64;  // as torch's CPU allocator, so that vectorised kernels see the same

thread_local c10::DeviceIndex t_current = 0;
std::atomic<bool> g_no_float64{false};

// --- memory ---------------------------------------------------------------------------------------------------------

struct Usage {
  std::atomic<int64_t> now{0}, peak{0};

  void add(int64_t bytes) {
    const int64_t total = now += bytes;
    int64_t seen = peak;
    while (total > seen && !peak.compare_exchange_weak(seen, total)) {
    }
  }
};
std::array<Usage, kDevices> g_usage;

struct Block {
  void* data;
  int64_t bytes;
  c10::DeviceIndex index;
  c10::Storage host;  // for adopted blocks: who owns the memory
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  g_usage[block->index].add(-block->bytes);
  if (!block->host) std::free(block->data);
  delete block;
}

struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto index = current_device();
    void* data = nullptr;
    if (bytes > 0) {
      data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
      TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "musa (simulated) out of memory, asked for ", bytes, " bytes");
    }
    g_usage[index].add(static_cast<int64_t>(bytes));
    return {data, new Block{data, static_cast<int64_t>(bytes), index, {}}, &release, device(index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
};
DeviceMemory g_memory;
REGISTER_ALLOCATOR(kType, &g_memory)

// --- current device, streams, events --------------------------------------------------------------------------------

void set_current(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "musa (simulated): invalid device ordinal ", static_cast<int>(index));
  t_current = index;
}

using Clock = std::chrono::steady_clock;
struct Event {
  Clock::time_point when;
};

// Work is done when it is queued, so a stream is a name and an event a time.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const auto before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return device(t_current); }
  void setDevice(c10::Device to) const override { set_current(to.index()); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { t_current = to.index(); }
  c10::Stream getStream(c10::Device of) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  c10::Stream getDefaultStream(c10::Device of) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  c10::Stream getNewStream(c10::Device of, int) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  c10::Stream exchangeStream(c10::Stream to) const override { return c10::Stream(c10::Stream::DEFAULT, to.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->when = Clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    const auto span = static_cast<Event*>(to)->when - static_cast<Event*>(from)->when;
    return std::chrono::duration<double, std::milli>(span).count();
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// --- random numbers -------------------------------------------------------------------------------------------------

// A type of its own, so that a generator of the wrong device is refused; inside, torch's CPU generator.
struct DeviceGenerator final : c10::GeneratorImpl {
  explicit DeviceGenerator(c10::DeviceIndex index, at::Generator inner = at::detail::createCPUGenerator())
      : GeneratorImpl(musa_sim::device(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(std::move(inner)) {}

  void set_current_seed(uint64_t value) override { host.set_current_seed(value); }
  void set_offset(uint64_t value) override { host.set_offset(value); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.unsafeGetGeneratorImpl()->seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(device_.index(), host.clone()); }

  at::Generator host;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return t_current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = t_current;
    set_current(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<DeviceGenerator>(index < 0 ? t_current : index);
  }
};

}  // namespace

c10::Device device(c10::DeviceIndex index) { return {kType, index}; }

c10::DeviceIndex current_device() { return t_current; }

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const std::array<at::Generator, kDevices> all = {
      at::make_generator<DeviceGenerator>(0), at::make_generator<DeviceGenerator>(1)};
  return all.at(index < 0 ? t_current : index);
}

at::Generator host_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kType, "Expected a 'musa' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->host;
}

c10::Storage adopt(const c10::Storage& host, c10::DeviceIndex index) {
  const auto bytes = static_cast<int64_t>(host.nbytes());
  void* data = host.mutable_data();
  g_usage[index].add(bytes);
  c10::DataPtr pointer(data, new Block{data, bytes, index, host}, &release, device(index));
  return {c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes), std::move(pointer), &g_memory, true};
}

void check_type(at::ScalarType type) {
  TORCH_CHECK(!g_no_float64 || (type != at::kDouble && type != at::kComplexDouble),
              "musa (simulated): float64 is forbidden here");
}

TORCH_LIBRARY(musa_sim, m) {
  m.def("start() -> ()", [] { at::RegisterPrivateUse1HooksInterface(new Hooks); });
  m.def("current_device() -> int", [] { return static_cast<int64_t>(t_current); });
  m.def("set_device(int index) -> ()", [](int64_t index) { set_current(static_cast<c10::DeviceIndex>(index)); });
  m.def("memory(int index) -> int[]", [](int64_t index) {
    const auto& usage = g_usage.at(index);
    return std::vector<int64_t>{usage.now, usage.peak};
  });
  m.def("reset_peak(int index) -> ()", [](int64_t index) { g_usage.at(index).peak = g_usage.at(index).now.load(); });
  m.def("seed(int index, int value) -> ()", [](int64_t index, int64_t value) {
    at::Generator(default_generator(static_cast<c10::DeviceIndex>(index))).set_current_seed(value);
  });
  m.def("rng_state(int index) -> Tensor",
        [](int64_t index) { return default_generator(static_cast<c10::DeviceIndex>(index)).get_state(); });
  m.def("set_rng_state(int index, Tensor state) -> ()", [](int64_t index, const at::Tensor& state) {
    at::Generator(default_generator(static_cast<c10::DeviceIndex>(index))).set_state(state);
  });
  m.def("forbid_float64(bool value) -> ()", [](bool value) { g_no_float64 = value; });
}

}  // namespace musa_sim
