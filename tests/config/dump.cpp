#include "config/dump.h"

#include <limits>
#include <random>

#include "catch.h"
#include "config/environment.h"
#include "config/load.h"
#include "config/scalar.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;

TEST_CASE("the resolved configuration holds every key") {
  const auto experiment = read(
      "name: 'a: b'\n"
      "model: {layers: [linear: 4, residual: [relu]], rename: {'a b': c}}\n"
      "optimizer: {learning_rate: 1e-5}\n"
      "groups: [norm]\n"
      "watches: [{patience: 2}]\n"
      "training: {global_batch_size: 8, micro_batch_size: auto, freeze: ['1', 'no', x]}\n");
  CHECK(dump_config(experiment) == R"(name: "a: b"
seed: 0
model:
  layers:
    - type: linear
      features: 4
      bias: true
    - type: residual
      layers:
        - type: relu
  init_from: null
  rename: {"a b": c}
optimizer:
  type: adamw
  learning_rate: 1.0e-05
  weight_decay: 0.0
  betas: [0.9, 0.999]
second: null
groups:
  - pattern: norm
    weight_decay: null
watches:
  - metric: loss
    patience: 2
training:
  global_batch_size: 8
  micro_batch_size: auto
  max_steps: null
  reduction: fast
  freeze: ["1", "no", x]
  early_stopping: null
)");
}

TEST_CASE("reading the resolved configuration gives it back") {
  const std::string text = GENERATE(values<std::string>({
      "model: {layers: []}\ntraining: {global_batch_size: 1}\n",
      "model: {layers: [relu, residual: [residual: [], dropout: 0.1]], init_from: a/b}\n"
      "training: {global_batch_size: 8, early_stopping: {metric: x}, max_steps: 3}\n"
      "second: sgd\ngroups: [{pattern: '*', weight_decay: 0.1}]\nseed: 9223372036854775807\n",
  }));
  const std::string once = dump_config(read(text));
  CHECK(dump_config(read(once)) == once);
}

TEST_CASE("numbers and texts survive the dump exactly") {
  const auto round_trip = [](const Value& value) {
    Diagnostics diagnostics;
    auto tree = read_yaml(source("x: " + value_text(value)), 0, diagnostics);
    diagnostics.throw_if_any();
    expand_environment(
        *tree, [](const std::string&) { return std::nullopt; }, diagnostics);
    diagnostics.throw_if_any();
    return *tree->find("x");
  };
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (std::isnan(value)) continue;
    REQUIRE(as_number(round_trip(value)) == value);
  }
  for (const double value :
       {0.0, 0.1, 1e15, 1e16, 123456789012345678.0, 5e-324, -2.5,
        std::numeric_limits<double>::max(), std::numeric_limits<double>::infinity()}) {
    CHECK(as_number(round_trip(value)) == value);
  }
  CHECK(std::signbit(*as_number(round_trip(-0.0))));
  const std::string alphabet = "ab1 .-_:#'\"\\{}[]$,&*!|>%@`\t\n\r~=<?yNo/é\x01";
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    const size_t length = random() % 6;
    for (size_t k = 0; k < length; ++k) {
      const char c = alphabet[random() % alphabet.size()];
      text += (c & 0x80) != 0 ? "é" : std::string(1, c);
    }
    const ConfigNode node = round_trip(text);
    INFO(value_text(text));
    REQUIRE(node.text == text);
    REQUIRE(classify(node) == ScalarType::text);
  }
  for (const std::string text :
       {"",     "~",     "null", "true",       "No",      "012",      "1e5",   ".5",
        "-",    "--- a", "...",  "2024-01-01", "${HOME}", "$${HOME}", "$$${x", "a: b",
        "a #b", "<<",    "=",    "0x1F",       "1_000",   "12:30:45"}) {
    const ConfigNode node = round_trip(text);
    CHECK(node.text == text);
    CHECK(classify(node) == ScalarType::text);
  }
}
