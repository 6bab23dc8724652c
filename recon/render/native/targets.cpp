#include "targets.h"

#include <hwy/detect_targets.h>
#include <hwy/targets.h>

#include <cctype>
#include <stdexcept>

namespace recon {
namespace {

std::string Name(int64_t target) {
  std::string name = hwy::TargetName(target);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Lower bits are better targets. Asked with no override in place.
std::vector<int64_t> Usable() {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<int64_t> usable;
  for (int bit = 0; bit < 63; ++bit) {
    if ((supported >> bit) & 1) usable.push_back(int64_t{1} << bit);
  }
  return usable;
}

// A mask of targets, or 0 for all.
void Override(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

int64_t current = 0;

}  // namespace

std::vector<std::string> Targets() {
  std::vector<std::string> names;
  for (const int64_t target : Usable()) names.push_back(Name(target));
  Override(current);
  return names;
}

void SetTarget(const std::string& name) {
  int64_t wanted = 0;
  for (const int64_t target : Usable()) {
    if (Name(target) == name) wanted = target;
  }
  if (wanted != 0 || name.empty()) current = wanted;
  Override(current);
  if (wanted == 0 && !name.empty()) throw std::invalid_argument("no kernels for the instruction set '" + name + "' here");
}

}  // namespace recon
