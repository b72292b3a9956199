// attention: for every sample and head, softmax(scale · q·kᵀ)·v (Vaswani et al. 2017), computed in
// blocks without a matrix of tokens by tokens (Dao et al. 2022).
//
//   q     [samples, queries, heads, head_dim]
//   k, v  [samples, keys, kv_heads, head_dim]; each key and value head serves heads / kv_heads
//         consecutive heads (Ainslie et al. 2023)
//   or one packed input [samples, tokens, (heads + 2·kv_heads)·head_dim]: along the last axis the
//         heads of q, then those of k, then those of v (torch.nn.MultiheadAttention's in_proj)
//   mask  with `masked` only, i32: [samples], the number of valid keys, which come first;
//         or [samples, keys], 0 for invalid keys. The output of a query without keys is 0.
//         With `documents` (bool) too, of causal attention or earlier keys: [samples, queries], the
//         number of tokens before each query in its document. It attends to these and itself. The
//         first tokens of their documents never come earlier from one query to the next.
//   step_state, with dropout only, is the last input
//   y     [samples, queries, heads, head_dim], packed: [samples, tokens, heads·head_dim]
//   sums  [samples, heads, queries]: log Σ exp(scale · q·k) of every row, which the backward reads
//         (+∞ for a query without a key)
//
// The heads of a rank may be sharded (ops/shard_position.h): y is then a shard of the whole output.
//
// Attributes: scale (default 1/√head_dim); causal (bool): a token attends to itself and earlier
// ones; window (integer, 0: none): it attends to tokens at a smaller distance; alibi (bool): a
// score decreases with the distance of its tokens (alibi_slope); these three need queries = keys,
// or first_query (integer): the position of the first query in the text, of which the queries are a
// part; first_key (integer) that of the first key, if the keys are a part that begins later. The
// text has all_queries and all_keys (default: the tensors'). Lengths are those of the text, a mask
// of tokens that of these keys. With `ranks` above 1 the node has the tokens of a rank
// (ops/token_runs.h), but for the mask, which is whole: passes/context_cut.h lowers it to nodes
// with first_query. masked (bool); packed only: heads, kv_heads. dropout (number in [0, 1)): every
// weight of the softmax is set to 0 with that probability and divided by 1 − dropout otherwise;
// stream (random_stream of the layer's path): element e = ((sample·heads + head)·all_queries +
// first_query + query)·all_keys + first_key + key of the global batch is kept when
// random_uniform(seed, stream, step, e) ≥ dropout (base/philox.h).
//
// Blocks that are masked entirely are not computed.
//
// attention_backward(dy, y, sums, inputs of attention…): with P the weights and M the mask of the
// dropout: dv = (P∘M)ᵀ·dy; dP = (dy·vᵀ)∘M; dS = P∘(dP − rowsum(dy∘y)); dq = scale · dS·k;
// dk = scale · dSᵀ·q. Outputs: dq, dk, dv, or the packed gradient.
#include "ops/attention.h"

#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/shard_position.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

bool is_packed(SpecSpan inputs) {
  return !inputs.empty() && inputs[0].shape.rank() == 3;
}

// Returns the number of tensors before the mask and the step state.
size_t tensors(SpecSpan inputs) {
  return is_packed(inputs) ? 1 : 3;
}

AttentionSizes checked(std::string_view op, SpecSpan inputs, const Attributes& attributes) {
  const bool masked = attributes.boolean("masked"), drops = attributes.number("dropout") > 0;
  const size_t wanted = tensors(inputs) + (masked ? 1 : 0) + (drops ? 1 : 0);
  expect_inputs(op, inputs, wanted, wanted);
  expect_one_float_dtype(op, inputs.first(tensors(inputs)));
  if (drops) expect_step_state(op, inputs.back());
  const AttentionSizes a = attention_sizes(op, inputs, attributes);
  if (masked) {
    const TensorSpec& mask = inputs[tensors(inputs)];
    expect_dtype(op, "the mask", mask, DType::i32);
    const bool documents = attributes.boolean("documents");
    if (documents && !attributes.boolean("causal") && !attributes.has("first_query")) {
      fail(ExitCode::usage, "{}: positions in documents are for causal attention", op);
    }
    if (documents || mask.shape.rank() != 1 || mask.shape[0] != a.samples) {
      const int64_t tokens = documents ? a.queries : a.keys;
      expect_shape(op, "the mask", mask.shape,
                   Shape{a.samples, tokens * attributes.integer("ranks", 1)});
    }
  }
  return a;
}

SpecList infer_attention(SpecSpan inputs, const Attributes& attributes) {
  const AttentionSizes a = checked("attention", inputs, attributes);
  Shape y = inputs[0].shape;
  y[-1] = a.packed ? a.heads * a.head_dim : a.head_dim;
  const DType dtype = inputs[0].dtype;
  return {{y, dtype}, {Shape{a.samples, a.heads, a.queries}, accumulation_dtype(dtype)}};
}

SpecList infer_attention_backward(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("attention_backward", inputs, 4, SIZE_MAX);
  const SpecSpan forward = inputs.subspan(3);
  const SpecList made = infer_attention(forward, attributes);
  expect_shape("attention_backward", "dy", inputs[0].shape, made[0].shape);
  expect_shape("attention_backward", "y", inputs[1].shape, made[0].shape);
  expect_shape("attention_backward", "the sums", inputs[2].shape, made[1].shape);
  expect_dtype("attention_backward", "dy", inputs[0], made[0].dtype);
  expect_dtype("attention_backward", "y", inputs[1], made[0].dtype);
  expect_dtype("attention_backward", "the sums", inputs[2], made[1].dtype);
  return {forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(tensors(forward))};
}

std::vector<ValueId> gradient_attention(const GradientRequest& r) {
  std::vector<ValueId> inputs{r.output_gradients[0], r.outputs[0], r.outputs[1]};
  inputs.insert(inputs.end(), r.inputs.begin(), r.inputs.end());
  std::vector<ValueId> out = r.emitter.emit("attention_backward", std::move(inputs), r.attributes);
  out.resize(r.inputs.size(), kNoValue);  // nothing for the step state
  return out;
}

double scores(const AttentionSizes& a, const Attributes& attributes) {
  const AttentionPattern pattern(attributes);
  double row = static_cast<double>(a.keys);
  if (pattern.causal) {
    row = std::min(row, static_cast<double>(a.first_query) + 0.5 * static_cast<double>(a.queries));
  }
  if (pattern.window > 0) {
    row = std::min(row, static_cast<double>(pattern.causal ? pattern.window : 2 * pattern.window));
  }
  return static_cast<double>(a.samples * a.heads) * static_cast<double>(a.queries) * row;
}

// Every rank has as many heads of queries for each of its heads of keys and values as there are in
// all.
std::vector<Placement> heads_over_ranks(SpecSpan inputs, const Attributes& attributes, int ranks) {
  const AttentionSizes a = attention_sizes("attention", inputs, attributes);
  // More ranks than heads of keys and values: several have copies of one.
  const auto kv_of = [&](int64_t n) {
    const bool copied = n > a.kv_heads && n % a.kv_heads == 0 && a.heads % n == 0;
    return copied ? CutPart{a.kv_heads, 1, n / a.kv_heads}
                  : even_cut(a.kv_heads, static_cast<int>(n)).front();
  };
  const CutPart kv = kv_of(ranks);
  if (!is_possible({kv}, ranks)) {
    std::string fitting;
    for (int n = 1; n <= a.heads; ++n) {
      if (!is_possible({kv_of(n)}, n)) continue;
      fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", n);
    }
    fail(ExitCode::usage,
         "{} heads{} cannot be divided among {} ranks; numbers of ranks that fit: {}", a.kv_heads,
         a.kv_heads == a.heads ? "" : " of keys and values", ranks, fitting);
  }
  const int64_t size = a.packed ? a.head_dim : 1;
  const CutPart q{a.heads * size, kv.length * (a.heads / a.kv_heads) / kv.copies * size};
  const CutPart k{a.kv_heads * size, kv.length * size, kv.copies};
  std::vector<Placement> out(inputs.size(), kReplicated);
  if (a.packed) {
    out[0] = {Placement::sharded, 2, {q, k, k}};
  } else {
    out[0] = {Placement::sharded, 2, {q}};
    out[1] = out[2] = {Placement::sharded, 2, {k}};
  }
  return out;
}

std::optional<std::vector<Placement>> place_attention(SpecSpan inputs, const Attributes& attributes,
                                                      std::span<const Placement> p) {
  const AttentionSizes a = attention_sizes("attention", inputs, attributes);
  if (p[0].kind != Placement::sharded || p[0].dimension != 2) return {};
  const CutParts& kv = p[a.packed ? 0 : 1].parts;
  if (kv.empty()) return {};
  const CutPart q = p[0].parts.front(), k = kv.back();
  const int64_t size = a.packed ? a.head_dim : 1, length = q.length / size;
  // The heads of keys and values of a rank are those of its heads of queries.
  if (q.extent != a.heads * size || k.extent != a.kv_heads * size || k.length % size != 0 ||
      length * a.kv_heads * k.copies != k.length / size * a.heads) {
    return {};
  }
  if (k.copies > 1 && (k.length != size || q.extent % q.length != 0)) return {};
  for (size_t i = 0; i < p.size(); ++i) {
    Placement fitting = kReplicated;
    if (i == 0) fitting = {Placement::sharded, 2, a.packed ? CutParts{q, k, k} : CutParts{q}};
    if (i > 0 && i < tensors(inputs)) fitting = {Placement::sharded, 2, {k}};
    if (p[i] != fitting) return {};
  }
  const Placement y{Placement::sharded, 2, {q}}, sums{Placement::sharded, 1, {{a.heads, length}}};
  return {{y, sums}};
}

void localize_attention(Attributes& attributes, const LocalNode& node) {
  const AttentionSizes a = attention_sizes("attention", node.inputs, attributes);
  localize_position(attributes, node);
  if (!a.packed) return;
  const int64_t heads = node.local.shape[2] / a.head_dim;
  attributes.set("heads", heads);
  attributes.set("kv_heads", node.placements[0].parts.back().copies > 1
                                 ? int64_t{1}
                                 : heads / (a.heads / a.kv_heads));
}

// Two products per score in the forward, five in the backward.
Cost cost_attention(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const AttentionSizes a = attention_sizes("attention", inputs, attributes);
  return {4 * scores(a, attributes) * static_cast<double>(a.head_dim),
          bytes_moved(inputs, outputs)};
}
Cost cost_attention_backward(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const AttentionSizes a = attention_sizes("attention_backward", inputs.subspan(3), attributes);
  return {10 * scores(a, attributes) * static_cast<double>(a.head_dim),
          bytes_moved(inputs, outputs)};
}

// Attention to keys without tokens of the text, such as a source.
int tokens_of_attention(const TokenAxes& node) {
  return tokens_of_first(node) == 1 && node.inputs[0].shape.rank() == 4 ? 1 : kMixesTokens;
}

}  // namespace

AttentionSizes attention_sizes(std::string_view op, SpecSpan inputs, const Attributes& attributes) {
  AttentionSizes a;
  const Shape& q = inputs[0].shape;
  a.packed = is_packed(inputs);
  a.samples = q[0];
  a.queries = a.keys = q[1];
  if (a.packed) {
    a.heads = attributes.integer("heads");
    a.kv_heads = attributes.integer("kv_heads", a.heads);
    const int64_t parts = a.heads + 2 * a.kv_heads;
    if (parts < 1 || q[2] % parts != 0) {
      fail(ExitCode::usage,
           "{}: {} channels of queries, keys and values do not divide into {} + 2 · {} heads; the "
           "hidden size must be a multiple of num_heads",
           op, q[2], a.heads, a.kv_heads);
    }
    a.head_dim = q[2] / parts;
    a.query_stride = a.key_stride = q[2];
  } else {
    expect_rank(op, "the queries", q, 4, 4);
    const Shape& k = inputs[1].shape;
    expect_rank(op, "the keys", k, 4, 4);
    a.keys = k[1];
    a.heads = q[2];
    a.kv_heads = k[2];
    a.head_dim = q[3];
    expect_shape(op, "the keys", k, Shape{a.samples, a.keys, a.kv_heads, a.head_dim});
    expect_shape(op, "the values", inputs[2].shape, k);
    a.query_stride = a.heads * a.head_dim;
    a.key_stride = a.kv_heads * a.head_dim;
  }
  if (a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads != 0) {
    fail(ExitCode::usage, "{}: {} heads cannot share {} heads of keys and values", op, a.heads,
         a.kv_heads);
  }
  if (a.keys < 1 || a.head_dim < 1) {
    fail(ExitCode::usage, "{}: needs at least one key and one element a head, got {}", op,
         to_string(q));
  }
  const ShardPosition position(attributes, a.heads * a.head_dim);
  a.first_head = position.offset / a.head_dim;
  a.all_heads = position.whole_row / a.head_dim;
  const AttentionPattern pattern(attributes);
  a.first_query = pattern.first_query;
  a.key_offset = attributes.integer("first_key");
  a.all_queries = attributes.integer("all_queries", a.queries);
  a.all_keys = attributes.integer("all_keys", a.keys);
  const bool placed = attributes.has("first_query");
  const int64_t first = a.key_offset + a.first_query;
  check_internal(!placed || (first >= 0 && first + a.queries <= a.all_queries &&
                             a.key_offset + a.keys <= a.all_keys),
                 "{}: first_query {}, first_key {}", op, first, a.key_offset);
  if ((pattern.causal || pattern.window > 0 || pattern.alibi) && a.queries != a.keys && !placed) {
    fail(ExitCode::usage,
         "{}: causal, window and alibi need as many queries as keys, got {} and {}", op, a.queries,
         a.keys);
  }
  if (pattern.window < 0) fail(ExitCode::usage, "{}: window {}", op, pattern.window);
  return a;
}

constinit const OpDef kAttentionOp{.name = "attention",
                                   .doc = "y = softmax(scale · q·kᵀ)·v for every head",
                                   .infer = infer_attention,
                                   .gradient = gradient_attention,
                                   .place = place_attention,
                                   .localize = localize_attention,
                                   .wanted = heads_over_ranks,
                                   .cost = cost_attention,
                                   .autocast = CastPolicy::low,
                                   .token_axis = tokens_of_attention};
constinit const OpDef kAttentionBackwardOp{.name = "attention_backward",
                                           .doc = "gradients of attention",
                                           .infer = infer_attention_backward,
                                           .cost = cost_attention_backward};

}  // namespace dltrain
