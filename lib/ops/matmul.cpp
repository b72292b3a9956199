// matmul: y = op(a)·op(b) (+ bias), then an optional activation.
//
//   a     [..., M, K]; flattened to two dimensions [rows, last]; transposed when transpose_a
//   b     [K, N], or [N, K] when transpose_b; two dimensions
//   bias  [N], optional; added to every row
//   y     [..., M, N] (leading extents of a); [last of a, N] when transpose_a
//
// Attributes: transpose_a, transpose_b (bool); activation: "" or the name of a unary activation
// that is applied last (set by the fuse pass); output_dtype (text, default: a's dtype): f32 for
// weight gradients of 16-bit operands. independent_rows (bool): the bits of a row of y must not
// depend on the other rows, nor on the number of threads (batched decoding); for few rows.
// full_precision (bool): autocast leaves it in f32. math (text), here and in the other ops with
// products: tf32 rounds their f32 operands (ops/rules.h).
//
// For kernels that apply GELU, or its derivative, to a product before it is written (fuse pass):
//   matmul_gelu(a, b, bias) → y, x            x = op(a)·op(b) (+ bias), y = gelu_tanh(x)
//   matmul_gelu_backward(a, b, x) → dx        dx = op(a)·op(b) · gelu_tanh'(x)
// with the attributes of transposition; x has the shape of the product. In 16 bits a kernel may
// compute y from x before x is rounded.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

struct Sizes {
  int64_t m, k, n;
};

Sizes sizes(SpecSpan inputs, const Attributes& attributes) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  const int64_t rows = a.elements(0, a.rank() - 1), last = a[-1];
  const bool ta = attributes.boolean("transpose_a"), tb = attributes.boolean("transpose_b");
  return {ta ? last : rows, ta ? rows : last, tb ? b[0] : b[1]};
}

SpecList infer_matmul(SpecSpan inputs, const Attributes& attributes) {
  const Sizes s = sizes(inputs, attributes);
  const Shape& b = inputs[1].shape;
  const int64_t inner = attributes.boolean("transpose_b") ? b[1] : b[0];
  if (inner != s.k) {
    fail(ExitCode::usage, "matmul: inner extents differ: {}{} · {}{}", to_string(inputs[0].shape),
         attributes.boolean("transpose_a") ? "ᵀ" : "", to_string(b),
         attributes.boolean("transpose_b") ? "ᵀ" : "");
  }
  if (inputs.size() == 3 && !is_absent(inputs[2])) {
    expect_shape("matmul", "bias", inputs[2].shape, Shape{s.n});
  }
  Shape y = attributes.boolean("transpose_a") ? Shape{s.m, s.n} : inputs[0].shape;
  y[-1] = s.n;
  const std::string dtype = attributes.text("output_dtype");
  return {{y, dtype.empty() ? inputs[0].dtype : dtype_from_name(dtype).value()}};
}

SpecList infer_matmul_gelu(SpecSpan inputs, const Attributes& attributes) {
  const SpecList x = infer_matmul(inputs, attributes);
  return {x[0], x[0]};
}

SpecList infer_matmul_gelu_backward(SpecSpan inputs, const Attributes& attributes) {
  const SpecList dx = infer_matmul(inputs.first(2), attributes);
  expect_shape("matmul_gelu_backward", "x", inputs[2].shape, dx[0].shape);
  return dx;
}

ValueId flatten_rows(OpEmitter& emitter, ValueId value) {
  const Shape shape = emitter.spec(value).shape;
  return emitter.reshape(value, {shape.elements(0, shape.rank() - 1), shape[-1]});
}

// With y = a·b: da = dy·bᵀ and db = aᵀ·dy; the transposes of the attributes are folded in.
std::vector<ValueId> gradient_matmul(const GradientRequest& r) {
  OpEmitter& e = r.emitter;
  const bool ta = r.attributes.boolean("transpose_a"), tb = r.attributes.boolean("transpose_b");
  check_internal(r.attributes.text("activation").empty(),
                 "matmul: an activation is fused after the reverse pass only");
  const ValueId a = r.inputs[0], b = r.inputs[1], dy = r.output_gradients[0];
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  const auto product = [&](ValueId left, ValueId right, Attributes attributes, const char* fp8) {
    if (r.attributes.is_set(kFp8Operands)) attributes.set(kFp8Operands, std::string(fp8));
    return e.emit1("matmul", {left, right}, std::move(attributes));
  };
  if (r.wanted[0]) {
    out[0] = ta ? product(b, flatten_rows(e, dy), {{"transpose_a", tb}, {"transpose_b", true}}, "")
                : product(dy, b, {{"transpose_b", !tb}}, "gw");
    if (ta) out[0] = e.reshape(out[0], e.spec(a).shape);
  }
  if (r.wanted[1]) {
    const std::string dtype(dtype_name(accumulation_dtype(e.spec(b).dtype)));
    const ValueId a2 = flatten_rows(e, a), dy2 = flatten_rows(e, dy);
    out[1] =
        tb ? product(dy2, a2, {{"transpose_a", true}, {"transpose_b", ta}, {"output_dtype", dtype}},
                     "gx")
           : product(a2, dy2, {{"transpose_a", !ta}, {"output_dtype", dtype}}, "xg");
  }
  if (r.inputs.size() == 3 && r.inputs[2] != kNoValue && r.wanted[2]) {
    out[2] = e.emit1("reduce", {flatten_rows(e, dy)},
                     {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}});
  }
  return out;
}

// Rows may be sharded, columns if b's are (column-parallel); partial sums where the inner dimension
// is (row-parallel).
std::optional<std::vector<Placement>> place_matmul(SpecSpan inputs, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  const bool ta = attributes.boolean("transpose_a"), tb = attributes.boolean("transpose_b");
  const bool has_bias = p.size() == 3 && !is_absent(inputs[2]);
  const bool linear = attributes.text("activation").empty();
  const int last = inputs[0].shape.rank() - 1;
  const auto is_sharded = [&](size_t i, int axis) {
    return p[i].kind == Placement::sharded && p[i].dimension == axis;
  };
  if (!ta && p[0].kind == Placement::sharded && p[0].dimension < last && p[1] == kReplicated &&
      (!has_bias || p[2] == kReplicated)) {
    return {{p[0]}};
  }
  const bool bias_fits = !has_bias || (is_sharded(2, 0) && p[2].parts == p[1].parts);
  if (p[0] == kReplicated && is_sharded(1, tb ? 0 : 1) && bias_fits) {
    return {{p[1].moved_to(ta ? 1 : last)}};
  }
  // The rows of a flattened a are sharded in another way than those of b.
  const bool inner_a = ta ? last == 1 && is_sharded(0, 0) : is_sharded(0, last);
  const bool inner = inner_a && is_sharded(1, tb ? 1 : 0) && p[0].parts == p[1].parts;
  if (inner && !has_bias && linear) return {{kPartial}};
  return {};
}

Cost cost_matmul(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const Sizes s = sizes(inputs, attributes);
  return {2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k),
          bytes_moved(inputs, outputs)};
}

int tokens_of_matmul(const TokenAxes& node) {
  return node.attributes.boolean("transpose_a") ? kMixesTokens : tokens_before_last(node);
}

}  // namespace

constinit const OpDef kMatmulOp{.name = "matmul",
                                .doc = "y = op(a)·op(b) (+ bias), then an optional activation",
                                .signature = "a[M,*,K] b[J,N] bias[B]?",
                                .infer = infer_matmul,
                                .gradient = gradient_matmul,
                                .place = place_matmul,
                                .cost = cost_matmul,
                                .autocast = CastPolicy::low,
                                .token_axis = tokens_of_matmul,
                                .takes_activation = true,
                                .added_input = 2};
constinit const OpDef kMatmulGeluOp{.name = "matmul_gelu",
                                    .doc = "x = op(a)·op(b) (+ bias), y = gelu_tanh(x)",
                                    .signature = "a[M,*,K] b[J,N] bias[B]?",
                                    .infer = infer_matmul_gelu,
                                    .cost = cost_matmul,
                                    .token_axis = tokens_of_matmul};
constinit const OpDef kMatmulGeluBackwardOp{.name = "matmul_gelu_backward",
                                            .doc = "dx = op(a)·op(b)·gelu_tanh'(x)",
                                            .signature = "a[M,*,K] b[J,N] x[.]",
                                            .infer = infer_matmul_gelu_backward,
                                            .cost = cost_matmul,
                                            .token_axis = tokens_of_matmul};

}  // namespace dltrain
