// Inner loops of element-wise ops in f32: one function for each op and kind of operands, compiled
// for several instruction sets and looked up once.
#pragma once

#include <cstdint>

#include "shared/elementwise.h"

namespace dltrain {

struct StepOperands {
  const float* a;
  const float* b;  // ignored by unary ops
  float* out;      // may be a or b
  int64_t count;
  float p, q;  // the op's numbers (ops/elementwise.h)
};

using StepFunction = void (*)(const StepOperands&);

// How an operand is read: element by element, or one value for all.
enum class OperandKind : uint8_t { each, one };

// `accumulate`: out += result. The function runs in the calling thread.
StepFunction elementwise_step(ElementwiseOp op, OperandKind a, OperandKind b, bool accumulate);

}  // namespace dltrain
