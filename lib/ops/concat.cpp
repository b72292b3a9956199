// concat(x0, x1, …): the inputs concatenated along `axis` (attribute); all other extents and the
// dtype are equal. Any dtype.
#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/gathered_parts.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

constexpr size_t kMaxInputs = 256;

SpecList infer_concat(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("concat", inputs, 1, kMaxInputs);
  const int64_t axis = attributes.integer("axis");
  TensorSpec y = inputs[0];
  if (axis < 0 || axis >= y.shape.rank()) {
    fail(ExitCode::usage, "concat: axis {} of {}", axis, to_string(y.shape));
  }
  const int at = static_cast<int>(axis);
  for (const TensorSpec& spec : inputs.subspan(1)) {
    expect_dtype("concat", "an input", spec, y.dtype);
    Shape other = spec.shape;
    if (other.rank() == y.shape.rank()) other[at] = y.shape[at];
    if (!(other == y.shape)) {
      fail(ExitCode::usage, "concat: {} and {} differ in more than axis {}",
           to_string(inputs[0].shape), to_string(spec.shape), axis);
    }
    y.shape[at] += spec.shape[at];
  }
  return {y};
}

std::vector<ValueId> gradient_concat(const GradientRequest& r) {
  const auto axis = static_cast<int>(r.attributes.integer("axis"));
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  int64_t begin = 0;
  for (size_t i = 0; i < r.inputs.size(); ++i) {
    const int64_t extent = r.emitter.spec(r.inputs[i]).shape[axis];
    if (r.wanted[i]) {
      out[i] = emit_range(r.emitter, r.output_gradients[0], axis, {begin, extent});
    }
    begin += extent;
  }
  return out;
}

// Along the sharded axis the result has the parts of all inputs.
std::optional<std::vector<Placement>> place_concat(SpecSpan, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  const bool joins =
      p[0].kind == Placement::sharded && p[0].dimension == attributes.integer("axis");
  Placement out = p[0];
  for (const Placement& other : p.subspan(1)) {
    const bool fits =
        joins ? other.kind == p[0].kind && other.dimension == p[0].dimension : other == p[0];
    if (!fits) return {};
    if (joins) out.parts.insert(out.parts.end(), other.parts.begin(), other.parts.end());
  }
  return {{out}};
}

int tokens_of_concat(const TokenAxes& node) {
  const int at = node.axes[0];
  const bool alike = std::ranges::all_of(node.axes, [&](int axis) { return axis == at; });
  return alike && node.attributes.integer("axis") != at ? at : kMixesTokens;
}

}  // namespace

constinit const OpDef kConcatOp{.name = "concat",
                                .doc = "the inputs concatenated along an axis",
                                .infer = infer_concat,
                                .gradient = gradient_concat,
                                .place = place_concat,
                                .autocast = CastPolicy::follow,
                                .token_axis = tokens_of_concat};

}  // namespace dltrain
