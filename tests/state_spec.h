// How printed graphs show the spec of the StepState.
#pragma once

#include <string>

#include "ops/step_state.h"

namespace dltrain {

inline const std::string kStateSpec = "u8[" + std::to_string(sizeof(StepState)) + "]";

}  // namespace dltrain
