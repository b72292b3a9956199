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

// All f64, or any of f32, bf16 and f16.
struct FusedTypes {
  std::vector<DType> inputs;
  DType result = DType::f32;  // of every output
};

// `results`: the operand that each output is.
std::string fused_source(const std::vector<FusedStep>& steps, const FusedTypes& types,
                         const std::vector<int64_t>& results, const std::string& name);

// Elements of a pack, which a thread takes at once: 16 bytes of the narrowest type.
int64_t fused_pack(const FusedTypes& types);

// What the source includes, for compilers that have no folders: name and text of each header, those
// of the standard library (as far as it is used) among them.
struct SourceHeader {
  const char* name;
  const char* text;
};
std::vector<SourceHeader> fused_source_headers();

}  // namespace dltrain
