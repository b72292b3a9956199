// Element-wise ops. Unary ops and activations keep shape and dtype; binary ops broadcast as numpy.
//
//   relu, gelu (erf), gelu_tanh, silu, tanh, …           y = f(x), an activation
//   <activation>_backward                                dx = dy · f'(x); its first operand is the
//                                                        output y where f' follows from it (relu,
//                                                        tanh, sigmoid, leaky_relu, elu, selu,
//                                                        hardsigmoid), else the input x
//   exp, log, sqrt, square                               y = f(x)
//   affine   y = x · scale + shift (attributes, numbers)
//   identity y = x; as an accumulating kernel it adds x into y
//   cast     y = x in the dtype of attribute `dtype` (text)
//   add, sub, mul, div                                   y = a ∘ b
//
// gelu_tanh is 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))) and quick_gelu x·sigmoid(1.702x) (Hendrycks &
// Gimpel 2016). Where an activation is not differentiable, its slope is PyTorch's. leaky_relu and
// elu need non-negative parameters: else the sign of x does not follow from y.
#include "ops/elementwise.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

SpecList infer_unary(SpecSpan inputs, const Attributes&) {
  expect_inputs("unary op", inputs, 1, 1);
  expect_one_float_dtype("unary op", inputs);
  return {inputs[0]};
}

SpecList infer_pair(SpecSpan inputs, const Attributes&) {
  expect_inputs("activation gradient", inputs, 2, 2);
  expect_shape("activation gradient", "dy", inputs[1].shape, inputs[0].shape);
  expect_one_float_dtype("activation gradient", inputs);
  return {inputs[1]};
}

SpecList infer_elementwise_binary(SpecSpan inputs, const Attributes&) {
  expect_inputs("binary op", inputs, 2, 2);
  expect_one_float_dtype("binary op", inputs);
  return {{broadcast_shape("binary op", inputs[0].shape, inputs[1].shape), inputs[0].dtype}};
}

SpecList infer_cast(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("cast", inputs, 1, 1);
  return {{inputs[0].shape, dtype_from_name(attributes.text("dtype")).value()}};
}

Cost cost_elementwise(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {static_cast<double>(outputs[0].shape.elements()), bytes_moved(inputs, outputs)};
}

using Gradients = std::vector<ValueId>;

// Emits the gradient op `name` of an activation, which reads its output or its input.
enum class From { output, input };
template <From from>
Gradients by(std::string_view name, const GradientRequest& r) {
  const ValueId known = from == From::output ? r.outputs[0] : r.inputs[0];
  return {r.emitter.emit1(name, {known, r.output_gradients[0]}, r.attributes)};
}
Gradients grad_relu(const GradientRequest& r) {
  return by<From::output>("relu_backward", r);
}
Gradients grad_tanh(const GradientRequest& r) {
  return by<From::output>("tanh_backward", r);
}
Gradients grad_sigmoid(const GradientRequest& r) {
  return by<From::output>("sigmoid_backward", r);
}
Gradients grad_leaky_relu(const GradientRequest& r) {
  return by<From::output>("leaky_relu_backward", r);
}
Gradients grad_elu(const GradientRequest& r) {
  return by<From::output>("elu_backward", r);
}
Gradients grad_selu(const GradientRequest& r) {
  return by<From::output>("selu_backward", r);
}
Gradients grad_hardsigmoid(const GradientRequest& r) {
  return by<From::output>("hardsigmoid_backward", r);
}
Gradients grad_hardtanh(const GradientRequest& r) {
  return by<From::input>("hardtanh_backward", r);
}
Gradients grad_gelu(const GradientRequest& r) {
  return by<From::input>("gelu_backward", r);
}
Gradients grad_gelu_tanh(const GradientRequest& r) {
  return by<From::input>("gelu_tanh_backward", r);
}
Gradients grad_quick_gelu(const GradientRequest& r) {
  return by<From::input>("quick_gelu_backward", r);
}
Gradients grad_silu(const GradientRequest& r) {
  return by<From::input>("silu_backward", r);
}
Gradients grad_softplus(const GradientRequest& r) {
  return by<From::input>("softplus_backward", r);
}
Gradients grad_mish(const GradientRequest& r) {
  return by<From::input>("mish_backward", r);
}
Gradients grad_hardswish(const GradientRequest& r) {
  return by<From::input>("hardswish_backward", r);
}
Gradients grad_softsign(const GradientRequest& r) {
  return by<From::input>("softsign_backward", r);
}
Gradients grad_exp(const GradientRequest& r) {
  return {r.emitter.emit1("mul", {r.output_gradients[0], r.outputs[0]})};
}
Gradients grad_log(const GradientRequest& r) {
  return {r.emitter.emit1("div", {r.output_gradients[0], r.inputs[0]})};
}
Gradients grad_sqrt(const GradientRequest& r) {
  const ValueId ratio = r.emitter.emit1("div", {r.output_gradients[0], r.outputs[0]});
  return {r.emitter.emit1("affine", {ratio}, {{"scale", 0.5}, {"shift", 0.0}})};
}
Gradients grad_square(const GradientRequest& r) {
  const ValueId twice = r.emitter.emit1("affine", {r.inputs[0]}, {{"scale", 2.0}, {"shift", 0.0}});
  return {r.emitter.emit1("mul", {r.output_gradients[0], twice})};
}
Gradients grad_affine(const GradientRequest& r) {
  return {r.emitter.emit1("affine", {r.output_gradients[0]},
                          {{"scale", r.attributes.number("scale", 1.0)}, {"shift", 0.0}})};
}
Gradients grad_identity(const GradientRequest& r) {
  return {r.output_gradients[0]};
}
Gradients grad_cast(const GradientRequest& r) {
  const std::string dtype(dtype_name(r.emitter.spec(r.inputs[0]).dtype));
  return {r.emitter.emit1("cast", {r.output_gradients[0]}, {{"dtype", dtype}})};
}

// Reduces the gradient of operand i to the operand's shape.
ValueId fit(const GradientRequest& r, size_t i, ValueId gradient) {
  return reduce_to_shape(r.emitter, gradient, r.emitter.spec(r.inputs[i]).shape);
}
ValueId negate(const GradientRequest& r, ValueId x) {
  return r.emitter.emit1("affine", {x}, {{"scale", -1.0}, {"shift", 0.0}});
}

Gradients grad_add(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  return {r.wanted[0] ? fit(r, 0, dy) : kNoValue, r.wanted[1] ? fit(r, 1, dy) : kNoValue};
}
Gradients grad_sub(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  return {r.wanted[0] ? fit(r, 0, dy) : kNoValue,
          r.wanted[1] ? fit(r, 1, negate(r, dy)) : kNoValue};
}
Gradients grad_mul(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  Gradients out(2, kNoValue);
  for (size_t i = 0; i < 2; ++i) {
    if (r.wanted[i]) out[i] = fit(r, i, r.emitter.emit1("mul", {dy, r.inputs[1 - i]}));
  }
  return out;
}
// d(a/b): da = dy/b, db = −(a/b)·dy/b.
Gradients grad_div(const GradientRequest& r) {
  const ValueId da = r.emitter.emit1("div", {r.output_gradients[0], r.inputs[1]});
  Gradients out{r.wanted[0] ? fit(r, 0, da) : kNoValue, kNoValue};
  if (r.wanted[1]) {
    out[1] = fit(r, 1, negate(r, r.emitter.emit1("mul", {r.outputs[0], da})));
  }
  return out;
}

constexpr OpDef unary(std::string_view name, std::string_view doc,
                      Gradients (*gradient)(const GradientRequest&)) {
  return {.name = name,
          .doc = doc,
          .infer = infer_unary,
          .gradient = gradient,
          .place = place_elementwise,
          .cost = cost_elementwise,
          .in_place_allowed = true,
          .elementwise = true,
          .token_axis = tokens_of_elements};
}
// An op whose result may be rounded to 16 bits under autocast.
constexpr OpDef rounded(OpDef op) {
  op.autocast = CastPolicy::follow;
  return op;
}
// Likewise, and kernels of products can apply it to their result.
constexpr OpDef epilogue(OpDef op) {
  op.ends_product = true;
  return rounded(op);
}
constexpr OpDef identity_op() {
  OpDef op = rounded(unary("identity", "y = x", grad_identity));
  op.same_elements = SameElements::copy;
  return op;
}
constexpr OpDef pair(std::string_view name, std::string_view doc) {
  OpDef op = unary(name, doc, nullptr);
  op.infer = infer_pair;
  return op;
}
constexpr OpDef binary(std::string_view name, std::string_view doc,
                       Gradients (*gradient)(const GradientRequest&)) {
  OpDef op = unary(name, doc, gradient);
  op.infer = infer_elementwise_binary;
  return op;
}
constexpr OpDef cast_op() {
  OpDef op = unary("cast", "y = x in another dtype", grad_cast);
  op.infer = infer_cast;
  op.in_place_allowed = false;
  op.elementwise = false;
  op.token_axis = tokens_of_first;
  op.same_elements = SameElements::cast;
  return op;
}

constinit const OpDef kTable[] = {
    epilogue(unary("relu", "y = max(x, 0)", grad_relu)),
    epilogue(unary("gelu", "y = x·Φ(x), with erf", grad_gelu)),
    epilogue(unary("gelu_tanh", "y = x·Φ(x), tanh approximation", grad_gelu_tanh)),
    epilogue(unary("silu", "y = x·sigmoid(x)", grad_silu)),
    epilogue(unary("tanh", "y = tanh(x)", grad_tanh)),
    epilogue(unary("sigmoid", "y = 1 / (1 + exp(-x))", grad_sigmoid)),
    rounded(unary("leaky_relu", "y = x where x > 0, else negative_slope·x", grad_leaky_relu)),
    rounded(unary("elu", "y = x where x > 0, else alpha·(exp(x) - 1)", grad_elu)),
    rounded(unary("selu", "elu scaled so that layers keep mean and variance", grad_selu)),
    rounded(
        unary("softplus", "y = ln(1 + exp(beta·x)) / beta, x beyond the threshold", grad_softplus)),
    rounded(unary("mish", "y = x·tanh(softplus(x))", grad_mish)),
    rounded(unary("hardswish", "y = x·clamp(x + 3, 0, 6) / 6", grad_hardswish)),
    rounded(unary("hardsigmoid", "y = clamp(x + 3, 0, 6) / 6", grad_hardsigmoid)),
    rounded(unary("hardtanh", "y = clamp(x, min_value, max_value)", grad_hardtanh)),
    rounded(unary("softsign", "y = x / (1 + |x|)", grad_softsign)),
    rounded(unary("quick_gelu", "y = x·sigmoid(1.702x)", grad_quick_gelu)),
    unary("exp", "y = exp(x)", grad_exp),
    unary("log", "y = ln(x)", grad_log),
    unary("sqrt", "y = √x", grad_sqrt),
    unary("square", "y = x²", grad_square),
    rounded(unary("affine", "y = x·scale + shift", grad_affine)),
    identity_op(),
    cast_op(),
    pair("relu_backward", "dx = dy where y > 0, else 0"),
    pair("gelu_backward", "dx = dy·gelu'(x)"),
    pair("gelu_tanh_backward", "dx = dy·gelu_tanh'(x)"),
    pair("silu_backward", "dx = dy·silu'(x)"),
    pair("tanh_backward", "dx = dy·(1 - y²)"),
    pair("sigmoid_backward", "dx = dy·y·(1 - y)"),
    pair("leaky_relu_backward", "dx = dy where y > 0, else negative_slope·dy"),
    pair("elu_backward", "dx = dy where y > 0, else dy·(y + alpha)"),
    pair("selu_backward", "dx = dy·selu'(x), from y"),
    pair("softplus_backward", "dx = dy·sigmoid(beta·x)"),
    pair("mish_backward", "dx = dy·mish'(x)"),
    pair("hardswish_backward", "dx = dy·hardswish'(x)"),
    pair("hardsigmoid_backward", "dx = dy / 6 where 0 < y < 1, else 0"),
    pair("hardtanh_backward", "dx = dy where min_value < x < max_value, else 0"),
    pair("softsign_backward", "dx = dy / (1 + |x|)²"),
    pair("quick_gelu_backward", "dx = dy·quick_gelu'(x)"),
    rounded(binary("add", "y = a + b", grad_add)),
    rounded(binary("sub", "y = a - b", grad_sub)),
    rounded(binary("mul", "y = a·b", grad_mul)),
    binary("div", "y = a / b", grad_div),
};

constexpr ElementwiseParameter kAffine[] = {{"scale", 1}, {"shift", 0}};
constexpr ElementwiseParameter kLeakyRelu[] = {{"negative_slope", 0.01}};
constexpr ElementwiseParameter kElu[] = {{"alpha", 1}};
constexpr ElementwiseParameter kSoftplus[] = {{"beta", 1}, {"threshold", 20}};
constexpr ElementwiseParameter kHardtanh[] = {{"min_value", -1}, {"max_value", 1}};

struct Parametrised {
  std::string_view op;
  std::span<const ElementwiseParameter> parameters;
};
constexpr Parametrised kParametrised[] = {
    {"affine", kAffine},     {"leaky_relu", kLeakyRelu},       {"leaky_relu_backward", kLeakyRelu},
    {"elu", kElu},           {"elu_backward", kElu},           {"softplus", kSoftplus},
    {"hardtanh", kHardtanh}, {"softplus_backward", kSoftplus}, {"hardtanh_backward", kHardtanh},
};

}  // namespace

std::span<const OpDef> elementwise_ops() {
  return kTable;
}

std::span<const ElementwiseParameter> elementwise_parameters(std::string_view op) {
  for (const Parametrised& row : kParametrised) {
    if (row.op == op) return row.parameters;
  }
  return {};
}

ElementwiseNumbers elementwise_numbers(std::string_view op, const Attributes& attributes) {
  const auto parameters = elementwise_parameters(op);
  const auto value = [&](size_t i) {
    return i < parameters.size()
               ? attributes.number(parameters[i].attribute, parameters[i].fallback)
               : 0.0;
  };
  return {value(0), value(1)};
}

}  // namespace dltrain
