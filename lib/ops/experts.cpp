// The ops of mixtures of experts (Shazeer et al. 2017; Gale et al. 2023: no token is dropped). Each
// of T tokens chooses K of E experts. The R = T·K pairs of a token and one of its choices are
// numbered t·K + j, and are sorted by expert; pairs of one expert keep their order. All shapes are
// fixed: which row belongs to which expert is data that stays on the device.
//
// top_k_routing(probabilities [..., E]) → weights [..., K], experts, rows, sources, offsets:
//   experts i32 [..., K]: the K experts of the greatest probabilities, the greatest first; of equal
//   ones the first. weights: their probabilities, with `normalize` divided by their sum.
//   rows i32 [..., K]: the position of each pair in the sorted order, sources i32 [R] its inverse
//   (the pair of each row). Rows offsets[e] to offsets[e + 1] belong to expert e; offsets i32 [E +
//   1]. Attributes: k, normalize (bool).
// top_k_routing_backward(probabilities, experts, dweights) → dprobabilities. Attribute normalize.
//
// dispatch_tokens(x [..., D], sources, rows [, weights]) → y [R, D]: y[r] is the x of the token of
//   row r, times its weight. Rows may be missing (lib/ops/expert_places.cpp): with a source of −1
//   y[r] is zero. Row −1 is read as zeros, row −2 as NaN.
// combine_experts(y [R, D], rows [..., K], sources [, weights]) → out [..., D]: the sum over j of
//   weights[t, j] · y[rows[t, j]], in order of j.
// combine_experts_backward_weights(dout [..., D], y [R, D], rows [..., K]) → dweights [..., K] in
//   the accumulation dtype: dout[t] · y[rows[t, j]].
//
// grouped_matmul(a [R, I], b [E, I, O], offsets) → y [R, O]: each row times its expert's matrix;
//   transpose_b (bool): b is [E, O, I]. A row of y depends on its row of a only, to the bit; rows
//   after those of the last expert are zero. Attribute of both products: rows, those to be expected
//   where fewer than R are in use.
// grouped_matmul_backward_weight(a [R, M], b [R, N], offsets) → dw [E, M, N] in the accumulation
//   dtype: aᵀ·b over the rows of each expert; 0 for an expert without rows.
//
// router_losses(logits [..., E], offsets) → losses f64 [2], sums f64 [E + 3]. With p the softmax
//   of the logits and T tokens: losses[0] = E · Σ_e f_e · mean(p_e), where f_e is the share of
//   tokens that chose expert e (Fedus et al. 2022, eq. 4; with K choices they sum to K); losses[1]
//   = the mean of the squares of log Σ exp(logits) (Zoph et al. 2022, eq. 5). sums: the numbers of
//   rows of the experts, then T times each loss and T times the mean entropy −Σ p log p. The
//   numbers of rows count as constants in the gradient; sums have none.
// router_losses_backward(logits, offsets, dlosses f64 [2]) → dlogits.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

SpecList infer_routing(SpecSpan inputs, const Attributes& attributes) {
  const Shape& p = inputs[0].shape;
  const int64_t k = attributes.integer("k"), experts = p[-1];
  if (k < 1 || k > experts) {
    fail(ExitCode::usage, "top_k_routing: a token cannot choose {} of {} experts", k, experts);
  }
  const int64_t rows = p.elements(0, p.rank() - 1) * k;
  if (rows > INT32_MAX) {
    fail(ExitCode::usage, "top_k_routing: {} pairs of a token and an expert are too many", rows);
  }
  Shape each = p;
  each[-1] = k;
  return {{each, inputs[0].dtype},
          {each, DType::i32},
          {each, DType::i32},
          {Shape{rows}, DType::i32},
          {Shape{experts + 1}, DType::i32}};
}

std::vector<ValueId> gradient_routing(const GradientRequest& r) {
  return {r.emitter.emit1("top_k_routing_backward",
                          {r.inputs[0], r.outputs[1], r.output_gradients[0]},
                          {{"normalize", r.attributes.boolean("normalize")}})};
}

// dispatch_tokens and combine_experts are each other's gradient by the first input: `inverse`.
// `tokens`, `moved` and `rows`: the inputs of combine_experts_backward_weights.
std::vector<ValueId> gradient_of_move(const GradientRequest& r, std::string_view inverse,
                                      ValueId tokens, ValueId moved, ValueId rows) {
  const ValueId dy = r.output_gradients[0];
  const ValueId weights = r.inputs.size() > 3 ? r.inputs[3] : kNoValue;
  std::vector<ValueId> out(4, kNoValue);
  if (r.wanted[0]) out[0] = r.emitter.emit1(inverse, {dy, r.inputs[2], r.inputs[1], weights});
  if (weights != kNoValue && r.wanted[3]) {
    out[3] = r.emitter.emit1("combine_experts_backward_weights", {tokens, moved, rows});
  }
  return out;
}
std::vector<ValueId> gradient_dispatch(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  return gradient_of_move(r, "combine_experts", r.inputs[0], dy, r.inputs[2]);
}
std::vector<ValueId> gradient_combine(const GradientRequest& r) {
  const ValueId dout = r.output_gradients[0];
  return gradient_of_move(r, "dispatch_tokens", dout, r.inputs[0], r.inputs[1]);
}

SpecList infer_grouped(SpecSpan inputs, const Attributes& attributes) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  const bool transposed = attributes.boolean("transpose_b");
  if (a[1] != b[transposed ? 2 : 1]) {
    fail(ExitCode::usage, "grouped_matmul: inner extents differ: {} · {}{}", to_string(a),
         to_string(b), transposed ? "ᵀ" : "");
  }
  expect_shape("grouped_matmul", "offsets", inputs[2].shape, Shape{b[0] + 1});
  return {{Shape{a[0], b[transposed ? 1 : 2]}, inputs[0].dtype}};
}

std::vector<ValueId> gradient_grouped(const GradientRequest& r) {
  OpEmitter& e = r.emitter;
  const int64_t rows = r.attributes.integer("rows");
  const auto with_rows = [&](Attributes attributes) {
    if (rows > 0) attributes.set("rows", rows);
    return attributes;
  };
  const bool transposed = r.attributes.boolean("transpose_b");
  const ValueId a = r.inputs[0], b = r.inputs[1], offsets = r.inputs[2], dy = r.output_gradients[0];
  std::vector<ValueId> out(3, kNoValue);
  if (r.wanted[0]) {
    out[0] = e.emit1("grouped_matmul", {dy, b, offsets}, with_rows({{"transpose_b", !transposed}}));
  }
  if (r.wanted[1]) {
    out[1] = e.emit1("grouped_matmul_backward_weight",
                     {transposed ? dy : a, transposed ? a : dy, offsets},
                     with_rows({{"experts", e.spec(b).shape[0]}}));
  }
  return out;
}

void check_grouped_weight(SpecSpan inputs, const Attributes& attributes) {
  expect_shape("grouped_matmul_backward_weight", "offsets", inputs[2].shape,
               Shape{attributes.integer("experts") + 1});
}

// Every row is multiplied with one matrix.
Cost cost_grouped(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const bool weight = outputs[0].shape.rank() == 3;
  const int64_t other = weight ? inputs[1].shape[1] : outputs[0].shape[1];
  const int64_t expected = attributes.integer("rows");
  const int64_t rows = expected > 0 ? expected : inputs[0].shape[0];
  return {2.0 * static_cast<double>(rows * inputs[0].shape[1]) * static_cast<double>(other),
          bytes_moved(inputs, outputs)};
}

SpecList infer_losses(SpecSpan inputs, const Attributes&) {
  const int64_t experts = inputs[0].shape[-1];
  expect_shape("router_losses", "offsets", inputs[1].shape, Shape{experts + 1});
  return {{Shape{2}, DType::f64}, {Shape{experts + 3}, DType::f64}};
}

std::vector<ValueId> gradient_losses(const GradientRequest& r) {
  return {
      r.emitter.emit1("router_losses_backward", {r.inputs[0], r.inputs[1], r.output_gradients[0]}),
      kNoValue};
}

// Rows of a rank's tokens; the other inputs are theirs too.
int tokens_of_grouped(const TokenAxes& node) {
  return node.axes[0];
}
int tokens_of_combine(const TokenAxes& node) {
  return node.axes[1];
}

}  // namespace

constinit const OpDef kTopKRoutingOp{
    .name = "top_k_routing",
    .doc = "the k most probable experts, and rows sorted by expert",
    .signature = "probabilities[*,E]",
    .infer = infer_routing,
    .gradient = gradient_routing,
    .token_axis = tokens_before_last};
constinit const OpDef kTopKRoutingBackwardOp{
    .name = "top_k_routing_backward",
    .doc = "dprobabilities of top_k_routing",
    .signature = "probabilities[*,E] experts[*,K]:i32 dweights[*,K] -> dprobabilities[*,E]"};
constinit const OpDef kDispatchTokensOp{
    .name = "dispatch_tokens",
    .doc = "the rows of the tokens, sorted by expert",
    .signature = "x[*,D] sources[R]:i32 rows[*,K]:i32 weights[*,K]:sum? -> y[R,D]",
    .gradient = gradient_dispatch,
    .autocast = CastPolicy::low,
    .token_axis = no_tokens};  // the rows lose their order
constinit const OpDef kCombineExpertsOp{
    .name = "combine_experts",
    .doc = "the weighted sum of the rows of each token",
    .signature = "y[R,D] rows[*,K]:i32 sources[R]:i32 weights[*,K]:sum? -> out[*,D]",
    .gradient = gradient_combine,
    .autocast = CastPolicy::follow_first,
    .token_axis = tokens_of_combine};
constinit const OpDef kCombineExpertsBackwardWeightsOp{
    .name = "combine_experts_backward_weights",
    .doc = "dweights of combine_experts",
    .signature = "dout[*,D] y[R,D] rows[*,K]:i32 -> dweights[*,K]:sum"};
constinit const OpDef kGroupedMatmulOp{.name = "grouped_matmul",
                                       .doc = "each row times the matrix of its expert",
                                       .signature = "a[R,I] b[E,J,K] offsets[F]:i32",
                                       .infer = infer_grouped,
                                       .gradient = gradient_grouped,
                                       .cost = cost_grouped,
                                       .autocast = CastPolicy::low,
                                       .token_axis = tokens_of_grouped};
constinit const OpDef kGroupedMatmulBackwardWeightOp{
    .name = "grouped_matmul_backward_weight",
    .doc = "aᵀ·b over the rows of each expert",
    .signature = "a[R,M] b[R,N] offsets[F]:i32 -> dw[E,M,N]:sum; E=experts",
    .check = check_grouped_weight,
    .cost = cost_grouped};
constinit const OpDef kRouterLossesOp{.name = "router_losses",
                                      .doc = "balancing loss and z-loss of a router",
                                      .signature = "logits[*,E] offsets[F]:i32",
                                      .infer = infer_losses,
                                      .gradient = gradient_losses};
constinit const OpDef kRouterLossesBackwardOp{
    .name = "router_losses_backward",
    .doc = "dlogits of router_losses",
    .signature = "logits[*,E] offsets[F]:i32 dlosses[2]:f64 -> dlogits[*,E]"};

}  // namespace dltrain
