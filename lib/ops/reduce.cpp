// reduce:    y = sum, mean or max of x over `axes` (attribute, integers); the axes disappear.
//            Attribute kind: "sum", "mean", "max". The result has the accumulation dtype.
// broadcast: y = x repeated along the axes where x has extent 1, to attribute `shape`.
// reshape:   the same memory under another shape (attribute `shape`); no copy.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

// The input's shape with extent 1 at the reduced axes.
Shape keep_axes(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape kept = shape;
  for (int64_t axis : axes) kept[static_cast<int>(axis)] = 1;
  return kept;
}

SpecList infer_reduce(SpecSpan inputs, const Attributes& attributes) {
  const std::string kind = attributes.text("kind");
  check_internal(kind == "sum" || kind == "mean" || kind == "max", "reduce: kind \"{}\"", kind);
  const Shape& x = inputs[0].shape;
  std::vector<bool> gone(static_cast<size_t>(x.rank()), false);
  for (int64_t axis : attributes.integers("axes")) {
    if (axis < 0 || axis >= x.rank() || gone[static_cast<size_t>(axis)]) {
      fail(ExitCode::usage, "reduce: axis {} of {}", axis, to_string(x));
    }
    gone[static_cast<size_t>(axis)] = true;
  }
  std::vector<int64_t> rest;
  for (int i = 0; i < x.rank(); ++i) {
    if (!gone[static_cast<size_t>(i)]) rest.push_back(x[i]);
  }
  if (rest.empty()) rest.push_back(1);
  return {{Shape(rest), accumulation_dtype(inputs[0].dtype)}};
}

std::vector<ValueId> gradient_reduce(const GradientRequest& r) {
  const std::string kind = r.attributes.text("kind");
  check_internal(kind != "max", "reduce max has no gradient");
  const Shape x = r.emitter.spec(r.inputs[0]).shape;
  const auto axes = r.attributes.integers("axes");
  ValueId dx = r.emitter.reshape(r.output_gradients[0], keep_axes(x, axes));
  dx = cast_to(r.emitter, dx, r.emitter.spec(r.inputs[0]).dtype);
  if (kind == "mean") {
    int64_t n = 1;
    for (int64_t axis : axes) n *= x[static_cast<int>(axis)];
    dx = r.emitter.scaled(dx, 1.0 / static_cast<double>(n));
  }
  return {r.emitter.emit1("broadcast", {dx}, {{"shape", x.list()}})};
}

std::optional<std::vector<Placement>> place_reduce(SpecSpan, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  if (p[0].kind != Placement::sharded) return {};
  const auto axes = attributes.integers("axes");
  int removed_before = 0;
  for (int64_t axis : axes) {
    if (axis == p[0].dimension) {
      if (attributes.text("kind") != "sum") return {};
      return {{kPartial}};
    }
    removed_before += axis < p[0].dimension ? 1 : 0;
  }
  return {{p[0].moved_to(p[0].dimension - removed_before)}};
}

SpecList infer_broadcast(SpecSpan inputs, const Attributes& attributes) {
  const Shape to(attributes.integers("shape"));
  expect_shape("broadcast", "the result", broadcast_shape("broadcast", inputs[0].shape, to), to);
  return {{to, inputs[0].dtype}};
}

std::vector<ValueId> gradient_broadcast(const GradientRequest& r) {
  return {reduce_to_shape(r.emitter, r.output_gradients[0], r.emitter.spec(r.inputs[0]).shape)};
}

SpecList infer_reshape(SpecSpan inputs, const Attributes& attributes) {
  const Shape to(attributes.integers("shape"));
  if (to.elements() != inputs[0].shape.elements()) {
    fail(ExitCode::usage, "reshape: {} has {} elements, {} has {}", to_string(inputs[0].shape),
         inputs[0].shape.elements(), to_string(to), to.elements());
  }
  return {{to, inputs[0].dtype}};
}

std::vector<ValueId> gradient_reshape(const GradientRequest& r) {
  return {r.emitter.reshape(r.output_gradients[0], r.emitter.spec(r.inputs[0]).shape)};
}

std::optional<std::vector<Placement>> place_reshape(SpecSpan inputs, const Attributes& attributes,
                                                    std::span<const Placement> p) {
  const Placement out = reshaped(p[0], inputs[0].shape, Shape(attributes.integers("shape")));
  return out == kReplicated ? std::nullopt : std::optional(std::vector{out});
}
void localize_shape(Attributes& attributes, const LocalNode& node) {
  attributes.set("shape", node.local.shape.list());
}

int tokens_of_reshape(const TokenAxes& node) {
  const int from = node.axes[0];
  const Shape &x = node.inputs[0].shape, &y = node.outputs[0].shape;
  const auto fits = [&](int at) {
    return at < y.rank() && y.elements(0, at) == x.elements(0, from) && y[at] == x[from];
  };
  if (fits(from)) return from;  // prefer it: extents of 1 can fit several axes
  for (int i = 0; i < y.rank(); ++i) {
    if (fits(i)) return i;
  }
  return kMixesTokens;
}

}  // namespace

constinit const OpDef kReduceOp{.name = "reduce",
                                .doc = "y = sum, mean or max of x over axes",
                                .signature = "x[*]",
                                .infer = infer_reduce,
                                .gradient = gradient_reduce,
                                .place = place_reduce,
                                .autocast = CastPolicy::follow_first};
constinit const OpDef kBroadcastOp{.name = "broadcast",
                                   .doc = "y = x repeated along axes of extent 1",
                                   .signature = "x[*]:any",
                                   .infer = infer_broadcast,
                                   .gradient = gradient_broadcast,
                                   .autocast = CastPolicy::follow,
                                   .token_axis = tokens_of_elements,
                                   .localize_tokens = localize_token_shape};
constinit const OpDef kReshapeOp{.name = "reshape",
                                 .doc = "x with another shape, without a copy",
                                 .signature = "x[*]:any",
                                 .infer = infer_reshape,
                                 .gradient = gradient_reshape,
                                 .place = place_reshape,
                                 .localize = localize_shape,
                                 .aliases = alias_first,
                                 .autocast = CastPolicy::follow,
                                 .token_axis = tokens_of_reshape,
                                 .localize_tokens = localize_token_shape,
                                 .same_elements = SameElements::view};

}  // namespace dltrain
