// attention: softmax(scale · q·kᵀ)·v of every head, without parameters: projections are layers of
// their own, so that they have the names of any family of models. multi_head_attention is the same
// with torch's projections inside. A last input of integers hides padding: how many tokens each
// sample has, or for each token whether it is there (Hugging Face's attention_mask).
#include "base/error.h"
#include "nn/attention_layer.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct Attention final : AttentionLayer {
  std::optional<double> scale;
  int64_t sliding_window = 0;
  bool alibi = false;

  void describe(Fields& f) override {
    describe_heads(f, "Heads of queries");
    f.number("scale", scale,
             {.doc = "Multiplies q·k before the softmax; default: 1/√(width of a head)",
              .above = 0,
              .known_as = {"scaling", "softmax_scale"}});
    describe_causal(f);
    f.integer("sliding_window", sliding_window,
              {.doc = "A token looks only at tokens less than this far away, itself among them; 0: "
                      "at all",
               .min = 0,
               .known_as = {"window", "window_size"}});
    f.boolean("alibi", alibi,
              {.doc = "Scores fall with the distance of the tokens, for each head at another rate "
                      "(Press et al. 2022)"});
    describe_dropout(f);
  }

  ValueId emit_inputs(LayerContext& c, std::span<const ValueId> values) const override {
    // Masks are integers, and stand last.
    const bool masked = values.size() > 1 && c.builder().spec(values.back()).dtype == DType::i32;
    const size_t tensors = values.size() - (masked ? 1 : 0);
    if (tensors != 1 && tensors != 3) {
      fail(ExitCode::usage,
           "takes queries, keys and values (inputs: [q, k, v]), or one input in which they stand "
           "one behind the other, and then perhaps an integer mask; got {} inputs",
           values.size());
    }
    std::vector<ValueId> inputs;
    Attributes attributes;
    if (scale) attributes.set("scale", *scale);
    if (sliding_window > 0) attributes.set("window", sliding_window);
    if (alibi) attributes.set("alibi", true);
    if (masked) attributes.set("masked", true);
    if (tensors == 1) {
      expect_tokens(c.shape(values[0]));
      attributes.set("heads", num_heads);
      attributes.set("kv_heads", kv_heads());
      inputs.push_back(values[0]);
    } else {
      inputs.push_back(in_heads(c, values[0], num_heads));
      inputs.push_back(in_heads(c, values[1], kv_heads()));
      inputs.push_back(in_heads(c, values[2], kv_heads()));
    }
    if (masked) inputs.push_back(values.back());
    const ValueId y = emit_attention(c, std::move(inputs), std::move(attributes));
    const Shape shape = c.shape(y);
    if (shape.rank() == 3) return y;
    return c.builder().emit1(
        "reshape", {y}, {{"shape", std::vector<int64_t>{shape[0], shape[1], shape[2] * shape[3]}}});
  }

 private:
  // [samples, tokens, heads, width of a head] of tokens in either form.
  static ValueId in_heads(LayerContext& c, ValueId x, int64_t heads) {
    const Shape shape = c.shape(x);
    if (shape.rank() == 4) {
      if (shape[2] == heads) return x;
      fail(ExitCode::usage, "expects [samples, tokens, {} heads, width], got {}", heads,
           to_string(shape));
    }
    expect_tokens(shape);
    if (shape[2] % heads != 0) {
      fail(ExitCode::usage, "tokens of width {} cannot be shared by {} heads", shape[2], heads);
    }
    return c.builder().emit1(
        "reshape", {x},
        {{"shape", std::vector<int64_t>{shape[0], shape[1], heads, shape[2] / heads}}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> attention_rows() {
  return {{"attention", "tokens look at each other, without projections (Vaswani et al. 2017)",
           make_kind_of<Attention>, "num_heads"}};
}

}  // namespace dltrain
