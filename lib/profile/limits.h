// What the machine can do at best: the measure of every row of a profile.
#pragma once

#include <string>

#include "device/engine.h"
#include "tensor/dtype.h"

namespace dltrain {

struct MachineLimits {
  double flops_f32 = 0, flops_low = 0;  // FLOP/s in f32, and in the 16-bit type of the run (or 0)
  double bytes = 0;                     // byte/s, read and written together
  std::string source = {};              // where they come from, for the person

  // Of arithmetic on values of this dtype; f64 counts as f32.
  double flops(DType dtype) const;
};

// The figures that the device states (DeviceProperties), or, where it states none, what its own
// kernels reach: the best of several runs of two sizes of a matrix product (f32, and `low` where
// that is a 16-bit type) and of one copy of memory that no cache holds. Takes about a second and,
// on the CPU, 256 MiB. With several ranks on a machine each measures while the others do.
MachineLimits find_limits(const Engine& engine, Device& device, DType low);

}  // namespace dltrain
