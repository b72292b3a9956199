// conv2d: y = x ∗ w (+ bias), then an optional activation (cross-correlation, as everywhere in the
// field).
//
//   x [N, H, W, Cin]   w [Cout, KH, KW, Cin/groups]   bias [Cout], optional   y [N, OH, OW, Cout]
//
// Attributes: stride, padding, dilation (two integers each: height, width), groups, activation (set
// by the fuse pass, as for matmul).
//
// conv2d_backward_input(dy, w)    → dx; attribute input_shape. It is also the forward of a
//                                   transposed convolution, hence its gradient rule.
// conv2d_backward_weight(dy, x)   → dw in the accumulation dtype; attribute weight_shape
// The bias gradient is a reduce of dy over N, OH, OW.
#include "ops/conv2d.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_conv2d(SpecSpan inputs, const Attributes& attributes) {
  const Shape y =
      conv2d_output_shape(inputs[0].shape, inputs[1].shape, Conv2dAttributes(attributes));
  return {{y, inputs[0].dtype}};
}

std::vector<ValueId> gradient_conv2d(const GradientRequest& r) {
  OpEmitter& e = r.emitter;
  const ValueId x = r.inputs[0], w = r.inputs[1], dy = r.output_gradients[0];
  check_internal(r.attributes.text("activation").empty(),
                 "conv2d: an activation is fused after the reverse pass only");
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  if (r.wanted[0]) out[0] = e.emit1("conv2d_backward_input", {dy, w}, with_input_shape(r));
  if (r.wanted[1]) {
    Attributes attributes = r.attributes;
    attributes.set("weight_shape", e.spec(w).shape.list());
    out[1] = e.emit1("conv2d_backward_weight", {dy, x}, attributes);
  }
  if (r.inputs.size() == 3 && r.inputs[2] != kNoValue && r.wanted[2]) {
    out[2] = e.emit1("reduce", {dy}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1, 2}}});
  }
  return out;
}

// Samples may be sharded, outputs if those of w are, as for a product; partial sums where the
// channels of x and w are.
std::optional<std::vector<Placement>> place_conv2d(SpecSpan inputs, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  const bool has_bias = p.size() == 3 && !is_absent(inputs[2]);
  const Placement &x = p[0], &w = p[1], &bias = has_bias ? p[2] : kReplicated;
  const auto cuts = [](const Placement& of, int dimension) {
    return of.kind == Placement::sharded && of.dimension == dimension;
  };
  if (attributes.integer("groups", 1) != 1) return {};
  if (cuts(x, 0) && w == kReplicated && bias == kReplicated) return {{x}};
  if (x == kReplicated && cuts(w, 0) && (!has_bias || bias == w)) return {{w.moved_to(3)}};
  if (cuts(x, 3) && w == x && !has_bias && attributes.text("activation").empty()) {
    return {{kPartial}};
  }
  return {};
}

SpecList infer_backward_input(SpecSpan inputs, const Attributes& attributes) {
  const Shape x(attributes.integers("input_shape"));
  expect_shape("conv2d_backward_input", "dy", inputs[0].shape,
               conv2d_output_shape(x, inputs[1].shape, Conv2dAttributes(attributes)));
  return {{x, inputs[0].dtype}};
}

// dx is linear in dy and in w: ⟨g, dx⟩ = ⟨conv2d(g, w), dy⟩.
std::vector<ValueId> gradient_backward_input(const GradientRequest& r) {
  OpEmitter& e = r.emitter;
  const ValueId dy = r.inputs[0], w = r.inputs[1], g = r.output_gradients[0];
  Attributes attributes = r.attributes;
  attributes.erase("input_shape");
  std::vector<ValueId> out(2, kNoValue);
  if (r.wanted[0]) out[0] = e.emit1("conv2d", {g, w}, attributes);
  if (r.wanted[1]) {
    attributes.set("weight_shape", e.spec(w).shape.list());
    out[1] = e.emit1("conv2d_backward_weight", {dy, g}, attributes);
  }
  return out;
}

SpecList infer_backward_weight(SpecSpan inputs, const Attributes& attributes) {
  const Shape w(attributes.integers("weight_shape"));
  expect_shape("conv2d_backward_weight", "dy", inputs[0].shape,
               conv2d_output_shape(inputs[1].shape, w, Conv2dAttributes(attributes)));
  return {{w, accumulation_dtype(inputs[0].dtype)}};
}

// Multiply-adds of one pass over all outputs, counted from dy (or y) and w.
Cost pass_cost_conv2d(const Shape& y, const Shape& w, SpecSpan inputs, SpecSpan outputs) {
  return {2.0 * static_cast<double>(y.elements()) * static_cast<double>(w.elements(1, 4)),
          bytes_moved(inputs, outputs)};
}
Cost cost_conv2d(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_conv2d(outputs[0].shape, inputs[1].shape, inputs, outputs);
}
Cost cost_backward_input(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_conv2d(inputs[0].shape, inputs[1].shape, inputs, outputs);
}
Cost cost_backward_weight(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_conv2d(inputs[0].shape, outputs[0].shape, inputs, outputs);
}

void read_pair(const Attributes& attributes, std::string_view name, int64_t* pair) {
  const auto values = attributes.integers(name);
  if (values.empty()) return;
  check_internal(values.size() == 2, "conv2d: {} has {} values", name, values.size());
  pair[0] = values[0];
  pair[1] = values[1];
}

}  // namespace

Conv2dAttributes::Conv2dAttributes(const Attributes& attributes) {
  read_pair(attributes, "stride", stride);
  read_pair(attributes, "padding", padding);
  read_pair(attributes, "dilation", dilation);
  groups = attributes.integer("groups", 1);
}

Shape conv2d_output_shape(const Shape& x, const Shape& w, const Conv2dAttributes& a) {
  if (a.groups < 1 || x[3] % a.groups != 0 || w[0] % a.groups != 0 || w[3] != x[3] / a.groups) {
    fail(ExitCode::usage, "conv2d: input {} and weight {} do not match with {} group{}",
         to_string(x), to_string(w), a.groups, a.groups == 1 ? "" : "s");
  }
  return Shape{x[0], window_extent("conv2d", x[1], w[1], a.stride[0], a.padding[0], a.dilation[0]),
               window_extent("conv2d", x[2], w[2], a.stride[1], a.padding[1], a.dilation[1]), w[0]};
}

constinit const OpDef kConv2dOp{.name = "conv2d",
                                .doc = "y = x ∗ w (+ bias), then an optional activation",
                                .signature = "x[N,H,W,I] w[O,A,B,J] bias[O]?",
                                .infer = infer_conv2d,
                                .gradient = gradient_conv2d,
                                .place = place_conv2d,
                                .cost = cost_conv2d,
                                .autocast = CastPolicy::low,
                                .takes_activation = true,
                                .added_input = 2};
constinit const OpDef kConv2dBackwardInputOp{.name = "conv2d_backward_input",
                                             .doc = "dx of conv2d",
                                             .signature = "dy[N,Y,X,O] w[O,A,B,J]",
                                             .infer = infer_backward_input,
                                             .gradient = gradient_backward_input,
                                             .cost = cost_backward_input,
                                             .autocast = CastPolicy::low};
constinit const OpDef kConv2dBackwardWeightOp{.name = "conv2d_backward_weight",
                                              .doc = "dw of conv2d",
                                              .signature = "dy[N,Y,X,O] x[N,H,W,I]",
                                              .infer = infer_backward_weight,
                                              .cost = cost_backward_weight};

}  // namespace dltrain
