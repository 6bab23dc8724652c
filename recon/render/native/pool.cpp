#include "pool.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace recon {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMaxIdleBytes = size_t{768} << 20;

struct Idle {
  void* memory;
  size_t capacity;
};

struct Pool {
  std::mutex mutex;
  std::vector<Idle> idle;  // oldest release first
  size_t idle_bytes = 0;
};

// Never destroyed: arrays handed to Python may outlive every static of this library.
Pool& Instance() {
  static Pool* const pool = new Pool;
  return *pool;
}

// Capacities are 1, 1.25, 1.5 or 1.75 times a power of two, so that lists whose length changes a little from view to view
// still find the buffer of the last one.
size_t RoundUp(size_t bytes) {
  size_t power = 4096;
  while (power * 2 <= bytes) power *= 2;
  for (size_t quarters = 4; quarters < 8; ++quarters) {
    const size_t capacity = power / 4 * quarters;
    if (capacity >= bytes) return capacity;
  }
  return power * 2;
}

void* Allocate(size_t capacity) {
  const size_t alignment = capacity >= kHugePage ? kHugePage : 64;
  const size_t rounded = (capacity + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
#if defined(__linux__)
  if (memory != nullptr && alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace

void* PoolAcquire(size_t bytes, size_t* capacity) {
  const size_t wanted = RoundUp(bytes);
  Pool& pool = Instance();
  {
    const std::lock_guard<std::mutex> lock(pool.mutex);
    size_t best = pool.idle.size();
    for (size_t i = 0; i < pool.idle.size(); ++i) {
      const size_t c = pool.idle[i].capacity;
      if (c >= wanted && c <= wanted * 2 && (best == pool.idle.size() || c <= pool.idle[best].capacity)) best = i;
    }
    if (best < pool.idle.size()) {
      const Idle found = pool.idle[best];
      pool.idle.erase(pool.idle.begin() + static_cast<std::ptrdiff_t>(best));
      pool.idle_bytes -= found.capacity;
      *capacity = found.capacity;
      return found.memory;
    }
  }
  void* memory = Allocate(wanted);
  if (memory == nullptr) {
    PoolTrim();
    memory = Allocate(wanted);
  }
  if (memory == nullptr) throw std::bad_alloc();
  *capacity = wanted;
  return memory;
}

void PoolRelease(void* memory, size_t capacity) noexcept {
  Pool& pool = Instance();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  try {
    pool.idle.push_back({memory, capacity});
  } catch (const std::bad_alloc&) {
    std::free(memory);
    return;
  }
  pool.idle_bytes += capacity;
  size_t drop = 0;
  while (pool.idle_bytes > kMaxIdleBytes && drop < pool.idle.size()) {
    pool.idle_bytes -= pool.idle[drop].capacity;
    std::free(pool.idle[drop].memory);
    ++drop;
  }
  pool.idle.erase(pool.idle.begin(), pool.idle.begin() + static_cast<std::ptrdiff_t>(drop));
}

void PoolTrim() noexcept {
  Pool& pool = Instance();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  for (const Idle& entry : pool.idle) std::free(entry.memory);
  pool.idle.clear();
  pool.idle_bytes = 0;
}

size_t PoolIdleBytes() noexcept {
  Pool& pool = Instance();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  return pool.idle_bytes;
}

}  // namespace recon
