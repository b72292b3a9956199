#include "ops/tangents.h"

#include <algorithm>
#include <array>

#include "ops/tangent_emitter.h"

namespace dltrain {
namespace {

// y is linear in one input, on which alone it depends.
template <size_t input>
std::optional<ValueId> linear_in(const TangentRequest& r) {
  return TangentEmitter(r).again(input, r.tangents[input]);
}
// The same without a constant that the attributes add.
std::optional<ValueId> affine_tangent(const TangentRequest& r) {
  return TangentEmitter(r).scaled(r.tangents[0], r.attributes.number("scale", 1.0));
}
std::optional<ValueId> pad_tangent(const TangentRequest& r) {
  Attributes attributes = r.attributes;
  attributes.erase("value");
  return TangentEmitter(r).again(0, r.tangents[0], SIZE_MAX, &attributes);
}
std::optional<ValueId> same_tangent(const TangentRequest& r) {
  return r.tangents[0];
}
std::optional<ValueId> reduce_tangent(const TangentRequest& r) {
  if (r.attributes.text("kind") == "max") return std::nullopt;
  return TangentEmitter(r).again(0, r.tangents[0]);
}
std::optional<ValueId> cast_tangent(const TangentRequest& r) {
  const DType dtype = r.emitter.spec(r.outputs[0]).dtype;
  return is_floating(dtype) ? cast_to(r.emitter, r.tangents[0], dtype) : kNoValue;
}

// The Jacobian by the first input is symmetric, so the reverse rule multiplies by it too.
std::optional<ValueId> symmetric(const TangentRequest& r) {
  return TangentEmitter(r).reversed(0, r.tangents[0]);
}

// Products: linear in each of two inputs, the others are indices.
template <size_t first, size_t second>
std::optional<ValueId> bilinear_in(const TangentRequest& r) {
  const TangentEmitter e(r);
  const ValueId a = e.has(first) ? e.again(first, r.tangents[first]) : kNoValue;
  const ValueId b = e.has(second) ? e.again(second, r.tangents[second]) : kNoValue;
  return e.sum(a, b);
}
// The same of the first two inputs; a third one is added.
std::optional<ValueId> product_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  ValueId sum = kNoValue;
  for (size_t i = 0; i < 2; ++i) {
    if (e.has(i)) sum = e.sum(sum, e.again(i, r.tangents[i], 2));
  }
  return e.sum(sum, e.fitted(e.tangent(2)));
}

std::optional<ValueId> add_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  return e.sum(e.fitted(r.tangents[0]), e.fitted(r.tangents[1]));
}
std::optional<ValueId> sub_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  const ValueId second = e.has(1) ? e.scaled(r.tangents[1], -1) : kNoValue;
  return e.sum(e.fitted(r.tangents[0]), e.fitted(second));
}
std::optional<ValueId> mul_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  const ValueId first = e.has(0) ? e.mul(r.tangents[0], r.inputs[1]) : kNoValue;
  const ValueId second = e.has(1) ? e.mul(r.inputs[0], r.tangents[1]) : kNoValue;
  return e.sum(first, second);
}
// (ẋ₀ − y·ẋ₁) / x₁
std::optional<ValueId> div_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  const ValueId second = e.has(1) ? e.scaled(e.mul(r.outputs[0], r.tangents[1]), -1) : kNoValue;
  return r.emitter.emit1("div", {e.sum(e.fitted(r.tangents[0]), second), r.inputs[1]});
}

std::optional<ValueId> concat_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < r.tangents.size(); ++i) inputs.push_back(e.tangent_or_zero(i));
  return r.emitter.emit1("concat", inputs, r.attributes);
}

// ẋ − Σ exp(y)·ẋ
std::optional<ValueId> log_softmax_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  const ValueId weighted = e.mul(r.emitter.emit1("exp", {r.outputs[0]}), r.tangents[0]);
  const ValueId sums = e.cast(e.sum_from(weighted, e.y().shape.rank() - 1), e.y().dtype);
  return r.emitter.emit1("sub", {r.tangents[0], sums});
}

// Norms: y = n(x)·weight + bias, where the Jacobian of n is symmetric. The reverse rule of n is
// that of the norm without weight and bias.
std::optional<ValueId> norm_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  ValueId sum = kNoValue;
  if (e.has(0)) {
    std::vector<ValueId> plain(r.inputs.size(), kNoValue);
    plain[0] = r.inputs[0];
    sum = TangentEmitter({r.emitter, r.op, plain, r.outputs, r.tangents, r.attributes})
              .reversed(0, r.tangents[0]);
    if (r.inputs.size() > 1 && r.inputs[1] != kNoValue) sum = e.mul(sum, r.inputs[1]);
  }
  if (e.has(1)) sum = e.sum(sum, e.mul(e.again(0, r.inputs[0], 1), r.tangents[1]));
  return e.sum(sum, e.fitted(e.tangent(2)));
}
// In batch_norm gamma is the same for all elements that are normalised together, so the reverse
// rule multiplies by the Jacobian with gamma.
std::optional<ValueId> batch_norm_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  ValueId sum = e.has(0) ? e.reversed(0, r.tangents[0]) : kNoValue;
  if (e.has(1)) {
    const ValueId one = e.scaled(r.inputs[1], 0, 1), zero = e.scaled(r.inputs[2], 0);
    const ValueId normal = r.emitter.emit1("batch_norm", {r.inputs[0], one, zero}, r.attributes);
    sum = e.sum(sum, e.mul(normal, r.tangents[1]));
  }
  return e.sum(sum, e.fitted(r.tangents[2]));
}

// The tangents of the maxima.
std::optional<ValueId> max_pool_tangent(const TangentRequest& r) {
  return r.emitter.emit1("max_pool2d_tangent", {r.tangents[0], r.outputs[1]}, r.attributes);
}

// One row of the Jacobian for each choice of a token: the reverse rule of a unit vector.
std::optional<ValueId> routing_tangent(const TangentRequest& r) {
  const TangentEmitter e(r);
  const int last = e.y().shape.rank() - 1;
  const int64_t count = e.y().shape[last];
  std::vector<ValueId> weights;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> before(static_cast<size_t>(last) + 1, 0), after = before;
    before.back() = i;
    after.back() = count - 1 - i;
    const ValueId one = e.scaled(e.slice(r.outputs[0], last, i, 1), 0, 1);
    const ValueId unit = r.emitter.emit1("pad", {one}, {{"before", before}, {"after", after}});
    const ValueId product = r.emitter.emit1("mul", {e.reversed(0, unit), r.tangents[0]});
    weights.push_back(e.cast(e.sum_from(product, last), e.y().dtype));
  }
  return e.concat(weights, last);
}

struct Row {
  std::string_view op;
  TangentRule rule;
};
constexpr Row kTangentRules[] = {
    {"reshape", linear_in<0>},
    {"transpose", linear_in<0>},
    {"slice", linear_in<0>},
    {"broadcast", linear_in<0>},
    {"identity", linear_in<0>},
    {"dropout", linear_in<0>},
    {"dropout2d", linear_in<0>},
    {"avg_pool2d", linear_in<0>},
    {"upsample2d", linear_in<0>},
    {"rotary", linear_in<0>},
    {"embedding", linear_in<1>},
    {"affine", affine_tangent},
    {"pad", pad_tangent},
    {"sinusoidal_positions", same_tangent},
    {"reduce", reduce_tangent},
    {"cast", cast_tangent},
    {"add", add_tangent},
    {"sub", sub_tangent},
    {"mul", mul_tangent},
    {"div", div_tangent},
    {"concat", concat_tangent},
    {"matmul", product_tangent},
    {"conv2d", product_tangent},
    {"conv2d_backward_input", product_tangent},
    {"softmax", symmetric},
    {"log_softmax", log_softmax_tangent},
    {"layer_norm", norm_tangent},
    {"rms_norm", norm_tangent},
    {"group_norm", norm_tangent},
    {"batch_norm", batch_norm_tangent},
    {"max_pool2d", max_pool_tangent},
    {"adaptive_max_pool2d", max_pool_tangent},
    {"attention", attention_tangent},
    {"recurrent", recurrent_tangent},
    {"top_k_routing", routing_tangent},
    {"dispatch_tokens", bilinear_in<0, 3>},
    {"grouped_matmul", bilinear_in<0, 1>},
    {"combine_experts", bilinear_in<0, 3>},
};
constexpr std::array<std::string_view, 4> kLosses{"softmax_cross_entropy", "weighted_cross_entropy",
                                                  "elementwise_loss", "router_losses"};

// Σ gradient·ẋ
ValueId loss_derivative(const TangentRequest& r, ValueId seed) {
  const TangentEmitter e(r);
  return e.reshaped(e.sum_from(r.emitter.emit1("mul", {e.reversed(0, seed), r.tangents[0]}), 0),
                    {1});
}

}  // namespace

bool is_loss(const OpDef& op) {
  return std::ranges::find(kLosses, op.name) != kLosses.end();
}

std::optional<ValueId> tangent(const TangentRequest& request, ValueId seed) {
  if (is_loss(request.op)) {
    if (seed == kNoValue || request.tangents[0] == kNoValue) return std::nullopt;
    return loss_derivative(request, seed);
  }
  const auto row = std::ranges::find(kTangentRules, request.op.name, &Row::op);
  if (row != std::end(kTangentRules)) return row->rule(request);
  // Functions of one value, element by element: their Jacobian is diagonal.
  if (request.op.elementwise && request.op.gradient != nullptr && request.inputs.size() == 1) {
    return symmetric(request);
  }
  return std::nullopt;
}

}  // namespace dltrain
