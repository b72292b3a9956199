#include <chrono>
#include <random>

#include "catch.h"
#include "hostile.h"

using namespace dltrain;
using namespace dltrain::example;

TEST_CASE("thousands of damaged files end in a message or a configuration") {
  const std::string good = R"(name: &n "run-${USER:-x}"
seed: 0x1F
model:
  layers: [relu, {linear: 4, bias: false}, {type: residual, layers: [dropout: 0.1]}]
  rename: {'a.*': *n, b: |-
    text}
optimizer: {type: sgd, learning_rate: 1.0e-3, nesterov: true}   # a comment
groups: [norm, {<<: &g {pattern: bias}, weight_decay: 0}]
watches:
  - {patience: 2}
training:
  global_batch_size: 64
  micro_batch_size: auto
  freeze: ["1", 'no', x]
)";
  const std::string pieces[] = {
      "${",       "}",     "{",    "[",    "]",      ": ",  "- ", "\n", "\t",    "'",     "\"",
      "&a ",      "*a ",   "<<: ", "~",    "!!x ",   "|\n", ">",  "%",  "---\n", "...\n", "\xff",
      "\xc3\xa9", "1e999", "-",    "null", "type: ", "\\",  "#",  ",",  "? ",    "@"};
  CHECK(survives("name: x\nmodel: {layers: []}\ntraining: {global_batch_size: 1}\n"));
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto start = std::chrono::steady_clock::now();
  int right = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = good;
    if (i % 3 == 0)
      text.erase(text.find("  rename"), text.find("optimizer") - text.find("  rename"));
    for (size_t edits = below(4); edits > 0 && !text.empty(); --edits) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text.erase(at, 1 + below(8));
          break;
        case 1:
          text.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    INFO(text);
    bool survived = false;
    REQUIRE_NOTHROW(survived = survives(text));
    right += survived ? 1 : 0;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // Both outcomes must really occur, or the mutations test nothing.
  CHECK(right > 200);
  CHECK(right < 3500);
  CHECK(seconds.count() < 60);  // seconds when optimised; sanitizers are slower
}
