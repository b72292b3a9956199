#include "ops/tangents.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "ops/rules.h"

namespace dltrain {
namespace {

using Rule = std::optional<ValueId> (*)(const TangentRequest& r);

// Emits the ops that several rules need.
class Emit {
 public:
  explicit Emit(const TangentRequest& r) : r_(r), e_(r.emitter) {}

  ValueId tangent(size_t i) const { return i < r_.tangents.size() ? r_.tangents[i] : kNoValue; }
  bool has(size_t i) const { return tangent(i) != kNoValue; }
  TensorSpec y() const { return e_.spec(r_.outputs[0]); }

  ValueId scaled(ValueId x, double scale, double shift = 0) const {
    return e_.emit1("affine", {x}, {{"scale", scale}, {"shift", shift}});
  }
  ValueId cast(ValueId x, DType dtype) const { return cast_to(e_, x, dtype); }
  ValueId mul(ValueId a, ValueId b) const {
    return e_.emit1("mul", {cast(a, y().dtype), cast(b, y().dtype)});
  }
  // Returns a + b, where each may be absent, in the shape and dtype of y.
  ValueId sum(ValueId a, ValueId b) const {
    if (a == kNoValue || b == kNoValue) return a == kNoValue ? b : fitted(a);
    return fitted(e_.emit1("add", {cast(a, y().dtype), cast(b, y().dtype)}));
  }
  ValueId fitted(ValueId x) const {
    if (x == kNoValue) return x;
    x = cast(x, y().dtype);
    if (e_.spec(x).shape == y().shape) return x;
    const Shape shape = y().shape;
    return e_.emit1("broadcast", {x},
                    {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
  }
  // Emits the op with another input, and without optional ones from `count` on.
  ValueId again(size_t input, ValueId value, size_t count = SIZE_MAX,
                const Attributes* attributes = nullptr) const {
    std::vector<ValueId> inputs(r_.inputs.begin(), r_.inputs.end());
    inputs.resize(std::min(count, inputs.size()));
    inputs[input] = value;
    return e_.emit1(r_.op.name, std::move(inputs),
                    attributes != nullptr ? *attributes : r_.attributes);
  }
  // Emits the reverse rule of the op with `value` as the gradient of y; returns that of an input.
  ValueId reversed(size_t input, ValueId value) const {
    std::vector<bool> wanted(r_.inputs.size(), false);
    wanted[input] = true;
    std::vector<ValueId> gradients(r_.outputs.size(), kNoValue);
    gradients[0] = value;
    return r_.op.gradient({.emitter = e_,
                           .inputs = r_.inputs,
                           .outputs = r_.outputs,
                           .output_gradients = gradients,
                           .wanted = wanted,
                           .attributes = r_.attributes})[input];
  }

 private:
  const TangentRequest& r_;
  OpEmitter& e_;
};

// y is linear in one input, on which alone it depends.
template <size_t input>
std::optional<ValueId> linear_in(const TangentRequest& r) {
  return Emit(r).again(input, r.tangents[input]);
}
// The same without a constant that the attributes add.
std::optional<ValueId> affine_tangent(const TangentRequest& r) {
  return Emit(r).scaled(r.tangents[0], r.attributes.number("scale", 1.0));
}
std::optional<ValueId> pad_tangent(const TangentRequest& r) {
  Attributes attributes = r.attributes;
  attributes.erase("value");
  return Emit(r).again(0, r.tangents[0], SIZE_MAX, &attributes);
}
std::optional<ValueId> same_tangent(const TangentRequest& r) {
  return r.tangents[0];
}
std::optional<ValueId> reduce_tangent(const TangentRequest& r) {
  if (r.attributes.text("kind") == "max") return std::nullopt;
  return Emit(r).again(0, r.tangents[0]);
}
std::optional<ValueId> cast_tangent(const TangentRequest& r) {
  return is_floating(r.emitter.spec(r.outputs[0]).dtype) ? linear_in<0>(r) : kNoValue;
}

// The Jacobian by the first input is symmetric, so the reverse rule multiplies by it too.
std::optional<ValueId> symmetric(const TangentRequest& r) {
  return Emit(r).reversed(0, r.tangents[0]);
}

// Products: linear in each of two inputs; a third one is added.
std::optional<ValueId> product_tangent(const TangentRequest& r) {
  const Emit e(r);
  ValueId sum = kNoValue;
  for (size_t i = 0; i < 2; ++i) {
    if (e.has(i)) sum = e.sum(sum, e.again(i, r.tangents[i], 2));
  }
  return e.sum(sum, e.fitted(e.tangent(2)));
}

std::optional<ValueId> add_tangent(const TangentRequest& r) {
  const Emit e(r);
  return e.sum(e.fitted(r.tangents[0]), e.fitted(r.tangents[1]));
}
std::optional<ValueId> sub_tangent(const TangentRequest& r) {
  const Emit e(r);
  const ValueId second = e.has(1) ? e.scaled(r.tangents[1], -1) : kNoValue;
  return e.sum(e.fitted(r.tangents[0]), e.fitted(second));
}
std::optional<ValueId> mul_tangent(const TangentRequest& r) {
  const Emit e(r);
  const ValueId first = e.has(0) ? e.mul(r.tangents[0], r.inputs[1]) : kNoValue;
  const ValueId second = e.has(1) ? e.mul(r.inputs[0], r.tangents[1]) : kNoValue;
  return e.sum(first, second);
}
// (ẋ₀ − y·ẋ₁) / x₁
std::optional<ValueId> div_tangent(const TangentRequest& r) {
  const Emit e(r);
  const ValueId second = e.has(1) ? e.scaled(e.mul(r.outputs[0], r.tangents[1]), -1) : kNoValue;
  return r.emitter.emit1("div", {e.sum(e.fitted(r.tangents[0]), second), r.inputs[1]});
}

std::optional<ValueId> concat_tangent(const TangentRequest& r) {
  const Emit e(r);
  std::vector<ValueId> inputs(r.tangents.begin(), r.tangents.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNoValue) inputs[i] = e.scaled(r.inputs[i], 0);
  }
  return r.emitter.emit1("concat", inputs, r.attributes);
}

// ẋ − Σ exp(y)·ẋ
std::optional<ValueId> log_softmax_tangent(const TangentRequest& r) {
  const Emit e(r);
  const Shape shape = e.y().shape;
  std::vector<int64_t> kept(shape.begin(), shape.end());
  kept.back() = 1;
  const ValueId weighted = e.mul(r.emitter.emit1("exp", {r.outputs[0]}), r.tangents[0]);
  const ValueId sums =
      r.emitter.emit1("reduce", {weighted},
                      {{"kind", "sum"}, {"axes", std::vector<int64_t>{int64_t{shape.rank()} - 1}}});
  const ValueId rows = r.emitter.emit1("reshape", {e.cast(sums, e.y().dtype)}, {{"shape", kept}});
  return r.emitter.emit1("sub", {r.tangents[0], rows});
}

// Norms: y = n(x)·weight + bias, where the Jacobian of n is symmetric. The reverse rule of n is
// that of the norm without weight and bias.
std::optional<ValueId> norm_tangent(const TangentRequest& r) {
  const Emit e(r);
  ValueId sum = kNoValue;
  if (e.has(0)) {
    std::vector<ValueId> plain(r.inputs.size(), kNoValue);
    plain[0] = r.inputs[0];
    sum = Emit({r.emitter, r.op, plain, r.outputs, r.tangents, r.attributes})
              .reversed(0, r.tangents[0]);
    if (r.inputs.size() > 1 && r.inputs[1] != kNoValue) sum = e.mul(sum, r.inputs[1]);
  }
  if (e.has(1)) sum = e.sum(sum, e.mul(e.again(0, r.inputs[0], 1), r.tangents[1]));
  return e.sum(sum, e.fitted(e.tangent(2)));
}
// In batch_norm gamma is the same for all elements that are normalised together, so the reverse
// rule multiplies by the Jacobian with gamma.
std::optional<ValueId> batch_norm_tangent(const TangentRequest& r) {
  const Emit e(r);
  ValueId sum = e.has(0) ? e.reversed(0, r.tangents[0]) : kNoValue;
  if (e.has(1)) {
    const ValueId one = e.scaled(r.inputs[1], 0, 1), zero = e.scaled(r.inputs[2], 0);
    const ValueId normal = r.emitter.emit1("batch_norm", {r.inputs[0], one, zero}, r.attributes);
    sum = e.sum(sum, e.mul(normal, r.tangents[1]));
  }
  return e.sum(sum, e.fitted(r.tangents[2]));
}

// For windows that do not overlap: the reverse rule, given ones, marks the maxima with ones. The
// tangent of a maximum is the sum over its window of the tangents that are marked.
std::optional<ValueId> max_pool_tangent(const TangentRequest& r) {
  const auto kernel = r.attributes.integers("kernel"),
             stride = r.attributes.integers("stride", kernel);
  if (stride[0] < kernel[0] || stride[1] < kernel[1] || r.attributes.boolean("ceil_mode", false)) {
    return std::nullopt;
  }
  const Emit e(r);
  const ValueId marks = e.reversed(0, e.scaled(r.outputs[0], 0, 1));
  const ValueId marked = r.emitter.emit1("mul", {marks, r.tangents[0]});
  const ValueId mean = r.emitter.emit1("avg_pool2d", {marked},
                                       {{"kernel", kernel},
                                        {"stride", stride},
                                        {"padding", r.attributes.integers("padding", {0, 0})},
                                        {"count_include_pad", true}});
  return e.scaled(mean, static_cast<double>(kernel[0] * kernel[1]));
}

struct Row {
  std::string_view op;
  Rule rule;
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
};
constexpr std::array<std::string_view, 3> kLosses{"softmax_cross_entropy", "weighted_cross_entropy",
                                                  "elementwise_loss"};

// Σ gradient·ẋ of a loss
ValueId loss_derivative(const TangentRequest& r, ValueId seed) {
  const Emit e(r);
  const ValueId product = r.emitter.emit1("mul", {e.reversed(0, seed), r.tangents[0]});
  std::vector<int64_t> axes(static_cast<size_t>(r.emitter.spec(product).shape.rank()));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return r.emitter.emit1("reduce", {product}, {{"kind", "sum"}, {"axes", axes}});
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
