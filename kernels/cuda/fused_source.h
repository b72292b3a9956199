// The program of a fused_elementwise op as CUDA source: one kernel
//
//   extern "C" __global__ void NAME(dltrain::FusedOperands operands, int64_t packs, int64_t count)
//
// in which every step is a call of the arithmetic that all engines share (shared/elementwise.h), so
// that the compiler keeps what lies between steps in registers.
#pragma once

#include <string>
#include <vector>

#include "ops/fused.h"
#include "tensor/dtype.h"

namespace dltrain {

// `results`: the operand that each output is. dtype is floating.
std::string fused_source(const std::vector<FusedStep>& steps, size_t inputs,
                         const std::vector<int64_t>& results, DType dtype, const std::string& name);

// What the source includes, for compilers that have no folders: name and text of each header, those
// of the standard library (as far as it is used) among them.
struct SourceHeader {
  const char* name;
  const char* text;
};
std::vector<SourceHeader> fused_source_headers();

}  // namespace dltrain
