// multi_head_attention: y = attention(x·W_inᵀ + b_in)·W_outᵀ + b_out of tokens among themselves.
// Parameters have the names and shapes of torch.nn.MultiheadAttention (in_proj_weight,
// in_proj_bias, out_proj.weight, out_proj.bias), so that torchvision's vision transformers load;
// with fewer key and value heads the rows of k and v of in_proj_weight are fewer.
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "nn/decoding.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct MultiHeadAttention final : Layer {
  int64_t num_heads = 0;
  std::optional<int64_t> num_kv_heads;
  bool bias = true, causal = false;
  double dropout = 0;

  void describe(Fields& f) override {
    f.integer("num_heads", num_heads,
              {.doc = "Heads; the width of the tokens is a multiple of it",
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
    f.boolean("bias", bias, {.doc = "Biases of both projections"});
    f.boolean(
        "causal", causal,
        {.doc = "A token looks at itself and those before it only", .known_as = {"is_causal"}});
    f.number("dropout", dropout,
             {.doc = "Probability of setting a weight of the softmax to zero in training",
              .min = 0,
              .below = 1,
              .known_as = {"attention_dropout", "attn_dropout"}});
  }
  void validate(Problems& problems) const override {
    if (num_kv_heads && num_heads % *num_kv_heads != 0) {
      problems.add(*this, "num_kv_heads",
                   fmt::format("{} heads cannot share {} heads of keys and values", num_heads,
                               *num_kv_heads));
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    if (shape.rank() != 3) {
      fail(ExitCode::usage, "expects tokens [samples, tokens, width], got {}", to_string(shape));
    }
    const int64_t width = shape[2], kv_heads = num_kv_heads.value_or(num_heads);
    if (width % num_heads != 0) {
      fail(ExitCode::usage, "tokens of width {} cannot be shared by {} heads", width, num_heads);
    }
    const int64_t projected = width + 2 * kv_heads * (width / num_heads);
    // torch's: Xavier's bound over the whole of in_proj, zero biases, and Linear's default for
    // out_proj's weight.
    const double in_bound = std::sqrt(6.0 / static_cast<double>(width + projected));
    const double out_bound = 1 / std::sqrt(static_cast<double>(width));
    const ValueId qkv =
        project(c, x, "in_proj_weight", "in_proj_bias", {projected, width}, in_bound);
    std::vector<ValueId> inputs{qkv};
    Attributes attributes{{"heads", num_heads}, {"kv_heads", kv_heads}, {"causal", causal}};
    if (c.training() && dropout > 0) {
      attributes.set("dropout", dropout);
      attributes.set("stream", static_cast<int64_t>(random_stream(c.path())));
      inputs.push_back(c.builder().step_state());
    }
    const ValueId y = emit_attention(c, inputs, attributes);
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

KindRow<Layer> multi_head_attention_row() {
  return {"multi_head_attention", "tokens look at each other (Vaswani et al. 2017)",
          make_kind_of<MultiHeadAttention>, "num_heads"};
}

}  // namespace dltrain
