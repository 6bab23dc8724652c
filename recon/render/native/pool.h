// A pool of reusable, 64-byte aligned buffers.
//
// One training iteration allocates the same dozen arrays again and again. Fresh memory costs a page fault per 4 KiB, more than
// the arithmetic done on it; the pool hands the same, already mapped memory out again. Thread safe.
#pragma once

#include <cstddef>
#include <utility>

namespace recon {

// Memory of at least `bytes` bytes, contents undefined; `capacity` receives its real size. Throws std::bad_alloc.
void* PoolAcquire(size_t bytes, size_t* capacity);
void PoolRelease(void* memory, size_t capacity) noexcept;

// Gives every idle buffer back to the system.
void PoolTrim() noexcept;

// Bytes held idle by the pool.
size_t PoolIdleBytes() noexcept;

// A typed, movable array out of the pool. T must be trivial: nothing is constructed or destroyed.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) : size_(size) {
    if (size > 0) data_ = static_cast<T*>(PoolAcquire(size * sizeof(T), &capacity_));
  }
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    Swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) PoolRelease(data_, capacity_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void Swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace recon
