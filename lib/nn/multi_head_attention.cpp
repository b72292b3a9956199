// multi_head_attention: y = attention(x·W_inᵀ + b_in)·W_outᵀ + b_out of tokens among themselves.
// Parameters have the names and shapes of torch.nn.MultiheadAttention (in_proj_weight,
// in_proj_bias, out_proj.weight, out_proj.bias), so that torchvision's vision transformers load;
// with fewer key and value heads the rows of k and v of in_proj_weight are fewer.
#include <cmath>

#include "base/error.h"
#include "nn/attention_layer.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

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
    if (width % num_heads != 0) {
      fail(ExitCode::usage, "tokens of width {} cannot be shared by {} heads", width, num_heads);
    }
    const int64_t projected = width + 2 * kv_heads() * (width / num_heads);
    // torch's: Xavier's bound over the whole of in_proj, zero biases, and Linear's default for
    // out_proj's weight.
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

std::vector<KindRow<Layer>> multi_head_attention_rows() {
  return {{"multi_head_attention", "tokens look at each other (Vaswani et al. 2017)",
           make_kind_of<MultiHeadAttention>, "num_heads"}};
}

}  // namespace dltrain
