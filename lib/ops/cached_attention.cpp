// cached_attention: attention of the next tokens of texts to all their tokens so far, with a
// key-value cache.
//
//   q        [samples, tokens, heads, head_dim]
//   k, v     [samples, tokens, kv_heads, head_dim]; or one packed input, as attention takes it
//   keys     the caches (ops/cached_attention.h), which are written in place
//   values
//   positions, counts, slots  i32 [samples]: the first of the tokens has position positions[n]
//            of the text in slot slots[n] of the caches; counts[n] of the tokens are valid, the
//            others (padding) are neither cached nor computed, and their y is 0
//   y        like q; packed: [samples, tokens, heads · head_dim]
//   keys, values  the caches with the new tokens
//
// A token attends to itself and to earlier tokens of its text: decoding is always causal. The
// caches must have room for positions[n] + counts[n] tokens, and slots differ.
//
// Attributes: scale, window, alibi, heads and kv_heads as of attention. Nothing flows back.
#include "ops/cached_attention.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

constexpr std::string_view kOp = "cached_attention";

SpecList infer_cached_attention(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs(kOp, inputs, 1, SIZE_MAX);
  const size_t first = cache_input(inputs);
  expect_inputs(kOp, inputs, first + 5, first + 5);
  expect_one_float_dtype(kOp, inputs.first(first + 2));
  const CachedAttentionSizes s = cached_attention_sizes(inputs, attributes);
  const AttentionSizes& a = s.tokens;
  for (size_t i = first + 2; i < inputs.size(); ++i) {
    expect_dtype(kOp, "positions, counts and slots", inputs[i], DType::i32);
    expect_shape(kOp, "positions, counts and slots", inputs[i].shape, Shape{a.samples});
  }
  Shape y = inputs[0].shape;
  y[-1] = a.packed ? a.heads * a.head_dim : a.head_dim;
  return {{y, inputs[0].dtype}, inputs[first], inputs[first + 1]};
}

std::vector<int> aliases_cached_attention(SpecSpan inputs, const Attributes&) {
  const int first = static_cast<int>(cache_input(inputs));
  return {-1, first, first + 1};
}

// An upper bound: as if every text filled its slot.
Cost cost_cached_attention(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const CachedAttentionSizes s = cached_attention_sizes(inputs, attributes);
  const AttentionSizes& a = s.tokens;
  const auto scores = static_cast<double>(a.samples * a.heads * a.queries * s.capacity);
  return {4 * scores * static_cast<double>(a.head_dim), bytes_moved(inputs, outputs.first(1))};
}

int tokens_of_cached_attention(const TokenAxes& node) {
  return tokens_at_one(node, node.inputs.size() - 5);
}

}  // namespace

CacheSpecs cache_specs(int64_t slots, int64_t capacity, int64_t kv_heads, int64_t head_dim,
                       DType dtype) {
  const int64_t blocks = (capacity + kCacheBlock - 1) / kCacheBlock;
  return {{Shape{slots, kv_heads, blocks, head_dim, kCacheBlock}, dtype},
          {Shape{slots, kv_heads, blocks * kCacheBlock, cache_width(head_dim)}, dtype}};
}

CachedAttentionSizes cached_attention_sizes(SpecSpan inputs, const Attributes& attributes) {
  const size_t first = cache_input(inputs);
  CachedAttentionSizes s;
  s.tokens = attention_sizes(kOp, inputs.first(first), attributes);
  const Shape& keys = inputs[first].shape;
  expect_rank(kOp, "the cache of keys", keys, 5, 5);
  s.slots = keys[0];
  s.capacity = keys[2] * kCacheBlock;
  const CacheSpecs wanted =
      cache_specs(s.slots, s.capacity, s.tokens.kv_heads, s.tokens.head_dim, inputs[first].dtype);
  expect_shape(kOp, "the cache of keys", keys, wanted.keys.shape);
  expect_shape(kOp, "the cache of values", inputs[first + 1].shape, wanted.values.shape);
  if (s.tokens.queries != s.tokens.keys) {
    fail(ExitCode::usage, "{}: {} queries and {} keys of the same tokens", kOp, s.tokens.queries,
         s.tokens.keys);
  }
  return s;
}

constinit const OpDef kCachedAttentionOp{
    .name = "cached_attention",
    .doc = "attention of new tokens to all tokens so far, with a key-value cache",
    .infer = infer_cached_attention,
    .cost = cost_cached_attention,
    .aliases = aliases_cached_attention,
    .has_effect = true,
    .token_axis = tokens_of_cached_attention};

}  // namespace dltrain
