// The ops that gpu_check times, with their shapes.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"

namespace dltrain {

struct TimedOp {
  std::string name, op;
  std::vector<TensorSpec> inputs;
  Attributes attributes = {};
  bool every_row = false;  // by each kernel that takes it; otherwise by the first
};

// The sets: "ceilings" (a copy and large products: the most that other kernels can reach), "ops",
// "variants" (kernels of the vendor beside our own), "gemm" (products of GPT-2 124M).
std::vector<TimedOp> timed_ops(const std::string& set, double factor);

}  // namespace dltrain
