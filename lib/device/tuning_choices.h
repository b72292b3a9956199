// What an Agreement (device/device.h) may answer besides what it is offered.
#pragma once

namespace dltrain {

// Where an op is two kernels or one plan of the vendor: the first plan that can be built, however
// long it takes. Programs that check plans answer so (tests/gpu_check); timing never does.
inline constexpr const char* kOnePlan = "one plan";

}  // namespace dltrain
