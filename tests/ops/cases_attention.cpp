// Attention: packed and separate operands, shared key and value heads, causal,
// dropout, and numbers of tokens that do not fill whole blocks.
#include <fmt/format.h>

#include "base/philox.h"
#include "ops/case.h"

namespace dltrain {
namespace {

struct Attended {
  int64_t samples, queries, keys, heads, kv_heads, head_dim;
  bool packed = false, causal = false;
  double dropout = 0;
};

void add_attention(std::vector<OpCase>& cases, const Attended& a) {
  const std::string name =
      fmt::format("{}x{}·{} heads {}/{} of {}{}{}{}", a.samples, a.queries, a.keys, a.heads,
                  a.kv_heads, a.head_dim, a.packed ? " packed" : "", a.causal ? " causal" : "",
                  a.dropout > 0 ? " with dropout" : "");
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
  if (a.dropout > 0) c.inputs.push_back(case_state());
  OpCase backward = c;
  cases.push_back(std::move(c));
  // Any sums will do: they are only the shift of the exponents. Large ones keep
  // weights below 1.
  backward.name = "attention_backward " + name;
  backward.op = "attention_backward";
  backward.inputs.insert(backward.inputs.begin(),
                         {case_tensor(y), case_tensor(y),
                          case_tensor({a.samples, a.heads, a.queries}, Fill::positive)});
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
}

}  // namespace dltrain
