// attention: softmax(scale · q·kᵀ)·v of every head, without parameters. Projections are layers of
// their own, so that they can have the names of any model family. An integer input at the end masks
// padding: it has the number of tokens of each sample, or 1 for each token that is present (Hugging
// Face's attention_mask). The input `document_positions` of the data keeps documents apart.
//
// multi_head_attention: self-attention, y = attention(x·W_inᵀ + b_in)·W_outᵀ + b_out. Parameters
// have the names and shapes of torch.nn.MultiheadAttention (in_proj_weight, in_proj_bias,
// out_proj.weight, out_proj.bias), so that torchvision's vision transformers load; with fewer key
// and value heads, in_proj_weight has fewer rows for k and v.
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "nn/decoding.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

// The common keys of both layers, and the op.
struct AttentionLayer : Layer {
  int64_t num_heads = 0;
  std::optional<int64_t> num_kv_heads;
  bool causal = false;
  double dropout = 0;

  void describe_heads(Fields& f, const char* doc) {
    f.integer("num_heads", num_heads,
              {.doc = doc,
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
  void describe_causal(Fields& f) {
    f.boolean(
        "causal", causal,
        {.doc = "A token attends only to itself and earlier tokens", .known_as = {"is_causal"}});
  }
  void describe_dropout(Fields& f) {
    f.number("dropout", dropout,
             {.doc = "Probability of setting a weight of the softmax to zero in training",
              .min = 0,
              .below = 1,
              .known_as = {"attention_dropout", "attn_dropout"}});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (num_kv_heads && num_heads % *num_kv_heads != 0) {
      diagnostics.add(*this, "num_kv_heads", "num_heads {} is not a multiple of num_kv_heads {}",
                      num_heads, *num_kv_heads);
    }
  }

  int64_t kv_heads() const { return num_kv_heads.value_or(num_heads); }

  // Throws Error(usage) unless the heads divide the width of the tokens.
  static void check_width(int64_t width, int64_t heads) {
    if (width % heads == 0) return;
    fail(ExitCode::usage, "tokens of width {} cannot be divided into {} heads", width, heads);
  }

  // Emits the op on `inputs` (see ops/attention.h). Adds causal and, in training, dropout to
  // `attributes` and the random numbers of the step to the inputs.
  ValueId emit_attention(LayerContext& c, std::vector<ValueId> inputs,
                         Attributes attributes) const {
    attributes.set("causal", causal);
    if (const ValueId positions = c.document_positions(); positions != kNoValue) {
      if (attributes.boolean("masked")) {
        fail(ExitCode::usage, "has a mask, which data.document_mask cannot be combined with");
      }
      if (!causal) {
        fail(ExitCode::usage,
             "is not causal; data.document_mask is for attention to earlier tokens");
      }
      attributes.set("masked", true);
      attributes.set("documents", true);
      inputs.push_back(positions);
    }
    if (c.noise() && dropout > 0) {
      attributes.set("dropout", dropout);
      attributes.set("stream", static_cast<int64_t>(random_stream(c.path())));
      inputs.push_back(c.builder().step_state());
    }
    return dltrain::emit_attention(c, std::move(inputs), std::move(attributes));
  }
};

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
    f.integer(
        "sliding_window", sliding_window,
        {.doc =
             "A token attends only to tokens at a distance below this, including itself; 0: to all",
         .min = 0,
         .known_as = {"window", "window_size"}});
    f.boolean("alibi", alibi,
              {.doc = "Scores fall with the distance of the tokens, at a different rate for each "
                      "head (Press et al. 2022)"});
    describe_dropout(f);
  }

  ValueId emit_inputs(LayerContext& c, std::span<const ValueId> values) const override {
    // A mask is an integer input and comes last.
    const bool masked = values.size() > 1 && c.builder().spec(values.back()).dtype == DType::i32;
    const size_t tensors = values.size() - (masked ? 1 : 0);
    if (tensors != 1 && tensors != 3) {
      fail(ExitCode::usage,
           "takes queries, keys and values (inputs: [q, k, v]), or one input that concatenates "
           "them, and an optional integer mask; got {} inputs",
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
    return c.reshape(y, {shape[0], shape[1], shape[2] * shape[3]});
  }

 private:
  // Returns tokens of either form as [samples, tokens, heads, width of a head].
  static ValueId in_heads(LayerContext& c, ValueId x, int64_t heads) {
    const Shape shape = c.shape(x);
    if (shape.rank() == 4) {
      if (shape[2] == heads) return x;
      fail(ExitCode::usage, "expects [samples, tokens, {} heads, width], got {}", heads,
           to_string(shape));
    }
    expect_tokens(shape);
    check_width(shape[2], heads);
    return c.reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
  }
};

struct MultiHeadAttention final : AttentionLayer {
  bool bias = true;

  void describe(Fields& f) override {
    describe_heads(f, "Heads; the width of the tokens is a multiple of it");
    f.boolean("bias", bias, {.doc = "Biases of both projections"});
    describe_causal(f);
    describe_dropout(f);
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    expect_tokens(shape);
    const int64_t width = shape[2];
    check_width(width, num_heads);
    const int64_t projected = width + 2 * kv_heads() * (width / num_heads);
    // The initial values are those of torch: Xavier's bound for the whole of in_proj, zero biases,
    // and Linear's default for out_proj's weight.
    const double in_bound = std::sqrt(6.0 / static_cast<double>(width + projected));
    const double out_bound = 1 / std::sqrt(static_cast<double>(width));
    const ValueId qkv =
        project(c, x, "in_proj_weight", "in_proj_bias", {projected, width}, in_bound);
    const ValueId y = emit_attention(c, {qkv}, {{"heads", num_heads}, {"kv_heads", kv_heads()}});
    return project(c, y, "out_proj.weight", "out_proj.bias", {width, width}, out_bound);
  }

 private:
  ValueId project(LayerContext& c, ValueId x, const char* weight, const char* bias_name,
                  const Shape& shape, double bound) const {
    std::vector<ValueId> inputs{x, c.parameter(weight, shape, Initializer::uniform_within(bound))};
    if (bias) inputs.push_back(c.parameter(bias_name, {shape[0]}, Initializer::zeros()));
    return c.builder().emit1("matmul", inputs, {{"transpose_b", true}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> attention_rows() {
  return {{"attention", "tokens attend to each other, without projections (Vaswani et al. 2017)",
           make_kind_of<Attention>, "num_heads"},
          {"multi_head_attention", "tokens attend to each other (Vaswani et al. 2017)",
           make_kind_of<MultiHeadAttention>, "num_heads"}};
}

}  // namespace dltrain
