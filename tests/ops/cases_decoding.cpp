// Attention with caches (packed and separate operands, shared heads, windows, distances, padding,
// one token and many, several blocks), the ops of texts in slots, and matmul with independent rows.
#include <fmt/format.h>

#include "ops/cached_attention.h"
#include "ops/case.h"

namespace dltrain {
namespace {

CaseInput integers_cases_decoding(const Shape& shape, int64_t bound) {
  return {{shape, DType::i32}, Fill::ids, bound};
}
CaseInput slots(int64_t samples) {
  return {{{samples}, DType::i32}, Fill::slots};
}

struct Cached {
  int64_t samples, tokens, capacity, heads, kv_heads, head_dim;
  bool packed = false;
  int64_t window = 0;
  bool alibi = false;
  double scale = 0;
};

void add_cached(std::vector<OpCase>& cases, const Cached& a) {
  OpCase c{.name = fmt::format(
               "cached_attention {}x{} of {} heads {}/{} of {}{}{}{}", a.samples, a.tokens,
               a.capacity, a.heads, a.kv_heads, a.head_dim, a.packed ? " packed" : "",
               a.window > 0 ? fmt::format(" window {}", a.window) : "", a.alibi ? " alibi" : ""),
           .op = "cached_attention",
           .inputs = {},
           .attributes = {}};
  if (a.packed) {
    c.inputs.push_back(case_tensor({a.samples, a.tokens, (a.heads + 2 * a.kv_heads) * a.head_dim}));
    c.attributes.set("heads", a.heads);
    c.attributes.set("kv_heads", a.kv_heads);
  } else {
    c.inputs.push_back(case_tensor({a.samples, a.tokens, a.heads, a.head_dim}));
    for (int i = 0; i < 2; ++i) {
      c.inputs.push_back(case_tensor({a.samples, a.tokens, a.kv_heads, a.head_dim}));
    }
  }
  // More slots than samples.
  const CacheSpecs caches =
      cache_specs(a.samples + 1, a.capacity, a.kv_heads, a.head_dim, DType::f32);
  for (const TensorSpec& cache : {caches.keys, caches.values}) {
    c.inputs.push_back(case_tensor(cache.shape));
  }
  c.inputs.push_back(integers_cases_decoding({a.samples}, a.capacity - a.tokens + 1));
  c.inputs.push_back(integers_cases_decoding({a.samples}, a.tokens + 1));
  c.inputs.push_back(slots(a.samples));
  if (a.window > 0) c.attributes.set("window", a.window);
  if (a.alibi) c.attributes.set("alibi", true);
  if (a.scale > 0) c.attributes.set("scale", a.scale);
  cases.push_back(std::move(c));
}

void add_rows(std::vector<OpCase>& cases, const Shape& a, int64_t n, bool bias,
              const std::string& activation) {
  OpCase c{.name = fmt::format("matmul {}·{} independent rows{} {}", to_string(a), n,
                               bias ? " bias" : "", activation),
           .op = "matmul",
           .inputs = {case_tensor(a), case_tensor({n, a[-1]})},
           .attributes = {{"transpose_b", true}, {"independent_rows", true}}};
  if (bias) c.inputs.push_back(case_tensor({n}));
  if (!activation.empty()) c.attributes.set("activation", activation);
  cases.push_back(std::move(c));
}

}  // namespace

void add_decoding_cases(std::vector<OpCase>& cases) {
  add_cached(cases, {3, 1, 64, 2, 2, 4});
  add_cached(cases, {3, 1, 200, 4, 2, 16});
  add_cached(cases, {2, 1, 300, 8, 1, 20, true});
  add_cached(cases, {4, 5, 100, 3, 3, 5});
  add_cached(cases, {2, 40, 150, 4, 1, 8, true});
  add_cached(cases, {1, 70, 200, 2, 2, 64});
  add_cached(cases, {2, 9, 130, 4, 2, 8, false, 3});
  add_cached(cases, {2, 33, 300, 2, 1, 8, true, 70, true});
  add_cached(cases, {3, 7, 90, 6, 3, 12, true, 0, true, 0.2});
  for (const Shape& x : {Shape{1, 1, 3}, Shape{3, 5, 4}, Shape{2, 4, 3, 2}}) {
    cases.push_back({"last_token " + to_string(x),
                     "last_token",
                     {case_tensor(x), integers_cases_decoding({x[0]}, x[1] + 1)}});
  }
  for (int64_t tokens : {1, 6}) {
    cases.push_back({fmt::format("token_positions {}", tokens),
                     "token_positions",
                     {integers_cases_decoding({4}, 9)},
                     {{"tokens", tokens}, {"limit", int64_t{10}}}});
    cases.push_back({fmt::format("slot_state_update of {} tokens", tokens),
                     "slot_state_update",
                     {case_tensor({5, 6}), case_tensor({3, tokens, 6}),
                      integers_cases_decoding({3}, tokens + 1), slots(3)}});
  }
  cases.push_back({"slot_state",
                   "slot_state",
                   {case_tensor({5, 3, 4}), integers_cases_decoding({4}, 2), slots(4)}});
  for (int64_t rows : {1, 3, 4, 9}) {
    add_rows(cases, {rows, 70}, 37, rows % 2 == 1, rows == 3 ? "gelu_tanh" : "");
  }
  add_rows(cases, {2, 1, 5}, 3, true, "silu");
  add_rows(cases, {5, 1, 256}, 130, true, "");
}

}  // namespace dltrain
