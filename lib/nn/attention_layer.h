// What the layers of attention share: their common keys, and how these become attributes of the op.
#pragma once

#include <optional>
#include <vector>

#include "nn/layer.h"

namespace dltrain {

struct AttentionLayer : Layer {
  int64_t num_heads = 0;
  std::optional<int64_t> num_kv_heads;
  bool causal = false;
  double dropout = 0;

  // num_kv_heads must divide num_heads.
  void validate(Problems& problems) const override;

 protected:
  void describe_heads(Fields& f, const char* doc_of_num_heads);
  void describe_causal(Fields& f);
  void describe_dropout(Fields& f);

  int64_t kv_heads() const { return num_kv_heads.value_or(num_heads); }
  // The op on `inputs` (see ops/attention.h), with causal and, in training, dropout added to
  // `attributes` and the step's random numbers to the inputs.
  ValueId emit_attention(LayerContext& c, std::vector<ValueId> inputs, Attributes attributes) const;
};

}  // namespace dltrain
