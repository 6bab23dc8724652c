// Work cut into parts for the threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <exception>

namespace recon {

// How many parts of at least `least` items are worth making: at most one per thread.
inline size_t PartCount(size_t items, size_t least) {
  return std::clamp<size_t>(items / least, 1, static_cast<size_t>(std::max(1, omp_get_max_threads())));
}

// body(0) .. body(count - 1), in parallel; passes on an exception of theirs.
template <typename Body>
void ForParts(size_t count, const Body& body) {
  if (count == 1) return body(0);
  std::exception_ptr failure;
#pragma omp parallel for schedule(static, 1)
  for (size_t p = 0; p < count; ++p) {
    try {
      body(p);
    } catch (...) {
#pragma omp critical(recon_part_failure)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace recon
