#include "depth_sort.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "parts.h"

namespace recon {
namespace {

struct Range {
  uint32_t low = UINT32_MAX, high = 0;
};

Range DepthRange(const DepthKey* keys, size_t begin, size_t end) {
  Range range;
  for (size_t i = begin; i < end; ++i) {
    range.low = std::min(range.low, keys[i].depth);
    range.high = std::max(range.high, keys[i].depth);
  }
  return range;
}

}  // namespace

// Least significant digit first. Depths are taken from the least one on, so that there are no more digits than they differ in:
// two passes for most scenes.
void SortByDepth(Buffer<DepthKey>& keys, size_t parts) {
  const size_t n = keys.size();
  if (n < 2) return;
  const auto first = [n, parts](size_t p) { return n * p / parts; };
  std::vector<Range> ranges(parts);
  ForParts(parts, [&](size_t p) { ranges[p] = DepthRange(keys.data(), first(p), first(p + 1)); });
  Range all;
  for (const Range& range : ranges) all = {std::min(all.low, range.low), std::max(all.high, range.high)};

  const uint32_t bits = static_cast<uint32_t>(std::bit_width(all.high - all.low));
  const uint32_t most = n < (1u << 14) ? 8 : 13;  // bits a digit: counting costs as much as moving when keys are few
  const uint32_t passes = (bits + most - 1) / most;
  const uint32_t digit = passes == 0 ? 0 : (bits + passes - 1) / passes;
  const size_t buckets = size_t{1} << digit;
  const uint32_t low = all.low, mask = static_cast<uint32_t>(buckets - 1);
  Buffer<DepthKey> other(n);
  std::vector<uint32_t> counts(parts * buckets);
  for (uint32_t shift = 0; shift < passes * digit; shift += digit) {
    const DepthKey* const from = keys.data();
    DepthKey* const to = other.data();
    ForParts(parts, [&](size_t p) {
      uint32_t* const count = counts.data() + p * buckets;
      std::fill_n(count, buckets, 0u);
      for (size_t i = first(p); i < first(p + 1); ++i) ++count[((from[i].depth - low) >> shift) & mask];
    });
    uint32_t sum = 0;
    for (size_t b = 0; b < buckets; ++b) {
      for (size_t p = 0; p < parts; ++p) sum += std::exchange(counts[p * buckets + b], sum);
    }
    ForParts(parts, [&](size_t p) {
      uint32_t* const next = counts.data() + p * buckets;
      for (size_t i = first(p); i < first(p + 1); ++i) to[next[((from[i].depth - low) >> shift) & mask]++] = from[i];
    });
    std::swap(keys, other);
  }
}

}  // namespace recon
