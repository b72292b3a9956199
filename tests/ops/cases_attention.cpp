// Attention: packed and separate operands, shared key and value heads, causal,
// dropout, and numbers of tokens that do not fill whole blocks.
#include <fmt/format.h>

#include "base/philox.h"
#include "ops/case.h"
#include "ops/shard_position.h"

namespace dltrain {
namespace {

struct Attended {
  int64_t samples, queries, keys, heads, kv_heads, head_dim;
  bool packed = false, causal = false;
  double dropout = 0;
  int64_t window = 0;
  bool alibi = false;
  int mask = 0;                           // 1: lengths, 2: keys, 3: documents
  int64_t first_head = 0, all_heads = 0;  // of a rank's heads
  int64_t first_query = -1, all = 0;      // of a rank's tokens, and all tokens
  int64_t first_key = 0;                  // of keys of some rank
};

void add_attention(std::vector<OpCase>& cases, const Attended& a) {
  const std::string name =
      fmt::format("{}x{}·{} heads {}/{} of {}{}{}{}", a.samples, a.queries, a.keys, a.heads,
                  a.kv_heads, a.head_dim, a.packed ? " packed" : "", a.causal ? " causal" : "",
                  a.dropout > 0 ? " with dropout" : "") +
      (a.window > 0 ? fmt::format(" window {}", a.window) : "") + (a.alibi ? " alibi" : "") +
      (a.mask == 1   ? " lengths"
       : a.mask == 2 ? " masked"
       : a.mask == 3 ? " documents"
                     : "") +
      (a.all_heads > 0 ? fmt::format(", heads from {} of {}", a.first_head, a.all_heads) : "") +
      (a.all > 0 ? fmt::format(", queries from {} of {}", a.first_query, a.all) : "") +
      (a.first_key > 0 ? fmt::format(", keys from {}", a.first_key) : "");
  const Shape y = a.packed ? Shape{a.samples, a.queries, a.heads * a.head_dim}
                           : Shape{a.samples, a.queries, a.heads, a.head_dim};
  const Shape keys{a.samples, a.keys, a.kv_heads, a.head_dim};
  OpCase c{.name = "attention " + name, .op = "attention", .inputs = {}, .attributes = {}};
  if (a.packed) {
    c.inputs.push_back(
        case_tensor({a.samples, a.queries, (a.heads + 2 * a.kv_heads) * a.head_dim}));
    c.attributes.set("heads", a.heads);
    c.attributes.set("kv_heads", a.kv_heads);
  } else {
    c.inputs = {case_tensor(y), case_tensor(keys), case_tensor(keys)};
  }
  c.attributes.set("causal", a.causal);
  c.attributes.set("dropout", a.dropout);
  c.attributes.set("stream", static_cast<int64_t>(random_stream("layers.1")));
  if (a.all_heads > 0) {
    ShardPosition::set(c.attributes, a.heads * a.head_dim, a.all_heads * a.head_dim,
                       a.first_head * a.head_dim);
  }
  if (a.all > 0) {
    c.attributes.set("first_query", a.first_query);
    c.attributes.set("all_queries", a.all);
    c.attributes.set("all_keys", a.all);
    if (a.first_key > 0) c.attributes.set("first_key", a.first_key);
  }
  if (a.window > 0) c.attributes.set("window", a.window);
  if (a.alibi) c.attributes.set("alibi", true);
  if (a.mask != 0) {
    c.attributes.set("masked", true);
    // Lengths up to twice the keys count as all of them; of the mask two keys of three are there.
    c.attributes.set("documents", a.mask == 3);
    const TensorSpec keys{{a.samples, a.keys}, DType::i32};
    c.inputs.push_back(
        a.mask == 1   ? CaseInput{{{a.samples}, DType::i32}, Fill::ids, 2 * a.keys}
        : a.mask == 2 ? CaseInput{keys, Fill::ids, 3}
        : a.all > 0
            ? CaseInput{{{a.samples, a.queries}, DType::i32}, Fill::later_documents, 2 * a.keys}
            : CaseInput{keys, Fill::documents, 3 + a.keys / 4});
  }
  if (a.dropout > 0) c.inputs.push_back(case_state());
  c.roundings = 2;  // of the weights, and of the result
  OpCase backward = c;
  cases.push_back(std::move(c));
  // Any sums will do: they are only the shift of the exponents. Large ones keep
  // weights below 1.
  backward.name = "attention_backward " + name;
  backward.op = "attention_backward";
  CaseInput sums = case_tensor({a.samples, a.heads, a.queries}, Fill::positive);
  sums.wide = true;
  backward.inputs.insert(backward.inputs.begin(), {case_tensor(y), case_tensor(y), sums});
  cases.push_back(std::move(backward));
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& cases) {
  add_attention(cases, {2, 5, 7, 2, 2, 4});
  add_attention(cases, {2, 6, 6, 4, 2, 3, false, true});
  add_attention(cases, {2, 5, 5, 4, 1, 4, true, true, 0.25});
  add_attention(cases, {3, 4, 4, 2, 2, 8, true});
  add_attention(cases, {1, 3, 9, 2, 1, 5, false, false, 0.5});
  add_attention(cases, {1, 1, 1, 1, 1, 1});
  // Several blocks, and tails.
  add_attention(cases, {1, 64, 128, 1, 1, 16});
  add_attention(cases, {1, 130, 130, 2, 1, 20, true, true});
  add_attention(cases, {2, 65, 197, 2, 2, 64});
  add_attention(cases, {1, 129, 129, 2, 2, 33, true, true, 0.1});
  // Windows, distances and masks.
  add_attention(cases, {2, 7, 7, 2, 1, 4, true, true, 0, 3});
  add_attention(cases, {1, 9, 9, 3, 3, 4, false, false, 0, 2, true});
  add_attention(cases, {1, 200, 200, 2, 2, 16, true, true, 0.1, 70, true});
  add_attention(cases, {1, 150, 150, 1, 1, 16, false, false, 0, 10});
  add_attention(cases, {1, 140, 140, 6, 6, 8, false, true, 0, 0, true});
  add_attention(cases, {5, 6, 6, 2, 2, 4, true, true, 0, 0, false, 1});
  add_attention(cases, {5, 4, 70, 2, 2, 4, false, false, 0, 0, false, 2});
  add_attention(cases, {4, 130, 130, 2, 1, 8, true, false, 0.2, 0, false, 1});
  add_attention(cases, {2, 100, 100, 2, 1, 8, true, true, 0, 80, true, 2});
  // Masks as cuDNN takes them too; some queries have no key.
  add_attention(cases, {5, 9, 9, 2, 1, 8, true, true, 0, 0, false, 2});
  add_attention(cases, {7, 3, 5, 2, 2, 16, false, false, 0, 0, false, 1});
  add_attention(cases, {7, 3, 2, 2, 2, 16, false, false, 0, 0, false, 2});
  add_attention(cases, {2, 197, 197, 4, 2, 64, true, true, 0, 0, false, 1});  // several blocks
  add_attention(cases, {2, 130, 130, 2, 2, 64, false, false, 0, 0, false, 2});
  // Documents, within a block and of several blocks.
  add_attention(cases, {2, 9, 9, 2, 1, 8, true, true, 0, 0, false, 3});
  add_attention(cases, {2, 200, 200, 2, 1, 16, false, true, 0, 0, false, 3});
  add_attention(cases, {3, 130, 130, 2, 2, 8, true, true, 0.25, 40, true, 3});
  // Heads of one rank.
  add_attention(cases, {2, 7, 7, 2, 1, 4, true, true, 0.25, 0, true, 0, 4, 6});
  add_attention(cases, {3, 70, 70, 2, 2, 8, false, true, 0.25, 0, true, 0, 1, 3});
  // Queries that are a part of the text: keys end with the last of them, or go on.
  add_attention(cases, {2, 3, 7, 4, 2, 4, false, true, 0, 0, false, 0, 0, 0, 4, 12});
  add_attention(cases, {1, 130, 322, 2, 1, 16, false, true, 0.25, 0, true, 0, 0, 0, 192, 400});
  add_attention(cases, {1, 100, 250, 2, 2, 8, false, true, 0, 70, false, 0, 0, 0, 130, 300});
  add_attention(cases, {2, 64, 192, 2, 1, 8, false, true, 0.1, 150, true, 2, 0, 0, 128, 256});
  add_attention(cases, {3, 40, 200, 1, 1, 8, false, false, 0.25, 30, true, 1, 0, 0, 65, 200});
  add_attention(cases, {1, 8, 200, 2, 2, 8, false, false, 0, 10, false, 0, 0, 0, 3, 200});
  add_attention(cases, {2, 9, 40, 2, 1, 8, false, true, 0.25, 0, true, 0, 1, 3, 5, 40});
  // Keys of another part: some queries are too far away, in the end all; later keys; the same part.
  add_attention(cases, {1, 100, 100, 1, 1, 8, false, false, 0, 70, false, 0, 0, 0, 200, 400, 100});
  add_attention(cases, {1, 70, 70, 2, 2, 4, false, false, 0, 65, true, 0, 0, 0, 0, 210, 70});
  add_attention(cases, {1, 20, 20, 1, 1, 8, false, false, 0, 10, true, 0, 0, 0, 50, 70, 20});
  add_attention(cases, {1, 66, 66, 2, 1, 4, false, true, 0.25, 30, true, 0, 0, 0, 66, 132, 66});
  add_attention(cases, {2, 5, 7, 4, 2, 4, false, false, 0.25, 0, true, 0, 1, 6, 20, 30, 10});
  add_attention(cases, {7, 9, 60, 1, 1, 8, false, false, 0, 0, false, 1, 0, 0, 10, 130, 40});
  add_attention(cases, {1, 30, 30, 2, 1, 8, false, false, 0.1, 40, true, 2, 0, 0, 0, 90, 30});
  // Documents that begin before the queries, in these keys or later.
  add_attention(cases, {2, 100, 250, 2, 2, 8, false, true, 0, 0, false, 3, 0, 0, 150, 300});
  add_attention(cases, {1, 66, 66, 2, 1, 4, false, true, 0.25, 0, true, 3, 0, 0, 66, 132, 66});
  add_attention(cases, {2, 70, 70, 2, 2, 8, false, false, 0, 0, false, 3, 0, 0, 200, 400, 100});
  add_attention(cases, {1, 90, 70, 1, 1, 8, false, false, 0.25, 80, false, 3, 0, 0, 170, 260, 100});
}

}  // namespace dltrain
