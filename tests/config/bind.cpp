#include "config/bind.h"

#include "catch.h"
#include "config/suggest.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;

namespace {

// A right configuration with one part replaced.
std::string with(const std::string& lines) {
  return "model: {layers: [relu]}\ntraining: {global_batch_size: 8}\n" + lines;
}

}  // namespace

TEST_CASE("every kind of key is read into its member") {
  const auto experiment = read(R"(
name: digits
seed: 7
model:
  layers:
    - {type: linear, features: 128}
    - relu
    - dropout: 0.25
    - linear: {features: 16, bias: false}
    - linear: 8
      bias: false
    - residual: [relu, {type: residual, layers: [{conv2d: 5}]}]
  rename: {'a.*': b}
optimizer: {type: sgd, learning_rate: 1e-1, momentum: 0.9, nesterov: true}
groups: [norm, {pattern: bias, weight_decay: 0}]
watches: [{patience: 2}]
training:
  global_batch_size: 64
  micro_batch_size: auto
  reduction: fixed
  freeze: [embed, 12]
  early_stopping: {}
)");
  CHECK(experiment.name == "digits");
  CHECK(experiment.seed == 7);
  const auto& layers = experiment.model.layers;
  REQUIRE(layers.size() == 6);
  CHECK(layers[1]->kind == "relu");
  CHECK(dynamic_cast<const Linear&>(*layers[0]).features == 128);
  CHECK(dynamic_cast<const Dropout&>(*layers[2]).probability == 0.25);
  CHECK_FALSE(dynamic_cast<const Linear&>(*layers[3]).bias);
  CHECK(dynamic_cast<const Linear&>(*layers[4]).features == 8);
  CHECK_FALSE(dynamic_cast<const Linear&>(*layers[4]).bias);
  const auto& residual = dynamic_cast<const Residual&>(*layers[5]);
  REQUIRE(residual.layers.size() == 2);
  const auto& inner = dynamic_cast<const Residual&>(*residual.layers[1]);
  CHECK(dynamic_cast<const Convolution&>(*inner.layers[0]).kernel_size == std::vector<int64_t>{5});
  CHECK(inner.layers[0]->location.path == "model.layers[5].layers[1].layers[0]");
  CHECK(inner.layers[0]->location.line() == 12);
  CHECK(experiment.model.rename == TextPairs{{"a.*", "b"}});
  const auto& sgd = dynamic_cast<const Sgd&>(*experiment.optimizer);
  CHECK(sgd.learning_rate == 0.1);
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov);
  CHECK(sgd.given("momentum"));
  CHECK_FALSE(sgd.given("weight_decay"));
  REQUIRE(experiment.groups.size() == 2);
  CHECK(experiment.groups[0].pattern == "norm");
  CHECK(experiment.groups[1].weight_decay == 0.0);
  CHECK(experiment.watches[0].patience == 2);
  CHECK(std::holds_alternative<Auto>(*experiment.training.micro_batch_size));
  CHECK(experiment.training.reduction == Reduction::fixed);
  CHECK(experiment.training.freeze == std::vector<std::string>{"embed", "12"});
  CHECK(experiment.training.early_stopping->patience == 5);
  CHECK_FALSE(experiment.training.max_steps);
  CHECK_FALSE(experiment.second);
}

TEST_CASE("a misspelt key is shown with its line and the nearest valid name") {
  CHECK(mistakes("model: {layers: [relu]}\ntraining:\n  global_batch_size: 8\n\n\n\n"
                 "optimizer: {learning_rat: 1e-3}\n") ==
        "exp.yaml:7:13: error: unknown key 'learning_rat' in optimizer (type adamw); did you mean "
        "'learning_rate'?\n"
        "    7 | optimizer: {learning_rat: 1e-3}\n"
        "      |             ^~~~~~~~~~~~");
}

TEST_CASE("all errors of a file are reported at once, in its order") {
  const std::string text =
      "modle: 3\n"
      "model:\n"
      "  layers:\n"
      "    - {type: linear, features: abc}\n"
      "    - rellu\n"
      "optimizer: {type: adamv}\n"
      "training: {max_steps: -1}\n";
  CHECK(mistakes(text) ==
        "exp.yaml:1:1: error: unknown key 'modle'; did you mean 'model'?\n"
        "    1 | modle: 3\n"
        "      | ^~~~~\n"
        "exp.yaml:4:32: error: expected an integer for model.layers[0].features, got the text "
        "'abc'\n"
        "    4 |     - {type: linear, features: abc}\n"
        "      |                                ^~~\n"
        "exp.yaml:5:7: error: unknown type 'rellu' in model.layers[1]; did you mean 'relu'?\n"
        "    5 |     - rellu\n"
        "      |       ^~~~~\n"
        "exp.yaml:6:19: error: unknown type 'adamv' in optimizer; did you mean 'adamw'?\n"
        "    6 | optimizer: {type: adamv}\n"
        "      |                   ^~~~~\n"
        "exp.yaml:7:11: error: missing key 'global_batch_size' in training\n"
        "    7 | training: {max_steps: -1}\n"
        "      |           ^\n"
        "exp.yaml:7:23: error: training.max_steps must be at least 0, got -1\n"
        "    7 | training: {max_steps: -1}\n"
        "      |                       ^~");
}

TEST_CASE("errors say what was expected and what was found") {
  struct Row {
    std::string lines, message;
  };
  const auto row = GENERATE(values<Row>({
      {"name: [a]", "3:7: error: expected text for name, got a list"},
      {"name: true", "3:7: error: expected text for name, got true; write \"true\" in quotes"},
      {"name:", "3:1: error: expected text for name, got nothing"},
      {"seed: \"a\\nb\"", "expected an integer for seed, got the text 'a\\nb'"},
      {"seed: yes", "3:7: error: expected an integer for seed, got the text 'yes'"},
      {"seed: 012", "got the text '012'; write 12 (a leading zero means octal"},
      {"seed: \"3\"", "got the quoted text '3'; remove the quotes"},
      {"seed: 1_000", "got the text '1_000'; write 1000"},
      {"seed: 1e3", "got the number 1e3; write 1000"},
      {"seed: 3.5", "expected an integer for seed, got the number 3.5"},
      {"seed: -1", "seed must be at least 0, got -1"},
      {"seed: 99999999999999999999", "99999999999999999999 does not fit 64 bits in seed"},
      {"optimizer: {learning_rate: abc}",
       "expected a number for optimizer.learning_rate, got the text 'abc'"},
      {"optimizer: {learning_rate: 0}", "optimizer.learning_rate must be above 0, got 0"},
      {"optimizer: {learning_rate: .inf}", "must be a finite number, got .inf"},
      {"optimizer: {learning_rate: .nan}", "must be a finite number, got .nan"},
      {"optimizer: {learning_rate: 1e999}", "must be a finite number, got 1e999"},
      {"optimizer: {betas: [0.9]}", "optimizer.betas must have 2 elements, got 1"},
      {"optimizer: {betas: [0.9, 1]}", "optimizer.betas[1] must be at least 0 and below 1, got 1"},
      {"optimizer: {betas: 0.9}",
       "expected a list of numbers for optimizer.betas, got the number 0.9"},
      {"optimizer: {lr: 1}",
       "unknown key 'lr' in optimizer (type adamw); did you mean 'learning_rate'?"},
      {"optimizer: {type: sgd, nesterov: on}",
       "expected true or false for optimizer.nesterov, got the text 'on'; write true"},
      {"optimizer: {type: [sgd]}", "expected the name of a type in optimizer, got a list"},
      {"optimizer: [sgd]", "expected a map with 'type' in optimizer, got a list"},
      {"optimizer: {type: lbfgs}", "unknown type 'lbfgs' in optimizer; known types: adamw, sgd"},
      {"second: {learning_rate: 1}", "missing key 'type' in second; known types: adamw, sgd"},
      {"second: {batch_size: 1, type: sgd}",
       "unknown key 'batch_size' in second (type sgd); did you mean 'training.global_batch_size'?"},
      {"max_steps: 3", "unknown key 'max_steps'; did you mean 'training.max_steps'?"},
      {"groups: {}", "expected a list in groups, got a map"},
      {"groups: [{weight_decay: 1}]", "missing key 'pattern' in groups[0]"},
      {"groups: [{pattern: a, type: b}]",
       "unknown key 'type' in groups[0], which has no types; its keys are pattern, weight_decay\n"},
      {"watches: {}", "expected a list in watches, got a map"},
      {"watches: [3]", "expected a map in watches[0], got the number 3"},
      {"zzzz: 1", "3:1: error: unknown key 'zzzz'\n"},
  }));
  INFO(row.lines);
  CHECK_THAT(mistakes(with(row.lines + "\n")), Catch::Contains(row.message));
}

TEST_CASE("of names that are equally near, one with the same first letter is meant") {
  const std::vector<std::string> names{"f32", "bf16", "fp16"};
  CHECK(nearest_name("f16", names) == "fp16");
  CHECK(nearest_name("b16", names) == "bf16");
}

TEST_CASE("an unknown type in short is named") {
  CHECK_THAT(mistakes("model: {layers: [dense: 64]}\n"),
             Catch::Contains("missing key 'type' in model.layers[0], and 'dense' is no type; "));
}

TEST_CASE("errors inside training name the key") {
  const auto message = [](const std::string& keys) {
    return mistakes("model: {layers: [relu]}\ntraining: {" + keys + "}\n");
  };
  CHECK_THAT(message("global_batch_size: 8, micro_batch_size: all"),
             Catch::Contains("expected an integer or auto for training.micro_batch_size, got the "
                             "text 'all'"));
  CHECK_THAT(message("global_batch_size: 8, reduction: fixd"),
             Catch::Contains("unknown value 'fixd' for training.reduction; did you mean 'fixed'?"));
  CHECK_THAT(message("global_batch_size: 8, reduction: slow"),
             Catch::Contains("unknown value 'slow' for training.reduction; known values: fast, "
                             "fixed"));
  CHECK_THAT(message("global_batch_size: 8, freeze: abc"),
             Catch::Contains("expected a list of texts for training.freeze, got the text 'abc'"));
  CHECK(message("global_batch_size: 8, micro_batch_size: 3") ==
        "exp.yaml:2:52: error: training.micro_batch_size 3 does not divide "
        "training.global_batch_size 8\n"
        "    2 | training: {global_batch_size: 8, micro_batch_size: 3}\n"
        "      |                                                    ^");
}

TEST_CASE(
    "what contradicts itself is told together with other errors, unless it follows from one") {
  const auto message = [](const std::string& keys) {
    return mistakes("model: {layers: [relu]}\ntraining: {" + keys + "}\n");
  };
  const std::string both = message("global_batch_size: 8, micro_batch_size: 3, freez: []");
  CHECK_THAT(both, Catch::Contains("did you mean 'freeze'?"));
  CHECK_THAT(both, Catch::Contains("does not divide"));
  for (const char* wrong : {"global_batch_siz: 8", "global_batch_size: many", "reduction: fast"}) {
    const std::string one = message(std::string(wrong) + ", micro_batch_size: 3");
    CHECK_THAT(one, Catch::Contains("global_batch_siz"));
    CHECK_THAT(one, !Catch::Contains("does not divide"));
  }
}

TEST_CASE("a layer's place lets later stages point at it") {
  const auto experiment = read(
      "model:\n  layers:\n    - {type: linear, features: 4}\n"
      "training: {global_batch_size: 8}\n");
  const ConfigVariant& layer = *experiment.model.layers[0];
  CHECK(describe_location(layer.location, "model.layers[0]: expected 3 inputs, got 4") ==
        "exp.yaml:3:7: error: model.layers[0]: expected 3 inputs, got 4\n"
        "    3 |     - {type: linear, features: 4}\n"
        "      |       ^");
}
