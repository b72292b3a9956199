// Times single ops at sizes that fill a GPU, over inputs larger than its caches.
#pragma once

#include <string>
#include <vector>

#include "device/engine.h"

namespace dltrain {

struct Timing {
  std::string op;                                  // "matmul 4096x4096x4096"
  std::string variant;                             // of the kernel
  double milliseconds = 0;                         // median of one run
  double gigabytes_per_second = 0, teraflops = 0;  // by the op's own count
};

// `factor` scales the sizes down for machines without a GPU (1: full size).
std::vector<Timing> time_ops(const Engine& engine, Device& device, double factor);

}  // namespace dltrain
