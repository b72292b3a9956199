// Element-wise ops (elementwise_list.h). Unary ops and activations keep shape and dtype; binary ops
// broadcast as numpy. affine has the numbers `scale` and `shift` as attributes; identity adds x
// into y as an accumulating kernel; cast has the attribute `dtype` (text).
//
// gelu_tanh is 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))) and quick_gelu x·sigmoid(1.702x) (Hendrycks &
// Gimpel 2016). Where an activation is not differentiable, its slope is PyTorch's. leaky_relu and
// elu need non-negative parameters: else the sign of x does not follow from y.
#include "ops/elementwise.h"

#include "ops/definitions.h"
#include "ops/elementwise_list.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

SpecList infer_elementwise_binary(SpecSpan inputs, const Attributes&) {
  expect_inputs("binary op", inputs, 2, 2);
  expect_one_float_dtype("binary op", inputs);
  return {{broadcast_shape("binary op", inputs[0].shape, inputs[1].shape), inputs[0].dtype}};
}

SpecList infer_cast(SpecSpan inputs, const Attributes& attributes) {
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
#define DLTRAIN_GRADIENT(name, known, ...)          \
  Gradients grad_##name(const GradientRequest& r) { \
    return by<From::known>(#name "_backward", r);   \
  }
DLTRAIN_ACTIVATIONS(DLTRAIN_GRADIENT)
#undef DLTRAIN_GRADIENT

Gradients grad_exp(const GradientRequest& r) {
  return {r.emitter.emit1("mul", {r.output_gradients[0], r.outputs[0]})};
}
Gradients grad_log(const GradientRequest& r) {
  return {r.emitter.emit1("div", {r.output_gradients[0], r.inputs[0]})};
}
Gradients grad_sqrt(const GradientRequest& r) {
  const ValueId ratio = r.emitter.emit1("div", {r.output_gradients[0], r.outputs[0]});
  return {r.emitter.scaled(ratio, 0.5)};
}
Gradients grad_square(const GradientRequest& r) {
  const ValueId twice = r.emitter.scaled(r.inputs[0], 2);
  return {r.emitter.emit1("mul", {r.output_gradients[0], twice})};
}
Gradients grad_affine(const GradientRequest& r) {
  return {r.emitter.scaled(r.output_gradients[0], r.attributes.number("scale", 1))};
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

Gradients grad_add(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  return {r.wanted[0] ? fit(r, 0, dy) : kNoValue, r.wanted[1] ? fit(r, 1, dy) : kNoValue};
}
Gradients grad_sub(const GradientRequest& r) {
  const ValueId dy = r.output_gradients[0];
  return {r.wanted[0] ? fit(r, 0, dy) : kNoValue,
          r.wanted[1] ? fit(r, 1, r.emitter.scaled(dy, -1)) : kNoValue};
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
    out[1] = fit(r, 1, r.emitter.scaled(r.emitter.emit1("mul", {r.outputs[0], da}), -1));
  }
  return out;
}

constexpr OpDef unary(std::string_view name, std::string_view doc,
                      Gradients (*gradient)(const GradientRequest&)) {
  return {.name = name,
          .doc = doc,
          .signature = "x[*] -> y[*]",
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
// The same for an op that kernels of products can apply to their result.
constexpr OpDef epilogue(OpDef op) {
  op.ends_product = true;
  return rounded(op);
}
constexpr OpDef copying(OpDef op) {
  op.same_elements = SameElements::copy;
  return rounded(op);
}
// Computed in f32: small differences of large numbers, or results that grow quickly.
constexpr OpDef exact(OpDef op) {
  return op;
}
constexpr OpDef pair(std::string_view name, std::string_view doc) {
  OpDef op = unary(name, doc, nullptr);
  op.signature = "y[*] dy[*] -> dx[*]";
  return op;
}
constexpr OpDef binary(std::string_view name, std::string_view doc,
                       Gradients (*gradient)(const GradientRequest&)) {
  OpDef op = unary(name, doc, gradient);
  op.signature = {};
  op.infer = infer_elementwise_binary;
  return op;
}
constexpr OpDef cast_op() {
  OpDef op = unary("cast", "y = x in another dtype", grad_cast);
  op.signature = "x[*]:any";
  op.infer = infer_cast;
  op.in_place_allowed = false;
  op.elementwise = false;
  op.token_axis = tokens_of_first;
  op.same_elements = SameElements::cast;
  return op;
}

#define DLTRAIN_ACTIVATION(name, known, trait, doc, ...) trait(unary(#name, doc, grad_##name)),
#define DLTRAIN_ACTIVATION_GRADIENT(name, known, trait, doc, gradient_doc) \
  pair(#name "_backward", gradient_doc),
#define DLTRAIN_FUNCTION(name, trait, doc) trait(unary(#name, doc, grad_##name)),
#define DLTRAIN_BINARY(name, trait, doc) trait(binary(#name, doc, grad_##name)),
constinit const OpDef kTable[] = {
    DLTRAIN_ACTIVATIONS(DLTRAIN_ACTIVATION) DLTRAIN_FUNCTIONS(DLTRAIN_FUNCTION) cast_op(),
    DLTRAIN_ACTIVATIONS(DLTRAIN_ACTIVATION_GRADIENT) DLTRAIN_BINARIES(DLTRAIN_BINARY)};
#undef DLTRAIN_ACTIVATION
#undef DLTRAIN_ACTIVATION_GRADIENT
#undef DLTRAIN_FUNCTION
#undef DLTRAIN_BINARY

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
