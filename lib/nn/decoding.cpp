#include "nn/decoding.h"

#include "base/error.h"
#include "graph/dependence.h"
#include "nn/layer.h"
#include "ops/cached_attention.h"

namespace dltrain {

Decoding* decoding_of(LayerContext& c, ValueId x) {
  Decoding* d = c.decoding();
  if (d == nullptr || d->tokens == kNoValue) return d;
  const std::vector<bool> text = reachable_from(c.builder().graph(), {&d->tokens, 1});
  return text[static_cast<size_t>(x)] ? d : nullptr;
}

ValueId add_cache(LayerContext& c, const std::string& name, const TensorSpec& spec) {
  return c.builder().add_value(fmt::format("cache.{}.{}", c.path(), name), spec, Role::cache);
}

ValueId emit_attention(LayerContext& c, std::vector<ValueId> inputs, Attributes attributes) {
  const bool packed = c.builder().spec(inputs[0]).shape.rank() == 3;
  Decoding* d = decoding_of(c, inputs[packed ? 0 : 1]);
  if (d == nullptr) return c.builder().emit("attention", std::move(inputs), attributes)[0];
  if (attributes.boolean("masked")) {
    fail(ExitCode::usage, "uses a padding mask, so this model cannot generate text");
  }
  if (!attributes.boolean("causal")) {
    fail(ExitCode::usage,
         "sees later tokens (it is not causal), so this model cannot generate text");
  }
  SpecList specs;
  for (ValueId input : inputs) specs.push_back(c.builder().spec(input));
  const AttentionSizes sizes = attention_sizes("attention", specs, attributes);
  const CacheSpecs caches =
      cache_specs(d->slots, d->capacity, sizes.kv_heads, sizes.head_dim, specs[0].dtype);
  inputs.push_back(add_cache(c, "keys", caches.keys));
  inputs.push_back(add_cache(c, "values", caches.values));
  inputs.insert(inputs.end(), {d->positions, d->counts, d->slot_ids});
  d->keeps_tokens = true;
  return c.builder().emit("cached_attention", std::move(inputs), std::move(attributes))[0];
}

}  // namespace dltrain
