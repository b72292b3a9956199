#include <algorithm>
#include <cmath>

#include "catch.h"
#include "nn/initializer.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("a model ends in the sums of the loss and of right answers") {
  const EmittedModel model = emit_text("layers: [linear: 4]", {3});
  verify_graph(model.graph);
  CHECK(model.graph.value(model.inputs.front()).role == Role::input);
  CHECK(model.graph.value(model.inputs.front()).name == "input.x");
  CHECK(model.graph.value(model.targets).name == "targets");
  CHECK(model.graph.value(model.targets).spec == TensorSpec{Shape{2}, DType::i32});
  CHECK(model.graph.value(model.output).spec == TensorSpec{Shape{2, 4}, DType::f32});
  CHECK(model.graph.value(model.loss.loss_sum).spec == TensorSpec{Shape{1}, DType::f64});
  REQUIRE(model.loss.metrics.size() == 1);
  CHECK(model.loss.metrics[0].first == "accuracy");
  const auto loss = make_kind(loss_table(), "cross_entropy");
  CHECK(loss->classes(model.graph.value(model.output).spec) == 4);
}

TEST_CASE("parameters have the accumulation dtype of the activations") {
  for (const auto& [compute, expected] :
       {std::pair{DType::f64, DType::f64}, std::pair{DType::f32, DType::f32}}) {
    const EmittedModel model = emit_text("layers: [linear: 4]", {3}, 2, true, compute);
    for (const ParameterInfo& p : model.parameters) CHECK(p.spec.dtype == expected);
  }
}

TEST_CASE("an output that the loss cannot use is refused at the model") {
  const std::string message = refusal("layers: [relu]", {});
  CHECK_THAT(message, Contains("cross_entropy expects one vector of logits a sample, got [2]"));
}

TEST_CASE("only the first layer that does not fit is reported") {
  const std::string message = refusal(
      "layers:\n  - linear: 3\n  - max_pool2d: 2\n  - conv2d: {out_channels: 2, "
      "kernel_size: 3}\n",
      {5});
  CHECK_THAT(message, Contains("model.yaml:3:"));
  CHECK_THAT(message, Contains("model.layers[1] (max_pool2d) on [2, 3]"));
  CHECK(message.find("layers[2]") == std::string::npos);
}

TEST_CASE("tensors go from file order to memory order and back") {
  const ParameterInfo info{.name = "w",
                           .spec = {Shape{2, 2, 3, 4}, DType::f32},
                           .initializer = Initializer::zeros(),
                           .file = {Shape{2, 4, 2, 3}, {0, 2, 3, 1}}};
  std::vector<float> file(48), memory(48), back(48);
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i);
  file_to_memory(info, file, memory);
  for (size_t o = 0; o < 2; ++o) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t w = 0; w < 3; ++w) {
        for (size_t c = 0; c < 4; ++c) {
          CHECK(memory[((o * 2 + h) * 3 + w) * 4 + c] == file[((o * 4 + c) * 2 + h) * 3 + w]);
        }
      }
    }
  }
  memory_to_file(info, memory, back);
  CHECK(back == file);

  const ParameterInfo plain{.name = "v",
                            .spec = {Shape{48}, DType::f32},
                            .initializer = Initializer::zeros(),
                            .file = {Shape{48}, {}}};
  file_to_memory(plain, file, memory);
  CHECK(memory == file);
  std::vector<float> short_one(47);
  CHECK_THROWS_WITH(file_to_memory(plain, short_one, memory), Contains("47 elements in the file"));
  CHECK_THROWS_WITH(memory_to_file(info, memory, short_one), Contains("expected 48"));
}

std::vector<float> drawn_model(const Initializer& initializer, uint64_t seed, std::string_view name,
                               size_t n) {
  std::vector<float> out(n);
  initialize(initializer, seed, name, out);
  return out;
}

TEST_CASE("initial values depend on seed, name and element only") {
  for (const Initializer& initializer :
       {Initializer::uniform_within(0.5), Initializer::normal_of(2)}) {
    const auto values = drawn_model(initializer, 7, "layers.0.weight", 1000);
    CHECK(drawn_model(initializer, 7, "layers.0.weight", 1000) == values);
    auto start = drawn_model(initializer, 7, "layers.0.weight", 10);
    CHECK(std::equal(start.begin(), start.end(), values.begin()));
    CHECK(drawn_model(initializer, 8, "layers.0.weight", 1000) != values);
    CHECK(drawn_model(initializer, 7, "layers.1.weight", 1000) != values);
  }
  CHECK(drawn_model(Initializer::ones(), 7, "w", 3) == std::vector<float>{1, 1, 1});
  CHECK(drawn_model(Initializer::zeros(), 7, "w", 3) == std::vector<float>{0, 0, 0});
}

TEST_CASE("initial values have the distribution that is asked for") {
  const size_t n = 100'000;
  const auto moments = [](const std::vector<float>& values) {
    double sum = 0, squares = 0;
    for (float v : values) {
      sum += v;
      squares += double{v} * v;
    }
    const double count = static_cast<double>(values.size());
    return std::pair{sum / count, squares / count};
  };
  const auto uniform = drawn_model(Initializer::uniform_within(0.5), 1, "u", n);
  // Five standard errors of the mean and of the mean square, from the known moments.
  const double root = std::sqrt(static_cast<double>(n));
  CHECK(std::abs(moments(uniform).first) < 5 * std::sqrt(1.0 / 12) / root);
  CHECK(std::abs(moments(uniform).second - 1.0 / 12) < 5 * std::sqrt(1.0 / 80 - 1.0 / 144) / root);
  CHECK(std::all_of(uniform.begin(), uniform.end(), [](float v) { return std::abs(v) <= 0.5f; }));
  const auto normal = drawn_model(Initializer::normal_of(2), 1, "n", n);
  CHECK(std::abs(moments(normal).first) < 5 * 2 / root);
  CHECK(std::abs(moments(normal).second - 4) < 5 * 4 * std::sqrt(2.0) / root);
  const auto beyond = std::count_if(normal.begin(), normal.end(), [](float v) { return v > 4; });
  CHECK(std::abs(static_cast<double>(beyond) / static_cast<double>(n) - 0.02275) < 0.0025);
}

}  // namespace
}  // namespace dltrain
