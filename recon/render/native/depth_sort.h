// A stable, parallel radix sort of splats by depth.
#pragma once

#include <cstdint>

#include "pool.h"

namespace recon {

struct DepthKey {
  uint32_t depth;  // bits of a positive float: they sort like the float
  uint32_t splat;
};

// Sorts by depth, `parts` stretches at a time in parallel; equal depths keep their order.
void SortByDepth(Buffer<DepthKey>& keys, size_t parts);

}  // namespace recon
