// Blocks with arguments, and named architectures.
#include "nn/blocks.h"

#include "catch.h"
#include "nn/model_files.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

const std::string kUnit = R"(
blocks:
  unit:
    parameters: {width: , factor: 2, act: relu}
    layers:
      - linear: $factor * $width
      - $act
      - {linear: $width, name: out}
)";

TEST_CASE("a block is its layers with the arguments in them") {
  const EmittedModel model = emit_text(
      kUnit +
          "layers: [{block: unit, width: 3}, {block: {use: unit, width: 4, factor: 1, act: {gelu: "
          "tanh}}, name: second}, {type: block, use: unit, width: 2, name: .}]",
      {5});
  CHECK(parameters_of(model) ==
        "layers.0.0.weight f32[6, 5]\nlayers.0.0.bias f32[6]\n"
        "layers.0.out.weight f32[3, 6]\nlayers.0.out.bias f32[3]\n"
        "second.0.weight f32[4, 3]\nsecond.0.bias f32[4]\n"
        "second.out.weight f32[4, 4]\nsecond.out.bias f32[4]\n"
        "layers.2.weight f32[4, 4]\nlayers.2.bias f32[4]\n"
        "out.weight f32[2, 4]\nout.bias f32[2]\n");
  CHECK_THAT(print_graph(model.graph), Contains("gelu_tanh("));
}

TEST_CASE("blocks use blocks, and pass arguments on") {
  const EmittedModel model = emit_text(R"(
blocks:
  pair:
    parameters: {width: , body: }
    layers: [{block: one, width: 2 * $width}, {sequential: $body, name: .}, {block: one, width: $width}]
  one:
    parameters: {width: }
    layers: [{linear: {out_features: $width, bias: false}}]
layers: [{block: pair, width: 3, body: [relu, tanh]}]
)",
                                       {5});
  CHECK(parameters_of(model) == "layers.0.0.0.weight f32[6, 5]\nlayers.0.3.0.weight f32[3, 6]\n");
}

TEST_CASE("errors in a block are told at the block, those of an argument at the argument") {
  const std::string wrong = mistakes_in(R"(
blocks:
  unit:
    parameters: {width: }
    layers:
      - {linear: $width, biass: false}
layers:
  - {block: unit, width: 3}
  - {block: unit, width: 4}
)");
  CHECK(wrong ==
        "model.yaml:6:26: error: unknown key 'biass' in layers[0].layers[0] (type linear); did you "
        "mean 'bias'?\n"
        "    6 |       - {linear: $width, biass: false}\n"
        "      |                          ^~~~~\n"
        "model.yaml:8:13: note: block 'unit' is used here\n"
        "    8 |   - {block: unit, width: 3}\n"
        "      |             ^~~~");
  const std::string argument = mistakes_in(kUnit + "layers: [{block: unit, width: -1}]");
  CHECK_THAT(argument, Contains("model.yaml:9:31: error:"));
  CHECK_THAT(refusal(kUnit + "layers: [{block: unit, width: 3, act: max_pool2d: 2}]", {5}),
             Contains("error:"));
  const std::string shape = refusal(kUnit + "layers: [{block: unit, width: 3}]", {5, 5, 1});
  CHECK_THAT(shape,
             Contains("model.yaml:6:9: error: model.layers[0].layers[0] (linear) on [2, 5, 5, 1]"));
  CHECK_THAT(shape, Contains("model.yaml:9:18: note: block 'unit' is used here"));
}

TEST_CASE("uses and definitions of blocks that cannot be are refused") {
  const auto says = [](const std::string& text, const std::string& what) {
    INFO(text);
    CHECK_THAT(mistakes_in(text), Contains(what));
  };
  says(kUnit + "layers: [{block: unt, width: 3}]",
       "no block is called 'unt'; did you mean 'unit'?");
  says(kUnit + "layers: [{block: unit}]", "missing key 'width' in block 'unit'");
  says(kUnit + "layers: [{block: unit, widht: 3}]",
       "unknown key 'widht' in block 'unit'; did you mean 'width'?");
  says(kUnit + "layers: [{block: unit, width: wide}]",
       "expected an integer for 'width' of 'unit', got the text 'wide'");
  says(kUnit + "layers: [{block: unit, width: 4611686018427387904}]",
       "the product exceeds 64 bits");
  says(kUnit + "layers: [{block: {width: 3}}]", "a block needs 'use'");
  says("layers: [{linear: 3}, block]", "model.yaml:1:23: error: a block needs 'use'");
  says("layers: [{block: unit}]", "no block is called 'unit'");
  says("{blocks: {a: {layers: [{block: b}]}, b: {layers: [{block: a}]}}, layers: [{block: a}]}",
       "a block that uses itself: a -> b -> a");
  says("{blocks: {a: {parameters: {p: {block: a}}, layers: [$p]}}, layers: [{block: a}]}",
       "a block that uses itself: a -> a");
  says(
      "{blocks: {a: {parameters: {p: {block: b}}, layers: [$p]}, b: {parameters: {p: {block: a}}, "
      "layers: [$p]}}, layers: [{block: b}]}",
      "a block that uses itself: b -> a -> b");
  says("{blocks: {a: {layers: [linear: $w]}}, layers: [relu]}", "'a' has no parameter 'w'");
  says("{blocks: {a: {parameters: {w: 1}, layers: [relu]}}, layers: [relu]}",
       "no layer of 'a' uses the parameter 'w'");
  says("{blocks: {a: {parameters: {w: 1}, layers: [linear: $w + 1]}}, layers: [relu]}",
       "'$w + 1' is neither $name nor a product");
  says("{blocks: {a: {parameters: {name: 1}, layers: [linear: $name]}}, layers: [relu]}",
       "a parameter cannot be called 'name'");
  says("{blocks: {a: {layres: [relu]}}, layers: [relu]}", "did you mean 'layers'?");
  says("{blocks: [a], layers: [relu]}", "expected a map of blocks, got a list");
  says(
      "{blocks: {a: {parameters: {k: {default: x, choices: [x, y]}}, layers: [$k]}}, layers: "
      "[{block: a, k: z}]}",
      "expected one of x, y for 'k' in block 'a', got the text 'z'");
  says("layers: [linear: $width]", "error:");
}

TEST_CASE("defaults follow from earlier parameters, and products may divide") {
  const std::string unit =
      "blocks: {unit: {parameters: {width: 8, inner: 4 * $width, part: $inner / 2}, layers: "
      "[linear: $inner, linear: $width, linear: $part / $width]}}\n";
  CHECK(parameters_of(emit_text(unit + "layers: [{block: unit, width: 4}]", {5}))
            .ends_with("0.2.weight f32[2, 4]\nlayers.0.2.bias f32[2]\n"));
  CHECK_THAT(mistakes_in("{blocks: {a: {parameters: {w: 8, h: $w / 3}, layers: [linear: $h]}}, "
                         "layers: [{block: a}]}"),
             Contains("'$w / 3' is 8 / 3, no integer"));
  CHECK_THAT(mistakes_in("{blocks: {a: {parameters: {w: 8}, layers: [linear: $w / 0]}}, "
                         "layers: [{block: a}]}"),
             Contains("'$w / 0' is 8 / 0, no integer"));
  CHECK_THAT(mistakes_in("{blocks: {a: {parameters: {w: -9223372036854775808, v: -1}, layers: "
                         "[linear: $w / $v]}}, layers: [{block: a}]}"),
             Contains("the product exceeds 64 bits"));
  CHECK_THAT(mistakes_in("{blocks: {a: {parameters: {w: $h, h: 8}, layers: [linear: $w]}}, "
                         "layers: [{block: a}]}"),
             Contains("'a' has no parameter 'h'"));
}

TEST_CASE("blocks that double at every level end in a message, not in memory") {
  std::string text = "blocks:\n  b0: {layers: [relu, relu, relu, relu, relu, relu, relu, relu]}\n";
  for (int i = 1; i < 15; ++i) {
    const std::string inner = fmt::format("{{block: b{}}}", i - 1);
    text += fmt::format("  b{}: {{layers: [{}, {}, {}, {}]}}\n", i, inner, inner, inner, inner);
  }
  CHECK_THAT(mistakes_in(text + "layers: [{block: b14}]"), Contains("blocks expand to more than"));
  std::string wide = "blocks: {a: {parameters: {p: }, layers: [", argument;
  for (int i = 0; i < 1000; ++i) wide += "sequential: $p, ";
  for (int i = 0; i < 2000; ++i) argument += "relu, ";
  CHECK_THAT(mistakes_in(wide + "]}}\nlayers: [{block: a, p: [" + argument + "]}]"),
             Contains("blocks expand to more than"));
  std::string deep = "blocks:\n  b0: {layers: [relu]}\n";
  for (int i = 1; i < 40; ++i)
    deep += fmt::format("  b{}: {{layers: [{{block: b{}}}]}}\n", i, i - 1);
  CHECK_THAT(mistakes_in(deep + "layers: [{block: b39}]"), Contains("nested too deep"));
}

TEST_CASE("every named architecture can be read, and says what its parameters are") {
  REQUIRE_FALSE(model_files().empty());
  for (const EmbeddedFile& file : model_files()) {
    INFO(file.name);
    const ModelSummary summary = summarize(file);
    CHECK_FALSE(summary.description.empty());
    for (const auto& parameter : summary.parameters) {
      INFO(parameter.name.text);
      CHECK_FALSE(parameter.doc.empty());
      CHECK_FALSE(parameter.required);
    }
    CHECK(mistakes_in(fmt::format("{{type: {}}}", file.name)) == "");
  }
}

TEST_CASE("a named architecture takes its parameters beside its type") {
  CHECK_THAT(parameters_of(emit_text("{type: lenet, num_classes: 4}", {28, 28, 1})),
             Contains("fc3.weight f32[4, 84]"));
  CHECK_THAT(
      mistakes_in("{type: lenet, num_clases: 4}"),
      Contains("unknown key 'num_clases' in model (type lenet); did you mean 'num_classes'?"));
  CHECK_THAT(mistakes_in("{type: lent}"), Contains("did you mean 'lenet'?"));
  CHECK_THAT(mistakes_in("{type: lenet, layers: [relu]}"), Contains("both type and layers"));
  CHECK_THAT(mistakes_in("{type: lenet, num_classes: 0}"), Contains("model.yaml:1:28: error:"));
  CHECK(mistakes_in("{type: lenet, init_from: w.safetensors, strict: false, init: he_normal}") ==
        "");
  CHECK_THAT(refusal("{type: lenet}", {3}),
             Contains("model.yaml:1:8: error: layer conv1 (conv2d) on"));
}

}  // namespace
}  // namespace dltrain
