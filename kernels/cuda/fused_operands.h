// The argument of generated programs (cuda/fused_source.h), for host and device code.
#pragma once

namespace dltrain {

struct FusedOperands {
  static constexpr int kMost = 16;
  const void* input[kMost];
  void* output[kMost];
};

}  // namespace dltrain
