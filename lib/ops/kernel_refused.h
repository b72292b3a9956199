// The refusal of a kernel. Not part of ops/kernel.h, which nvcc compiles too.
#pragma once

#include "base/error.h"

namespace dltrain {

// Thrown by makers if a vendor's library refuses a request that the row serves, or is missing.
// find_kernel() then takes the next row, and the message becomes a notice of the device.
class KernelRefused : public Error {
 public:
  using Error::Error;
};

}  // namespace dltrain
