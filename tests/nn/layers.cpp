// Every layer: the ops and shapes it emits, its parameters and how files keep them, what it
// refuses.
#include <cmath>
#include <set>

#include "base/philox.h"
#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

// The forward without the loss, which is the same for all.
std::string forward_of(const EmittedModel& model) {
  const std::string text = print_graph(model.graph);
  const size_t end = text.rfind("\n", text.find("softmax_cross_entropy"));
  return text.substr(0, end + 1);
}

TEST_CASE("linear") {
  const EmittedModel model =
      emit_text("layers: [linear: 3, linear: {out_features: 2, bias: false}]", {5});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %3 = matmul(input.x, layers.0.weight, layers.0.bias) {transpose_b=true} : f32[2, 3]"
        "  # layers.0\n"
        "  %5 = matmul(%3, layers.1.weight) {transpose_b=true} : f32[2, 2]  # layers.1\n");
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[3, 5]\n"
        "layers.0.bias f32[3]\n"
        "layers.1.weight f32[2, 3]\n");
  const Initializer& init = model.parameters[0].initializer;
  CHECK(init.kind == Initializer::uniform);
  CHECK(init.value == Approx(1 / std::sqrt(5.0)));
  CHECK(refusal("layers: [linear: 3]", {4, 4, 1}) ==
        "model.yaml:1:10: error: model.layers[0] (linear) on [2, 4, 4, 1]: expects a vector a "
        "sample, got [2, 4, 4, 1]; put a flatten layer before it\n"
        "    1 | layers: [linear: 3]\n"
        "      |          ^~~~~~");
}

TEST_CASE(
    "conv2d keeps its weight as [out, height, width, in], files as [out, in, height, width]") {
  const EmittedModel model = emit_text(
      "layers: [{type: conv2d, out_channels: 4, kernel_size: [3, 2], stride: 2, padding: [1, 0], "
      "groups: 2}, flatten]",
      {6, 6, 2});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %3 = conv2d(input.x, layers.0.weight, layers.0.bias) {dilation=[1, 1], groups=2, "
        "padding=[1, 0], stride=[2, 2]} : f32[2, 3, 3, 4]  # layers.0\n"
        "  %4 = reshape(%3) {shape=[2, 36]} : f32[2, 36]  # layers.1\n");
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[4, 3, 2, 1] file [4, 1, 3, 2]\n"
        "layers.0.bias f32[4]\n");
  CHECK(model.parameters[0].initializer.value == Approx(1 / std::sqrt(6.0)));
  CHECK_THAT(
      refusal("layers: [{type: conv2d, out_channels: 4, kernel_size: 3, groups: 3}]", {6, 6, 2}),
      Contains("model.layers[0] (conv2d) on [2, 6, 6, 2]: 3 groups must divide 2 input and "
               "4 output channels"));
  CHECK_THAT(
      refusal("layers: [flatten, {type: conv2d, out_channels: 4, kernel_size: 3}]", {6, 6, 2}),
      Contains("model.layers[1] (conv2d) on [2, 72]: expects images"));
  CHECK_THAT(refusal("layers: [{type: conv2d, out_channels: 4, kernel_size: 3}]", {6, 5}),
             Contains("put reshape: [6, 5, 1] before this layer"));
  CHECK_THAT(refusal("layers: [{type: conv2d, out_channels: 4, kernel_size: 9}]", {6, 6, 2}),
             Contains("a window of 9"));
}

TEST_CASE("max_pool2d steps by its window unless told otherwise") {
  const EmittedModel model = emit_text(
      "layers: [max_pool2d: 2, {type: max_pool2d, kernel_size: 3, stride: 1, padding: 1}, flatten]",
      {8, 6, 3});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1, %2 = max_pool2d(input.x) {kernel=[2, 2], padding=[0, 0], stride=[2, 2]} : "
        "f32[2, 4, 3, 3], u8[2, 4, 3, 3]  # layers.0\n"
        "  %3, %4 = max_pool2d(%1) {kernel=[3, 3], padding=[1, 1], stride=[1, 1]} : "
        "f32[2, 4, 3, 3], u8[2, 4, 3, 3]  # layers.1\n"
        "  %5 = reshape(%3) {shape=[2, 36]} : f32[2, 36]  # layers.2\n");
  CHECK(model.parameters.empty());
  CHECK_THAT(refusal("layers: [max_pool2d: 2]", {5}), Contains("expects images"));
  CHECK_THAT(refusal("layers: [max_pool2d: 17]", {16, 16, 1}), Contains("not fit an extent of 16"));
  CHECK_THAT(refusal("layers: [max_pool2d: 17]", {17, 17, 1}), Contains("more than 255 elements"));
}

TEST_CASE("batch_norm: statistics of the micro-batch in training, running ones in evaluation") {
  const std::string text = "layers: [{type: batch_norm, momentum: 0.25, epsilon: 0.5}]";
  const EmittedModel training = emit_text(text, {3}, 4, true, DType::f32, 6);
  CHECK(forward_of(training) ==
        "forward:\n"
        "  %5, %6, %7 = batch_norm(input.x, layers.0.weight, layers.0.bias) {epsilon=0.5} : "
        "f32[4, 3], f32[3], f32[3]  # layers.0\n"
        "  layers.0.mean_sum = identity(%6) : f32[3]  # layers.0\n"
        "  layers.0.variance_sum = identity(%7) : f32[3]  # layers.0\n");
  CHECK(parameters_of(training) ==
        "layers.0.weight f32[3]\n"
        "layers.0.bias f32[3]\n"
        "layers.0.running_mean f32[3] buffer\n"
        "layers.0.running_var f32[3] buffer\n");
  REQUIRE(training.updates.size() == 1);
  CHECK(training.updates[0].op == "batch_norm_update");
  CHECK(training.updates[0].layer == "layers.0");
  CHECK(training.updates[0].attributes.number("groups") == 6);
  CHECK(training.updates[0].attributes.number("momentum") == 0.25);
  CHECK(training.updates[0].attributes.number("unbias") == Approx(4.0 / 3.0));

  const EmittedModel evaluation = emit_text(text, {3}, 4, false);
  CHECK(
      forward_of(evaluation) ==
      "forward:\n"
      "  %5 = batch_norm_inference(input.x, layers.0.weight, layers.0.bias, layers.0.running_mean, "
      "layers.0.running_var) {epsilon=0.5} : f32[4, 3]  # layers.0\n");
  CHECK(evaluation.updates.empty());
  CHECK(parameters_of(evaluation) == parameters_of(training));
  ModelConfig one_sample;
  REQUIRE(read_model(text, one_sample).empty());
  CHECK_THROWS_WITH(emit_text(text, {3}, 1),
                    Contains("batch statistics need more than one value per channel, got [1, 3]"));
}

TEST_CASE("dropout acts in training only, with a stream of its own a layer") {
  const EmittedModel model = emit_text("layers: [dropout: 0.25, dropout]", {3});
  REQUIRE(model.graph.nodes.size() == 3);
  const Attributes &first = model.graph.nodes[0].attributes,
                   &second = model.graph.nodes[1].attributes;
  CHECK(first.number("rate") == 0.25);
  CHECK(second.number("rate") == 0.5);
  CHECK(first.integer("stream") != second.integer("stream"));
  CHECK(first.integer("stream") == static_cast<int64_t>(random_stream("layers.0")));
  CHECK(forward_of(emit_text("layers: [dropout: 0.25]", {3}, 2, false)) == "forward:\n");
  CHECK(forward_of(emit_text("layers: [dropout: 0]", {3})) == "forward:\n");
}

TEST_CASE("activations keep the shape, flatten keeps the samples") {
  const EmittedModel model = emit_text(
      "layers: [relu, gelu, gelu: tanh, silu, tanh, sigmoid, flatten, flatten]", {2, 2, 1});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1 = relu(input.x) : f32[2, 2, 2, 1]  # layers.0\n"
        "  %2 = gelu(%1) : f32[2, 2, 2, 1]  # layers.1\n"
        "  %3 = gelu_tanh(%2) : f32[2, 2, 2, 1]  # layers.2\n"
        "  %4 = silu(%3) : f32[2, 2, 2, 1]  # layers.3\n"
        "  %5 = tanh(%4) : f32[2, 2, 2, 1]  # layers.4\n"
        "  %6 = sigmoid(%5) : f32[2, 2, 2, 1]  # layers.5\n"
        "  %7 = reshape(%6) {shape=[2, 4]} : f32[2, 4]  # layers.6\n");
  CHECK(model.parameters.empty());
}

TEST_CASE("activations with parameters carry them as attributes") {
  const EmittedModel model = emit_text(
      "layers: [leaky_relu: 0.2, elu: 0.5, softplus: {beta: 2}, hardtanh: {max_value: 3}, relu6, "
      "quick_gelu, softmax, log_softmax]",
      {3});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1 = leaky_relu(input.x) {negative_slope=0.2} : f32[2, 3]  # layers.0\n"
        "  %2 = elu(%1) {alpha=0.5} : f32[2, 3]  # layers.1\n"
        "  %3 = softplus(%2) {beta=2, threshold=20} : f32[2, 3]  # layers.2\n"
        "  %4 = hardtanh(%3) {max_value=3, min_value=-1} : f32[2, 3]  # layers.3\n"
        "  %5 = hardtanh(%4) {max_value=6, min_value=0} : f32[2, 3]  # layers.4\n"
        "  %6 = quick_gelu(%5) : f32[2, 3]  # layers.5\n"
        "  %7 = softmax(%6) : f32[2, 3]  # layers.6\n"
        "  %8 = log_softmax(%7) : f32[2, 3]  # layers.7\n");
  CHECK_THAT(mistakes_in("layers: [leaky_relu: -0.1]"), Contains("error:"));
  CHECK_THAT(mistakes_in("layers: [hardtanh: {min_value: 2}]"),
             Contains("min_value must be less than max_value"));
}

TEST_CASE("activations that are made of other ops") {
  const EmittedModel model = emit_text(
      "layers: [prelu, prelu: {per_channel: true, init: 0.1}, celu, celu: 2, log_sigmoid, "
      "tanhshrink, softshrink: 0.25, glu]",
      {4});
  CHECK_THAT(forward_of(model), Contains("= softplus(") &&
                                    Contains("{max_value=0.25, "
                                             "min_value=-0.25}") &&
                                    Contains(": f32[2, 2]  # layers.7"));
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[1]\n"
        "layers.1.weight f32[4]\n");
  CHECK(model.parameters[0].initializer.value == 0.25);
  CHECK_THAT(refusal("layers: [glu]", {3}),
             Contains("model.layers[0] (glu) on [2, 3]: glu halves the channels, and 3 is odd"));
  CHECK_THAT(mistakes_in("layers: [celu: 0]"), Contains("error:"));
  CHECK_THAT(mistakes_in("layers: [softshrink: -1]"), Contains("error:"));
  CHECK_THAT(mistakes_in("layers: [prelu: {num_parameters: 3}]"),
             Contains("did you mean 'per_channel'?"));
}

TEST_CASE("normalisation without weight and bias, and pooling with windows that reach out") {
  const EmittedModel model = emit_text(
      "layers: [{type: max_pool2d, kernel_size: 2, ceil_mode: true}, "
      "{type: avg_pool2d, kernel_size: 2, ceil_mode: true}, {type: batch_norm, affine: false}, "
      "{type: group_norm, num_groups: 2, affine: false}, {type: layer_norm, elementwise_affine: "
      "false}, flatten]",
      {5, 4, 2});
  CHECK_THAT(forward_of(model),
             Contains("f32[2, 3, 2, 2]") && Contains("f32[2, 2, 1, 2]") && Contains("= reshape("));
  CHECK(parameters_of(model) ==
        "layers.2.running_mean f32[2] buffer\n"
        "layers.2.running_var f32[2] buffer\n");
}

TEST_CASE("reshape, transpose, slice and pad2d keep the samples") {
  const EmittedModel model = emit_text(
      "layers: [reshape: [2, -1, 3], transpose: [0, 3, 1, 2], {type: slice, axis: 1, start: -2}, "
      "{type: slice, stop: -1}, {type: pad2d, padding: [1, 2, 3, 4], value: 0.5}, "
      "reshape: [9, -1]]",
      {12});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1 = reshape(input.x) {shape=[2, 2, 2, 3]} : f32[2, 2, 2, 3]  # layers.0\n"
        "  %2 = transpose(%1) {permutation=[0, 3, 1, 2]} : f32[2, 3, 2, 2]  # layers.1\n"
        "  %3 = slice(%2) {after=[0, 0, 0, 0], before=[0, 1, 0, 0]} : f32[2, 2, 2, 2]"
        "  # layers.2\n"
        "  %4 = slice(%3) {after=[0, 0, 0, 1], before=[0, 0, 0, 0]} : f32[2, 2, 2, 1]"
        "  # layers.3\n"
        "  %5 = pad(%4) {after=[0, 4, 2, 0], before=[0, 3, 1, 0], value=0.5} : f32[2, 9, 5, 1]"
        "  # layers.4\n"
        "  %6 = reshape(%5) {shape=[2, 9, 5]} : f32[2, 9, 5]  # layers.5\n");
  CHECK_THAT(refusal("layers: [reshape: [5, -1]]", {12}),
             Contains("the 12 elements of a sample do not fit shape [5, -1]"));
  CHECK_THAT(refusal("layers: [reshape: [9223372036854775807, 4]]", {12}), Contains("do not fit"));
  CHECK_THAT(refusal("layers: [transpose: [0, 2, 1]]", {12}), Contains("[0, 2, 1]"));
  CHECK_THAT(refusal("layers: [slice: {axis: 2}]", {12}), Contains("one of the axes 1 to 1"));
  CHECK_THAT(refusal("layers: [slice: {start: 3, stop: 3}]", {12}), Contains("elements 3 to 3"));
  CHECK_THAT(mistakes_in("layers: [reshape: [-1, -1]]"), Contains("only one extent"));
  CHECK_THAT(mistakes_in("layers: [transpose: [1, 0]]"), Contains("axis 0 stays the first"));
  CHECK_THAT(mistakes_in("layers: [pad2d: [1, 2]]"), Contains("one or four"));
}

TEST_CASE("pooling over windows, to a size, and over whole images") {
  const EmittedModel model = emit_text(
      "layers: [avg_pool2d: 2, {type: avg_pool2d, kernel_size: 3, stride: 1, padding: 1, "
      "count_include_pad: false}, adaptive_avg_pool2d: [3, 2], adaptive_max_pool2d: 2, "
      "global_max_pool2d]",
      {8, 6, 3});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1 = avg_pool2d(input.x) {count_include_pad=true, kernel=[2, 2], padding=[0, 0], "
        "stride=[2, 2]} : f32[2, 4, 3, 3]  # layers.0\n"
        "  %2 = avg_pool2d(%1) {count_include_pad=false, kernel=[3, 3], padding=[1, 1], "
        "stride=[1, 1]} : f32[2, 4, 3, 3]  # layers.1\n"
        "  %3 = avg_pool2d(%2) {output_size=[3, 2]} : f32[2, 3, 2, 3]  # layers.2\n"
        "  %4, %5 = adaptive_max_pool2d(%3) {output_size=[2, 2]} : f32[2, 2, 2, 3], "
        "i32[2, 2, 2, 3]  # layers.3\n"
        "  %6, %7 = adaptive_max_pool2d(%4) {output_size=[1, 1]} : f32[2, 1, 1, 3], "
        "i32[2, 1, 1, 3]  # layers.4\n"
        "  %8 = reshape(%6) {shape=[2, 3]} : f32[2, 3]  # layers.4\n");
  CHECK(forward_of(emit_text("layers: [global_avg_pool2d]", {8, 6, 3})) ==
        "forward:\n  %1 = reduce(input.x) {axes=[1, 2], kind=mean} : f32[2, 3]  # layers.0\n");
  for (const char* layer : {"avg_pool2d: 2", "adaptive_avg_pool2d: 1", "adaptive_max_pool2d: 1",
                            "global_avg_pool2d", "global_max_pool2d", "upsample2d: 2"}) {
    CHECK_THAT(refusal(fmt::format("layers: [{}]", layer), {5}), Contains("expects images"));
  }
  CHECK_THAT(refusal("layers: [{type: avg_pool2d, kernel_size: 2, padding: 2}]", {8, 6, 3}),
             Contains("padding [2, 2] is more than half of the window [2, 2]"));
}

TEST_CASE("norms: which parameters they have, and what they refuse") {
  const EmittedModel model = emit_text(
      "layers: [layer_norm, layer_norm: {elementwise_affine: false}, layer_norm: {bias: false}, "
      "rms_norm, rms_norm: {elementwise_affine: false, epsilon: 0.5}, group_norm: 2]",
      {6});
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[6]\nlayers.0.bias f32[6]\nlayers.2.weight f32[6]\n"
        "layers.3.weight f32[6]\nlayers.5.weight f32[6]\nlayers.5.bias f32[6]\n");
  const auto& nodes = model.graph.nodes;
  CHECK(nodes[0].attributes.number("epsilon") == 1e-5);
  CHECK(nodes[1].inputs == std::vector<ValueId>{nodes[0].outputs[0], kNoValue, kNoValue});
  CHECK(nodes[3].attributes.number("epsilon") == 1.1920928955078125e-7);
  CHECK(nodes[4].attributes.number("epsilon") == 0.5);
  CHECK(nodes[5].attributes.integer("groups") == 2);
  CHECK_THAT(refusal("layers: [group_norm: 4]", {6}), Contains("4 groups must divide 6 channels"));
  CHECK_THAT(mistakes_in("layers: [layer_norm: {eps: 1e-6}]"), Contains("did you mean 'epsilon'?"));
}

TEST_CASE("conv_transpose2d is the backward of a convolution, and a bias") {
  const EmittedModel model = emit_text(
      "layers: [{type: conv_transpose2d, out_channels: 4, kernel_size: [3, 2], stride: 2, "
      "padding: [1, 0], output_padding: [1, 0], groups: 2}, flatten]",
      {3, 4, 2});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %2 = conv2d_backward_input(input.x, layers.0.weight) {dilation=[1, 1], groups=2, "
        "input_shape=[2, 6, 8, 4], padding=[1, 0], stride=[2, 2]} : f32[2, 6, 8, 4]  # layers.0\n"
        "  %4 = add(%2, layers.0.bias) : f32[2, 6, 8, 4]  # layers.0\n"
        "  %5 = reshape(%4) {shape=[2, 192]} : f32[2, 192]  # layers.1\n");
  CHECK(parameters_of(model) ==
        "layers.0.weight f32[2, 3, 2, 2] file [2, 2, 3, 2]\n"
        "layers.0.bias f32[4]\n");
  CHECK(model.parameters[0].initializer.value == Approx(1 / std::sqrt(12.0)));
  CHECK_THAT(mistakes_in("layers: [conv_transpose2d: {out_channels: 2, kernel_size: 2, "
                         "output_padding: 1}]"),
             Contains("output_padding must be less than stride"));
  CHECK_THAT(refusal("layers: [{type: conv_transpose2d, out_channels: 4, kernel_size: 1, "
                     "padding: 2}]",
                     {3, 4, 2}),
             Contains("padding 2 leaves nothing of [2, 3, 4, 2]"));
}

TEST_CASE("upsample2d by a factor or to a size") {
  const EmittedModel model = emit_text(
      "layers: [upsample2d: [2, 3], {type: upsample2d, output_size: 5, mode: bilinear, "
      "align_corners: true}]",
      {3, 4, 2});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %1 = upsample2d(input.x) {mode=nearest, output_size=[6, 12]} : f32[2, 6, 12, 2]"
        "  # layers.0\n"
        "  %2 = upsample2d(%1) {align_corners=true, mode=bilinear, output_size=[5, 5]} : "
        "f32[2, 5, 5, 2]  # layers.1\n");
  CHECK_THAT(mistakes_in("layers: [upsample2d]"), Contains("scale_factor or output_size"));
  CHECK_THAT(mistakes_in("layers: [upsample2d: {scale_factor: 2, align_corners: true}]"),
             Contains("align_corners needs mode: bilinear"));
}

TEST_CASE("embedding takes integers only, dropout2d drops channels in training") {
  CHECK_THAT(refusal("layers: [embedding: {num_embeddings: 5, embedding_dim: 2}]", {3}),
             Contains("expects integer ids, got f32[2, 3]"));
  CHECK_THAT(mistakes_in("layers: [embedding: {num_embeddings: 5, embedding_dim: 2, "
                         "padding_idx: 5}]"),
             Contains("padding_idx must be less than num_embeddings"));
  const EmittedModel model = emit_text("layers: [dropout2d: 0.25]", {2, 2, 3});
  REQUIRE(model.graph.nodes.size() == 2);
  CHECK(model.graph.nodes[0].op->name == "dropout2d");
  CHECK(forward_of(emit_text("layers: [dropout2d: 0.25]", {2, 2, 3}, 2, false)) == "forward:\n");
}

// A new row of the table fails here until its keys have been thought of.
TEST_CASE("moe: rows sorted by expert, one product for all experts, losses of the router") {
  const std::string keys = "num_experts: 4, experts_per_token: 2, intermediate_size: 3";
  const EmittedModel model =
      emit_text("layers: [moe: {" + keys + ", balance_loss: 0.5, router_z_loss: 0.25}]", {5});
  CHECK(forward_of(model) ==
        "forward:\n"
        "  %2 = matmul(input.x, layers.0.gate.weight) {full_precision=true, transpose_b=true} : "
        "f32[2, 4]  # layers.0\n"
        "  %3 = softmax(%2) : f32[2, 4]  # layers.0\n"
        "  %4, %5, %6, %7, %8 = top_k_routing(%3) {k=2, normalize=true} : f32[2, 2], i32[2, 2], "
        "i32[2, 2], i32[4], i32[5]  # layers.0\n"
        "  %9 = dispatch_tokens(input.x, %7, %6) : f32[4, 5]  # layers.0\n"
        "  %11 = grouped_matmul(%9, layers.0.experts.gate_proj.weight, %8) {transpose_b=true} : "
        "f32[4, 3]  # layers.0\n"
        "  %12 = silu(%11) : f32[4, 3]  # layers.0\n"
        "  %14 = grouped_matmul(%9, layers.0.experts.up_proj.weight, %8) {transpose_b=true} : "
        "f32[4, 3]  # layers.0\n"
        "  %15 = mul(%12, %14) : f32[4, 3]  # layers.0\n"
        "  %17 = grouped_matmul(%15, layers.0.experts.down_proj.weight, %8) {transpose_b=true} : "
        "f32[4, 5]  # layers.0\n"
        "  %18 = combine_experts(%17, %6, %7, %4) : f32[2, 5]  # layers.0\n"
        "  %19, %20 = router_losses(%2, %8) : f64[2], f64[7]  # layers.0\n");
  CHECK(parameters_of(model) ==
        "layers.0.gate.weight f32[4, 5]\n"
        "layers.0.experts.gate_proj.weight f32[4, 3, 5]\n"
        "layers.0.experts.up_proj.weight f32[4, 3, 5]\n"
        "layers.0.experts.down_proj.weight f32[4, 5, 3]\n");
  CHECK(model.parameters[1].initializer.value == Approx(1 / std::sqrt(5.0)));
  REQUIRE(model.routers.size() == 1);
  CHECK(model.routers[0].info.balance_loss == 0.5);
  CHECK(model.routers[0].info.router_z_loss == 0.25);
  const EmittedModel other =
      emit_text("layers: [moe: {" + keys +
                    ", gated: false, router_bias: true, shared_experts: 2, activation: gelu}]",
                {5});
  CHECK(parameters_of(other) ==
        "layers.0.gate.weight f32[4, 5]\n"
        "layers.0.gate.bias f32[4]\n"
        "layers.0.experts.up_proj.weight f32[4, 3, 5]\n"
        "layers.0.experts.down_proj.weight f32[4, 5, 3]\n"
        "layers.0.shared_experts.up_proj.weight f32[6, 5]\n"
        "layers.0.shared_experts.down_proj.weight f32[5, 6]\n");
  // Fans are those of one expert.
  const EmittedModel scaled =
      emit_text("{init: xavier_normal, layers: [moe: {" + keys + "}]}", {5});
  CHECK(scaled.parameters[1].initializer.value == Approx(std::sqrt(2.0 / (3 + 5))));
  CHECK_THAT(refusal("{init: orthogonal, layers: [moe: {" + keys + "}]}", {5}),
             Contains("experts.gate_proj.weight has a matrix for each expert"));
  CHECK_THAT(refusal("layers: [moe: {" + keys + ", activation: softmax}]", {5}),
             Contains("softmax cannot be the activation of experts"));
  for (const char* activation : {"add", "concat", "token_type_embedding"}) {
    CHECK_THAT(refusal(fmt::format("layers: [moe: {{{}, activation: {}}}]", keys, activation), {5}),
               Contains("error: model.layers[0] (moe) on [2, 5]: "));
  }
  CHECK_THAT(mistakes_in("layers: [moe: {num_experts: 2, experts_per_token: 3, "
                         "intermediate_size: 3}]"),
             Contains("a token cannot choose 3 of 2 experts"));
  CHECK_THAT(mistakes_in("layers: [moe: {" + keys + ", activation: {type: relu, name: a}}]"),
             Contains("takes only its own keys"));
}

TEST_CASE("the keys of every layer are as documented") {
  std::set<std::string> table;
  for (const KindRow<Layer>& row : layer_table().rows) {
    table.insert(fmt::format("{}{}{}", row.name, row.bare_key.empty() ? "" : " ", row.bare_key));
    CHECK_FALSE(row.doc.empty());
  }
  const std::set<std::string> documented{"linear out_features",
                                         "lm_head",
                                         "conv2d",
                                         "conv_transpose2d",
                                         "batch_norm",
                                         "layer_norm",
                                         "rms_norm",
                                         "group_norm num_groups",
                                         "dropout rate",
                                         "dropout2d rate",
                                         "max_pool2d kernel_size",
                                         "avg_pool2d kernel_size",
                                         "adaptive_avg_pool2d output_size",
                                         "adaptive_max_pool2d output_size",
                                         "global_avg_pool2d",
                                         "global_max_pool2d",
                                         "upsample2d scale_factor",
                                         "embedding",
                                         "relu",
                                         "identity",
                                         "gelu approximate",
                                         "silu",
                                         "tanh",
                                         "sigmoid",
                                         "leaky_relu negative_slope",
                                         "elu alpha",
                                         "selu",
                                         "softplus",
                                         "mish",
                                         "hardswish",
                                         "hardsigmoid",
                                         "hardtanh",
                                         "relu6",
                                         "softsign",
                                         "quick_gelu",
                                         "softmax",
                                         "log_softmax",
                                         "flatten",
                                         "prelu per_channel",
                                         "celu alpha",
                                         "log_sigmoid",
                                         "tanhshrink",
                                         "softshrink lambda",
                                         "glu",
                                         "reshape shape",
                                         "transpose permutation",
                                         "slice",
                                         "pad2d padding",
                                         "sequential layers",
                                         "residual layers",
                                         "branches branches",
                                         "repeat",
                                         "add inputs",
                                         "multiply inputs",
                                         "concat inputs",
                                         "block use",
                                         "class_token",
                                         "position_embedding",
                                         "token_type_embedding num_types",
                                         "sinusoidal_positions",
                                         "rotary_positions",
                                         "lstm hidden_size",
                                         "gru hidden_size",
                                         "rnn hidden_size",
                                         "attention num_heads",
                                         "multi_head_attention num_heads",
                                         "moe"};
  CHECK(table == documented);
}

TEST_CASE("keys out of range or unknown are refused with the nearest name") {
  CHECK_THAT(mistakes_in("layers: [linear: 0]"), Contains("model.yaml:1:18: error:"));
  CHECK_THAT(mistakes_in("layers: [linear]"), Contains("out_features"));
  CHECK_THAT(mistakes_in("layers: [linear: {units: 3}]"), Contains("did you mean 'out_features'?"));
  CHECK_THAT(mistakes_in("layers: [dropout: 1]"), Contains("error:"));
  CHECK_THAT(mistakes_in("layers: [batch_norm: {eps: 1e-5}]"), Contains("did you mean 'epsilon'?"));
  CHECK_THAT(mistakes_in("layers: [linaer: 3]"), Contains("did you mean 'linear'?"));
  CHECK_THAT(mistakes_in("layers: []"), Contains("error:"));
  CHECK_THAT(mistakes_in("{}"), Contains("layers"));
  CHECK_THAT(mistakes_in("{layers: [relu], rename: {a: b}}"), Contains("rename needs init_from"));
  CHECK(mistakes_in("{layers: [relu], init_from: w.safetensors, rename: {a: b}, strict: false}") ==
        "");
}

}  // namespace
}  // namespace dltrain
