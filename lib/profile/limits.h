// The peak arithmetic and memory rates of the machine, to which the rows of a profile are compared.
#pragma once

#include <string>

#include "device/engine.h"
#include "tensor/dtype.h"

namespace dltrain {

struct MachineLimits {
  double flops_f32 = 0, flops_low = 0;  // FLOP/s in f32, and in the 16-bit type of the run (or 0)
  double bytes = 0;                     // byte/s, read and written together
  std::string source = {};              // the source of the figures, for the table

  // The arithmetic rate for this dtype; f64 counts as f32.
  double flops(DType dtype) const;
  // The rate of the 16-bit type if the run has one, else that of f32.
  double peak_flops() const { return flops_low > 0 ? flops_low : flops_f32; }
};

// Returns the figures of the device (DeviceProperties). If there are none, measures its kernels:
// the best of several runs of a matrix product of two sizes (f32, and `low` if that is a 16-bit
// type) and of a copy of memory that exceeds the caches. Takes about a second and, on the CPU, 256
// MiB. Several ranks on a machine measure at the same time. `tf32`: f32 products of a GPU are
// TF32's.
MachineLimits find_limits(const Engine& engine, Device& device, DType low, bool tf32);

}  // namespace dltrain
