// Which instruction set the kernels use.
#pragma once

#include <string>
#include <vector>

namespace recon {

// Compiled in and supported by this processor, best first: "avx3" (AVX-512), "avx2", "sse4", "neon", ...
std::vector<std::string> Targets();

// Uses exactly this one; empty: the best. Throws std::invalid_argument for one that is not in Targets().
void SetTarget(const std::string& name);

}  // namespace recon
