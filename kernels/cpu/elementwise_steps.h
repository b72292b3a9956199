// Inner loops of element-wise ops in f32: one function for each op and kind of operands, compiled
// for several instruction sets and looked up once.
#pragma once

#include <cstdint>

#include "shared/elementwise.h"

namespace dltrain {

struct StepOperands {
  const void* a;  // f32, or bf16 where its kind says so
  const void* b;  // ignored by unary ops
  float* out;     // may be a or b
  int64_t count;
  float p, q;  // the op's numbers (ops/elementwise.h)
};

using StepFunction = void (*)(const StepOperands&);

// Access to an operand: element by element, one value for all, or bf16 element by element.
enum class OperandKind : uint8_t { each, one, bf16 };

// `accumulate`: out += result. Returns nullptr for bf16 with `accumulate` or together with `one`.
// The function runs in the calling thread.
StepFunction elementwise_step(ElementwiseOp op, OperandKind a, OperandKind b, bool accumulate);

}  // namespace dltrain
