#include "nn/attention_layer.h"

#include "base/philox.h"
#include "nn/decoding.h"

namespace dltrain {

void AttentionLayer::describe_heads(Fields& f, const char* doc_of_num_heads) {
  f.integer("num_heads", num_heads,
            {.doc = doc_of_num_heads,
             .required = true,
             .min = 1,
             .max = 65536,
             .known_as = {"heads", "num_attention_heads", "n_head"}});
  f.integer("num_kv_heads", num_kv_heads,
            {.doc = "Heads of keys and values, each shared by num_heads / num_kv_heads heads of "
                    "queries; default: num_heads",
             .min = 1,
             .max = 65536,
             .known_as = {"num_key_value_heads", "kv_heads"}});
}

void AttentionLayer::describe_causal(Fields& f) {
  f.boolean("causal", causal,
            {.doc = "A token looks at itself and those before it only", .known_as = {"is_causal"}});
}

void AttentionLayer::describe_dropout(Fields& f) {
  f.number("dropout", dropout,
           {.doc = "Probability of setting a weight of the softmax to zero in training",
            .min = 0,
            .below = 1,
            .known_as = {"attention_dropout", "attn_dropout"}});
}

void AttentionLayer::validate(Problems& problems) const {
  if (num_kv_heads && num_heads % *num_kv_heads != 0) {
    problems.add(
        *this, "num_kv_heads",
        fmt::format("num_heads {} is not a multiple of num_kv_heads {}", num_heads, *num_kv_heads));
  }
}

ValueId AttentionLayer::emit_attention(LayerContext& c, std::vector<ValueId> inputs,
                                       Attributes attributes) const {
  attributes.set("causal", causal);
  if (c.noise() && dropout > 0) {
    attributes.set("dropout", dropout);
    attributes.set("stream", static_cast<int64_t>(random_stream(c.path())));
    inputs.push_back(c.builder().step_state());
  }
  return dltrain::emit_attention(c, std::move(inputs), std::move(attributes));
}

}  // namespace dltrain
