// Additional answers of an Agreement (device/device.h).
#pragma once

namespace dltrain {

// For ops that can be two kernels or one plan of the vendor: use the first plan that can be built,
// whatever its time. Programs that check plans answer this (tests/gpu_check); timing never does.
inline constexpr const char* kOnePlan = "one plan";

}  // namespace dltrain
