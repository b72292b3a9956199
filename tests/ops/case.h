// One case of one op. The table serves four times: the fast backends against the reference, the
// gradient rule against finite differences in float64, split rules against the whole, and
// benchmarks.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"

namespace dltrain {

// How a case fills one input.
enum class Fill {
  normal,    // standard normal
  positive,  // uniform in [0.5, 2]
  apart,     // a shuffled grid of distinct values, none near 0: safe for max and ReLU differences
  labels,    // i32 in [0, bound), every seventh one ignored (−100)
  state,  // the StepState: seed 1, step 3, sample_offset 2, loss_scale 1, inverse_valid 0.125, …
  position,  // u8 in [0, bound)
  seed,      // f64 [1], 0.125
  absent,    // an optional input that is left out
};

struct CaseInput {
  TensorSpec spec;  // floating inputs are written f32; the runner swaps in f64 or bf16
  Fill fill = Fill::normal;
  int64_t bound = 0;
};

struct OpCase {
  std::string name;  // "matmul 7x5·5x3 transposed b"
  std::string op;
  std::vector<CaseInput> inputs;
  Attributes attributes;
  double tolerance = 2e-5;  // of a f32 backend against the f64 reference, relative to the largest
                            // magnitude of the output; the reason stands in tests/ops/tolerances.md
};

// At least one case for every row of all_ops() but collectives (a test proves it).
const std::vector<OpCase>& op_cases();

}  // namespace dltrain
