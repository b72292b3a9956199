// The program of a fused_elementwise op as CUDA source: one kernel
//
//   extern "C" __global__ void NAME(dltrain::FusedOperands operands, int64_t packs, int64_t count)
//
// in which every step is a call of the arithmetic that all engines share (shared/elementwise.h), so
// that the compiler keeps intermediate results in registers.
#pragma once

#include <string>
#include <vector>

#include "ops/fused.h"
#include "tensor/dtype.h"

namespace dltrain {

// All f64, or any of f32, bf16 and f16.
struct FusedTypes {
  std::vector<DType> inputs;
  DType result = DType::f32;
};

std::string fused_source(const std::vector<FusedStep>& steps, const FusedTypes& types,
                         const std::string& name);

// Returns the elements of a pack, which a thread processes at once: 16 bytes of the narrowest type.
int64_t fused_pack(const FusedTypes& types);

// Name and text of each header that the source includes, for compilers without include folders;
// with the used parts of the standard library.
struct SourceHeader {
  const char* name;
  const char* text;
};
std::vector<SourceHeader> fused_source_headers();

}  // namespace dltrain
