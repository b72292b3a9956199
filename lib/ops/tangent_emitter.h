// The ops that several forward-mode rules (ops/tangents.h) emit.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/gathered_parts.h"
#include "ops/rules.h"
#include "ops/tangents.h"

namespace dltrain {

class TangentEmitter {
 public:
  explicit TangentEmitter(const TangentRequest& r) : r_(r), e_(r.emitter) {}

  ValueId tangent(size_t i) const { return i < r_.tangents.size() ? r_.tangents[i] : kNoValue; }
  bool has(size_t i) const { return tangent(i) != kNoValue; }
  ValueId input(size_t i) const { return i < r_.inputs.size() ? r_.inputs[i] : kNoValue; }
  TensorSpec y() const { return e_.spec(r_.outputs[0]); }

  ValueId scaled(ValueId x, double scale, double shift = 0) const {
    return e_.scaled(x, scale, shift);
  }
  // Returns the tangent of an input, or zeros.
  ValueId tangent_or_zero(size_t i) const { return has(i) ? tangent(i) : scaled(input(i), 0); }
  ValueId cast(ValueId x, DType dtype) const { return cast_to(e_, x, dtype); }
  ValueId mul(ValueId a, ValueId b) const {
    return e_.emit1("mul", {cast(a, y().dtype), cast(b, y().dtype)});
  }
  ValueId add(ValueId a, ValueId b) const {
    return e_.emit1("add", {cast(a, y().dtype), cast(b, y().dtype)});
  }
  // Returns a + b, where each may be absent, in the shape and dtype of y.
  ValueId sum(ValueId a, ValueId b) const {
    if (a == kNoValue || b == kNoValue) return a == kNoValue ? b : fitted(a);
    return fitted(add(a, b));
  }
  ValueId fitted(ValueId x) const {
    if (x == kNoValue) return x;
    x = cast(x, y().dtype);
    return e_.spec(x).shape == y().shape ? x : repeated(x, y().shape);
  }
  ValueId repeated(ValueId x, const Shape& shape) const {
    return e_.emit1("broadcast", {x}, {{"shape", shape.list()}});
  }
  ValueId reshaped(ValueId x, const Shape& shape) const { return e_.reshape(x, shape); }
  // Returns elements [begin, begin + count) of an axis.
  ValueId slice(ValueId x, int axis, int64_t begin, int64_t count) const {
    return emit_range(e_, x, axis, {begin, count});
  }
  ValueId concat(std::vector<ValueId> parts, int axis) const {
    return e_.emit1("concat", std::move(parts), {{"axis", int64_t{axis}}});
  }
  // Sums over the axes from `axis` on, which become 1.
  ValueId sum_from(ValueId x, int axis) const {
    Shape shape = e_.spec(x).shape;
    std::vector<int64_t> axes;
    for (int i = axis; i < shape.rank(); ++i) {
      axes.push_back(i);
      shape[i] = 1;
    }
    return reshaped(e_.emit1("reduce", {x}, {{"kind", "sum"}, {"axes", axes}}), shape);
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

using TangentRule = std::optional<ValueId> (*)(const TangentRequest& r);

// Rules with files of their own.
std::optional<ValueId> attention_tangent(const TangentRequest& r);
std::optional<ValueId> recurrent_tangent(const TangentRequest& r);

}  // namespace dltrain
