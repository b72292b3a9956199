// Layers that hold layers, named inputs, merges and shared parameters.
#include <sstream>

#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

std::string nodes_of(const EmittedModel& model) {
  const std::string text = print_graph(model.graph);
  const size_t begin = text.find('\n') + 1;
  return text.substr(begin, text.rfind('\n', text.find("softmax_cross_entropy")) + 1 - begin);
}

EmittedModel emit_two_inputs(const std::string& text) {
  ModelConfig model;
  const std::string errors = read_model(text, model);
  if (!errors.empty()) throw Error(ExitCode::usage, errors);
  const auto loss = make_kind(loss_table(), "cross_entropy");
  return emit_model(
      {.model = model,
       .loss = *loss,
       .inputs = {{"left", {Shape{3}, DType::f32}}, {"right", {Shape{3}, DType::f32}}},
       .samples = 2});
}

TEST_CASE("layers are called by their name, or by their number in the list around them") {
  const EmittedModel model = emit_text(R"(
layers:
  - linear: 4
  - {linear: 4, name: stem}
  - sequential: [linear: 4, relu, {linear: 4, name: out}]
  - {sequential: [linear: 4, {sequential: [linear: 4]}], name: body}
  - {sequential: [linear: 4, {linear: 4, name: fc}], name: .}
  - linear: 4
)",
                                       {4});
  std::string names;
  for (const ParameterInfo& p : model.parameters) {
    if (p.name.ends_with(".weight")) names += p.name + "\n";
  }
  CHECK(names ==
        "layers.0.weight\nstem.weight\nlayers.2.0.weight\nlayers.2.out.weight\nbody.0.weight\n"
        "body.1.0.weight\nlayers.4.weight\nfc.weight\nlayers.6.weight\n");
}

TEST_CASE("residual adds its input, or its shortcut's output") {
  const EmittedModel plain = emit_text("layers: [{residual: [linear: 3, relu]}]", {3});
  CHECK(nodes_of(plain) ==
        "  %3 = matmul(input.x, layers.0.0.weight, layers.0.0.bias) {transpose_b=true} : f32[2, 3]"
        "  # layers.0.0\n"
        "  %4 = relu(%3) : f32[2, 3]  # layers.0.1\n"
        "  %5 = add(%4, input.x) : f32[2, 3]  # layers.0\n");
  const EmittedModel projected = emit_text(
      "layers: [{residual: {layers: [linear: 5], shortcut: [linear: {out_features: 5, bias: "
      "false}]}}]",
      {3});
  CHECK(parameters_of(projected) ==
        "layers.0.0.weight f32[5, 3]\n"
        "layers.0.0.bias f32[5]\n"
        "layers.0.shortcut.0.weight f32[5, 3]\n");
  CHECK_THAT(
      refusal("layers: [{residual: [linear: 5]}]", {3}),
      Contains(
          "model.layers[0] (residual) on [2, 3]: the shapes [2, 5] and [2, 3] cannot be combined"));
}

TEST_CASE("branches run side by side on one input") {
  const std::string text =
      "layers: [{branches: [[linear: 3], {name: gate, layers: [linear: 3, sigmoid]}, []], merge: ";
  const EmittedModel product = emit_text(text + "multiply}]", {3});
  CHECK(parameters_of(product) ==
        "layers.0.0.0.weight f32[3, 3]\nlayers.0.0.0.bias f32[3]\n"
        "layers.0.gate.0.weight f32[3, 3]\nlayers.0.gate.0.bias f32[3]\n");
  CHECK_THAT(nodes_of(product), Contains("mul(%3, %7)"));
  CHECK_THAT(nodes_of(product), Contains(", input.x) : f32[2, 3]  # layers.0\n"));
  CHECK_THAT(nodes_of(emit_text(text + "mean}]", {3})), Contains("{scale=0.333333"));
  CHECK_THAT(nodes_of(emit_text(text + "concat}]", {3})),
             Contains("concat(%3, %7, input.x) {axis=1} : f32[2, 9]"));
  CHECK_THAT(mistakes_in("layers: [{branches: [[relu], []]}]"), Contains("missing key 'merge'"));
  CHECK_THAT(mistakes_in("layers: [{branches: [[relu]], merge: add}]"), Contains("branches"));
}

TEST_CASE("concat puts its inputs one after the other along an axis") {
  const std::string two =
      "layers: [{conv2d: {out_channels: 2, kernel_size: 1}, name: a}, {conv2d: "
      "{out_channels: 2, kernel_size: 1}, name: b}, {concat: [a, b]";
  CHECK_THAT(nodes_of(emit_text(two + "}, flatten]", {4, 6, 1})), Contains("f32[2, 4, 6, 4]"));
  CHECK_THAT(nodes_of(emit_text(two + ", axis: 1}, flatten]", {4, 6, 1})),
             Contains("f32[2, 8, 6, 2]"));
  CHECK_THAT(refusal(two + ", axis: 0}, flatten]", {4, 6, 1}),
             Contains("axis 0 of [2, 4, 6, 2]: expects one of the axes 1 to 3"));
}

TEST_CASE("repeat gives each copy parameters of its own") {
  CHECK(parameters_of(emit_text("layers: [{repeat: {times: 2, layers: [linear: {out_features: 3, "
                                "bias: false}, relu]}, name: h}]",
                                {3})) == "h.0.0.weight f32[3, 3]\nh.1.0.weight f32[3, 3]\n");
  CHECK(
      parameters_of(emit_text("layers: [relu, {repeat: {times: 2, layers: [linear: {out_features: "
                              "3, bias: false}]}, name: .}, relu]",
                              {3})) == "layers.1.weight f32[3, 3]\nlayers.2.weight f32[3, 3]\n");
  CHECK_THAT(mistakes_in("layers: [{repeat: {times: 0, layers: [relu]}}]"), Contains("at least 1"));
  const std::string thousand = "{repeat: {times: 1000, layers: [";
  CHECK_THAT(refusal("layers: [" + thousand + thousand + "relu]}}]}}]", {3}),
             Contains("more than 100000 layers"));
}

// The graph without the paths of the layers.
std::string without_paths(const EmittedModel& model) {
  std::string out, line;
  std::istringstream text(print_graph(model.graph));
  while (std::getline(text, line)) out += line.substr(0, line.find("  # ")) + "\n";
  return out;
}

TEST_CASE("copies that share parameters are the same as layers that share them by name") {
  const EmittedModel copies = emit_text(R"(
layers:
  - repeat:
      times: 3
      share_parameters: true
      layers:
        - {linear: 3, name: a, weight_init: {normal: 0.5}}
        - {repeat: {times: 2, share_parameters: true, layers: [{linear: 3, name: in}]}, name: inner}
        - {linear: 3, share: a}
    name: h
)",
                                        {3});
  CHECK(parameters_of(copies) ==
        "h.0.a.weight f32[3, 3]\nh.0.a.bias f32[3]\n"
        "h.0.inner.0.in.weight f32[3, 3]\nh.0.inner.0.in.bias f32[3]\n");
  CHECK(copies.parameters[0].initializer.value == Approx(0.5));
  std::string layers;
  for (int i = 0; i < 3; ++i) {
    layers += i == 0 ? "{linear: 3, name: h.0.a}, {linear: 3, name: h.0.inner.0.in}, "
                     : "{linear: 3, share: h.0.a}, {linear: 3, share: h.0.inner.0.in}, ";
    layers += "{linear: 3, share: h.0.inner.0.in}, {linear: 3, share: h.0.a}, ";
  }
  CHECK(without_paths(copies) == without_paths(emit_text("layers: [" + layers + "]", {3})));

  // Copies of copies of another repeat.
  const EmittedModel twins = emit_two_inputs(R"(
layers:
  - {repeat: {times: 2, share_parameters: true, layers: [linear: 3]}, name: tower}
  - {repeat: {times: 2, share_parameters: true, layers: [linear: 3]}, inputs: right, share: tower}
  - add: [tower, previous]
)");
  CHECK(parameters_of(twins) == "tower.0.0.weight f32[3, 3]\ntower.0.0.bias f32[3]\n");
  CHECK_THAT(refusal("layers: [{repeat: {times: 2, share_parameters: true, layers: [batch_norm]}, "
                     "name: h}]",
                     {3}),
             Contains("running statistics cannot be shared"));
  CHECK_THAT(mistakes_in("layers: [{repeat: {times: 2, share_parameters: true, layers: [relu]}, "
                         "name: .}]"),
             Contains("copies that share parameters need a name"));
}

TEST_CASE("layers read what inputs names") {
  const EmittedModel model = emit_text(R"(
layers:
  - {linear: 3, name: a}
  - sequential:
      - {linear: {out_features: 3, bias: false}, inputs: a}
      - add: [previous, input]
  - {multiply: [a, previous]}
)",
                                       {3});
  CHECK_THAT(refusal("layers: [{linear: 3, name: a}, {linear: 3, inputs: b}]", {3}),
             Contains("no earlier layer is called 'b'"));
  // relu's output is used by nobody: the linear after it reads another layer.
  CHECK_THAT(
      refusal("layers: [{linear: 3, name: a}, sequential: [relu, {linear: 3, inputs: a}]]", {3}),
      Contains("nothing uses the output of model.layers[1].layers[0] (relu)"));
}

TEST_CASE("the inputs of the data are read by name") {
  const EmittedModel model = emit_two_inputs(
      "layers: [{linear: 3, name: a}, {linear: 3, inputs: right}, {add: [a, "
      "previous]}]");
  CHECK_THAT(nodes_of(model), Contains("matmul(input.left, a.weight, a.bias)"));
  CHECK_THAT(nodes_of(model), Contains("matmul(input.right, layers.1.weight, layers.1.bias)"));
  CHECK_THROWS_WITH(emit_two_inputs("layers: [linear: 3]"),
                    Contains("no layer reads the data's 'right'"));
  CHECK_THROWS_WITH(emit_two_inputs("layers: [{linear: 3, name: right}]"),
                    Contains("an input of the data is called 'right' already"));
}

TEST_CASE("names and inputs that cannot be are refused at their place") {
  const auto says = [](const std::string& layers, const std::string& what) {
    const std::string message = refusal("layers: " + layers, {3});
    CHECK_THAT(message, Contains(what));
    CHECK_THAT(message, Contains("model.yaml:1:"));
  };
  says("[{linear: 3, name: a}, {linear: 3, name: a}]", "an earlier layer is called 'a' already");
  says("[{linear: 3, name: 'a b'}]", "'a b' cannot be the name of a layer");
  says("[{linear: 3, name: previous}]", "'previous' cannot be the name of a layer");
  says("[{linear: 3, name: a.0}, {sequential: [linear: 3], name: a}]", "give it another `name`");
  says("[{linear: 3, inputs: [input, previous]}]", "takes one input, got 2");
  says("[add]", "takes at least two inputs");
  says("[{token_type_embedding: 2, inputs: \"types?\"}]", "none of its inputs exists");
  says("[linear: 3, {sequential: [{linear: 3, inputs: x}]}]", "no layer in it reads its input");
  says("[{linear: 3, name: a}, {linear: 3, inputs: input}, {linear: 4, name: b}]",
       "nothing uses the output of model.layers[0] (linear)");
  CHECK_THAT(refusal("layers: [{linear: 3, name: first}, {linear: 3, inputs: firts}]", {3}),
             Contains("did you mean 'first'?"));
  CHECK_THAT(mistakes_in("layers: [sequential: [linaer: 3]]"), Contains("did you mean 'linear'?"));
}

TEST_CASE("share uses the parameters of an earlier layer, whose gradients add up") {
  const EmittedModel tied =
      emit_text("layers: [{linear: 3, name: a}, relu, {linear: 3, share: a}]", {3});
  CHECK(parameters_of(tied) == "a.weight f32[3, 3]\na.bias f32[3]\n");
  CHECK_THAT(nodes_of(tied), Contains("matmul(%4, a.weight, a.bias)"));

  const EmittedModel twins = emit_two_inputs(R"(
layers:
  - {sequential: [{linear: 4, name: in}, relu, linear: 3], name: tower}
  - {sequential: [{linear: 4, name: in}, relu, linear: 3], inputs: right, share: tower}
  - add: [tower, previous]
)");
  CHECK(parameters_of(twins) ==
        "tower.in.weight f32[4, 3]\ntower.in.bias f32[4]\n"
        "tower.2.weight f32[3, 4]\ntower.2.bias f32[3]\n");

  const std::string a = "layers: [{linear: 3, name: a}, ";
  CHECK_THAT(refusal(a + "{linear: 4, share: a}]", {3}),
             Contains("a.weight is [3, 3], this layer needs [4, 3]"));
  CHECK_THAT(refusal(a + "{linear: 3, share: b}]", {3}),
             Contains("no earlier layer is called 'b'"));
  CHECK_THAT(refusal(a + "{relu: {}, share: a}]", {3}), Contains("it has no parameters to share"));
  CHECK_THAT(refusal("layers: [{linear: {out_features: 3, bias: false}, name: a}, {linear: 3, "
                     "share: a}]",
                     {3}),
             Contains("the layer that it shares with has no a.bias"));
  CHECK_THAT(refusal("layers: [{batch_norm: {}, name: n}, {batch_norm: {}, share: n}]", {3}),
             Contains("running statistics cannot be shared"));
}

TEST_CASE("dropout in every copy has a stream of its own") {
  const EmittedModel model =
      emit_text("layers: [{repeat: {times: 3, layers: [dropout]}}, {linear: 2}]", {3});
  std::vector<int64_t> streams;
  for (const Node& node : model.graph.nodes) {
    if (node.op->name == "dropout") streams.push_back(node.attributes.integer("stream"));
  }
  REQUIRE(streams.size() == 3);
  CHECK((streams[0] != streams[1] && streams[1] != streams[2] && streams[0] != streams[2]));
}

}  // namespace
}  // namespace dltrain
