// The argument of generated programs (cuda/fused_source.h), for host and device code.
#pragma once

namespace dltrain {

struct FusedOperands {
  static constexpr int kMax = 16;
  const void* input[kMax];
  void* output;
};

}  // namespace dltrain
