// The configuration of a run that computes in a format.
#pragma once

#include "passes/precision_config.h"

namespace dltrain {

inline PrecisionConfig computing_in(DType dtype, const TextPairs& overrides = {}) {
  PrecisionConfig precision;
  precision.compute = dtype;
  precision.overrides = overrides;
  return precision;
}

}  // namespace dltrain
