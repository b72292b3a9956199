// Layers of token sequences.
#include <cmath>

#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("class_token and position_embedding have torchvision's parameters") {
  const EmittedModel model = emit_text(
      "layers: [class_token, {type: position_embedding, std: 0.5}, flatten, linear: 3]", {5, 4});
  CHECK(
      parameters_of(model).starts_with("layers.0.class_token f32[1, 1, 4]\n"
                                       "layers.1.pos_embedding f32[1, 6, 4]\n"));
  CHECK(model.parameters[1].initializer.value == 0.5);
  const std::string text = print_graph(model.graph);
  CHECK_THAT(text, Contains("broadcast(layers.0.class_token) {shape=[2, 1, 4]}") &&
                       Contains("{axis=1} : f32[2, 6, 4]"));
  CHECK_THAT(refusal("layers: [class_token, flatten]", {4}), Contains("expects tokens"));
  CHECK_THAT(refusal("layers: [position_embedding, flatten]", {4, 4, 1}),
             Contains("expects tokens"));
}

TEST_CASE("multi_head_attention has the parameters of torch.nn.MultiheadAttention") {
  const EmittedModel model =
      emit_text("layers: [multi_head_attention: 2, flatten, linear: 3]", {5, 4});
  CHECK(
      parameters_of(model).starts_with("layers.0.in_proj_weight f32[12, 4]\n"
                                       "layers.0.in_proj_bias f32[12]\n"
                                       "layers.0.out_proj.weight f32[4, 4]\n"
                                       "layers.0.out_proj.bias f32[4]\n"));
  CHECK(model.parameters[0].initializer.value == Approx(std::sqrt(6.0 / 16)));
  CHECK(model.parameters[1].initializer.kind == Initializer::constant);
  CHECK_THAT(print_graph(model.graph),
             Contains("{causal=false, heads=2, kv_heads=2} : f32[2, 5, 4], f32[2, 2, 5]"));
}

TEST_CASE("heads of keys and values may be shared, and only training drops weights") {
  const std::string layers =
      "layers: [{type: multi_head_attention, num_heads: 4, num_kv_heads: 1, bias: false, causal: "
      "true, dropout: 0.25}, flatten, linear: 3]";
  const EmittedModel model = emit_text(layers, {5, 8});
  CHECK(
      parameters_of(model).starts_with("layers.0.in_proj_weight f32[12, 8]\n"
                                       "layers.0.out_proj.weight f32[8, 8]\n"));
  CHECK_THAT(print_graph(model.graph),
             Contains("step_state) {causal=true, dropout=0.25, heads=4, kv_heads=1, stream="));
  CHECK_THAT(refusal("layers: [multi_head_attention: 3, flatten]", {5, 8}),
             Contains("width 8 cannot be divided into 3 heads"));
  CHECK_THAT(refusal("layers: [multi_head_attention: 2, flatten]", {8}),
             Contains("expects tokens"));
  CHECK_THAT(mistakes_in("layers: [{type: multi_head_attention, num_heads: 4, num_kv_heads: 3}]"),
             Contains("num_heads 4 is not a multiple of num_kv_heads 3"));
}

}  // namespace
}  // namespace dltrain
