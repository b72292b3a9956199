// One case of one op. The table serves three times: the fast backends against the reference, the
// gradient rule against finite differences in float64, and placement rules against the whole.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"
#include "ops/step_state.h"

namespace dltrain {

// How a case fills one input.
enum class Fill {
  normal,      // standard normal
  positive,    // uniform in [0.5, 2]
  unit,        // uniform in [0, 1]
  apart,       // a shuffled grid of distinct values, none near 0: safe for max and ReLU differences
  not_finite,  // normal, with one infinity in the middle
  labels,      // i32 in [0, bound), every seventh one ignored (−100)
  ids,         // i32 in [0, bound)
  documents,   // i32, along the last axis: 0, 1, … up to bound plus the row, again and again
  later_documents,  // likewise, beginning with half of the bound
  slots,            // i32, each another one: …, 2, 1, 0
  gaps,             // as slots, but some are −1 (no row): the same ones in the inverse
  groups,   // i32, growing from 0 to bound: the rows of experts, of which the first has none
  targets,  // standard normal, every seventh one NaN: does not count. No gradient flows to these
  shares,   // uniform in [0, 1], every seventh one NaN
  distributions,  // rows of the last axis that sum to 1, every seventh row NaN
  state,          // OpCase::state
  codes,          // u8, any; with `bound`: below it, or 128 more
  scales,         // 2ⁿ between 1/8 and 8; u8: n + 127
  position,  // u8: a place of the max-pool window that is not in the padding (reads attributes)
  constant,  // standard normal; no gradient flows to it
  seed,      // 0.125 everywhere
  place,     // 1 at `bound` and a little before it, 0 elsewhere
  absent,    // an optional input that is left out
  kept,      // zeros, in whose place OpRunner::add_kept puts what the op's forward has made
};

// Targets of a loss, and constants: no gradient flows to them.
inline bool is_target(Fill fill) {
  return fill == Fill::constant || fill == Fill::targets || fill == Fill::shares ||
         fill == Fill::distributions;
}

struct CaseInput {
  TensorSpec spec;  // floating inputs are written f32; the runner swaps in f64
  Fill fill = Fill::normal;
  int64_t bound = 0;
  bool wide = false;  // f32 in 16-bit runs too
};

// The StepState of most cases: seed 1, step 3, the third sample of the global batch, a finite step
// whose gradients are multiplied with a half.
inline constexpr StepState kCaseState{
    .in = {.seed = 1,
           .step = 3,
           .sample_offset = 2,
           .learning_rate = 0.1,
           .inverse_valid = 0.125,
           .max_grad_norm = 0},
    .out = {.grad_norm = 2, .gradient_factor = 0.5, .updates = 4, .finite = 1}};

struct OpCase {
  std::string name;  // "matmul 7x5·5x3 transposed b"
  std::string op;
  std::vector<CaseInput> inputs;
  Attributes attributes = {};
  StepState state = kCaseState;
  bool one_low_dtype = false;  // all tensors in 16 bits, the results included, have one dtype
  double roundings = 0;        // in 16 bits: of values between the kernel's steps (tolerances.md)
  double tolerance =
      0;  // of its family (cases.cpp); of a f32 backend against the f64 reference, relative to the
          // largest magnitude of the output; the reason stands in tests/ops/tolerances.md
};

// The factors of the case's products are rounded, so its op is not smooth.
inline bool rounds_factors(const OpCase& c) {
  return c.attributes.has("math");
}

// Returns whether the op has a gradient in this case: fused activations and maxima appear only
// after the reverse pass.
inline bool differentiable(const OpCase& c) {
  const bool joined_norm = c.name.find("_norm joined") != std::string::npos ||
                           c.name.find("_norm plain joined") != std::string::npos ||
                           c.name.find("_norm wide") != std::string::npos;
  return !joined_norm && !rounds_factors(c) && find_op(c.op)->gradient != nullptr &&
         c.attributes.text("activation").empty() && c.attributes.text("kind") != "max";
}

// Returns whether a gradient flows to this input.
inline bool wants_gradient(const CaseInput& input) {
  return is_floating(input.spec.dtype) && input.fill != Fill::seed && !is_target(input.fill);
}

// At least one case for every row of all_ops() but collectives (a test proves it).
const std::vector<OpCase>& op_cases();

// The parts of the table, one file a family (cases_<family>.cpp).
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_fused_cases(std::vector<OpCase>& cases);
void add_reduce_cases(std::vector<OpCase>& cases);
void add_layout_cases(std::vector<OpCase>& cases);
void add_matmul_cases(std::vector<OpCase>& cases);
void add_conv2d_cases(std::vector<OpCase>& cases);
void add_max_pool2d_cases(std::vector<OpCase>& cases);
void add_normalisation_cases(std::vector<OpCase>& cases);
void add_softmax_cases(std::vector<OpCase>& cases);
void add_dequantize_cases(std::vector<OpCase>& cases);
void add_fp8_cases(std::vector<OpCase>& cases);
void add_fp8_matmul_cases(std::vector<OpCase>& cases);
void add_layer_norm_cases(std::vector<OpCase>& cases);
void add_image_map_cases(std::vector<OpCase>& cases);
void add_embedding_cases(std::vector<OpCase>& cases);
void add_loss_cases(std::vector<OpCase>& cases);
void add_attention_cases(std::vector<OpCase>& cases);
void add_decoding_cases(std::vector<OpCase>& cases);
void add_recurrent_cases(std::vector<OpCase>& cases);
void add_position_cases(std::vector<OpCase>& cases);
void add_galore_cases(std::vector<OpCase>& cases);
void add_losses_cases(std::vector<OpCase>& cases);
void add_expert_cases(std::vector<OpCase>& cases);
void add_update_cases(std::vector<OpCase>& cases);

// Short forms for the parts of a case.
inline CaseInput case_tensor(Shape shape, Fill fill = Fill::normal) {
  return {{shape, DType::f32}, fill};
}
inline CaseInput case_state() {
  return {{Shape{sizeof(StepState)}, DType::u8}, Fill::state};
}
inline CaseInput case_absent() {
  return {{Shape{0}, DType::u8}, Fill::absent};
}
inline std::vector<int64_t> as_integers(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

}  // namespace dltrain
