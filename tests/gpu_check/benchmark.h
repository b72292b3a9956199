// Times single ops at sizes that fill a GPU, over inputs larger than its caches.
#pragma once

#include <functional>
#include <string>

#include "device/engine.h"

namespace dltrain {

struct Timing {
  std::string op = {};                             // "matmul 4096x4096x4096"
  std::string variant = {};                        // of the kernel
  double milliseconds = 0;                         // median of one run
  double gigabytes_per_second = 0, teraflops = 0;  // by the op's own count
  std::string fault = {};                          // why there is no time
};

// Gives `show` the times of a set of timed_ops.h, each when it is known. `factor` scales the sizes
// down for machines without a GPU (1: full size). False: an op failed.
bool time_ops(const Engine& engine, Device& device, const std::string& set, double factor,
              const std::function<void(const Timing&)>& show);

}  // namespace dltrain
