// random_direction(step_state): y = normal_value(seed, stream, step, i) for each element i (seed
// and step from StepState.in; tensor/normal_values.h): the same in all micro-steps of a step and on
// all ranks. Attributes: shape (integers); dtype (text), f32 or f64; stream (integer).
#include "base/error.h"
#include "ops/definitions.h"

namespace dltrain {
namespace {

SpecList infer_random_direction(SpecSpan, const Attributes& attributes) {
  const auto dtype = dtype_from_name(attributes.text("dtype"));
  check_internal(dtype == DType::f32 || dtype == DType::f64, "random_direction: dtype '{}'",
                 attributes.text("dtype"));
  return {{Shape(attributes.integers("shape")), *dtype}};
}

}  // namespace

constinit const OpDef kRandomDirectionOp{.name = "random_direction",
                                         .doc = "numbers of N(0, 1), others in each step",
                                         .signature = "step",
                                         .infer = infer_random_direction};

}  // namespace dltrain
