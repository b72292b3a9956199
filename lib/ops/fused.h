// The program of a fused_elementwise op: a list of element-wise steps that one kernel runs block by
// block. Operands 0 … inputs-1 are the inputs, later numbers are earlier steps.
//
// The text form (attribute "program") makes the op printable and comparable:
//   "relu_backward(0, 1); affine(2; 0.5, 0)"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/op.h"

namespace dltrain {

struct FusedStep {
  std::string op;             // the name of an element-wise op (OpDef::elementwise)
  std::vector<int> operands;  // one or two
  double p = 0, q = 0;        // its numbers (ops/elementwise.h)

  bool operator==(const FusedStep&) const = default;
};

std::string print_fused_program(const std::vector<FusedStep>& steps);
// Throws Error(internal) on text that print_fused_program cannot have written.
std::vector<FusedStep> parse_fused_program(const std::string& text);

// Returns the dtype of all tensors of a fused_elementwise op, or nullopt for a mix of f32 and
// 16-bit tensors, whose steps compute in f32.
std::optional<DType> fused_dtype(SpecSpan inputs, SpecSpan outputs);

}  // namespace dltrain
