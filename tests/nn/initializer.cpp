// Initial values: which layers they reach, and their distributions.
#include "nn/initializer.h"

#include <algorithm>
#include <cmath>

#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

const Initializer& initializer_of(const EmittedModel& model, const std::string& name) {
  const auto at = std::find_if(model.parameters.begin(), model.parameters.end(),
                               [&](const ParameterInfo& p) { return p.name == name; });
  REQUIRE(at != model.parameters.end());
  return at->initializer;
}

// The initialiser of a convolution with 6 outputs and 4 · 3 · 3 inputs.
Initializer of_conv(const std::string& init) {
  return initializer_of(emit_text("layers: [{conv2d: {out_channels: 6, kernel_size: 3}, name: c, "
                                  "weight_init: " +
                                      init + "}, flatten]",
                                  {5, 5, 4}),
                        "c.weight");
}

TEST_CASE("initialisers have the bounds and deviations of PyTorch") {
  const double in = 36, out = 54;
  CHECK(of_conv("he_normal").value == Approx(std::sqrt(2 / in)));
  CHECK(of_conv("he_normal").kind == Initializer::normal);
  CHECK(of_conv("{type: he_normal, mode: fan_out, gain: 1}").value == Approx(std::sqrt(1 / out)));
  CHECK(of_conv("he_uniform").value == Approx(std::sqrt(6 / in)));
  CHECK(of_conv("he_uniform").kind == Initializer::uniform);
  CHECK(of_conv("xavier_normal").value == Approx(std::sqrt(2 / (in + out))));
  CHECK(of_conv("{type: xavier_uniform, gain: 2}").value == Approx(2 * std::sqrt(6 / (in + out))));
  CHECK(of_conv("{normal: 0.5}").value == 0.5);
  CHECK(of_conv("{type: normal, std: 0.5, mean: 1}").mean == 1);
  CHECK(of_conv("truncated_normal").kind == Initializer::truncated_normal);
  CHECK(of_conv("{type: uniform, low: 1, high: 2}").value == 0.5);
  CHECK(of_conv("{type: uniform, low: 1, high: 2}").mean == 1.5);
  CHECK(of_conv("orthogonal").rows == 6);
  CHECK(of_conv("{constant: 3}").value == 3);
  CHECK(of_conv("ones").value == 1);
  CHECK(of_conv("default").value == Approx(1 / std::sqrt(in)));
  CHECK_THAT(mistakes_in("layers: [{linear: 3, weight_init: {type: uniform, low: 1, high: 0}}]"),
             Contains("low is above high"));
}

TEST_CASE("the innermost initialiser holds, and the model's is for weights of two axes or more") {
  const EmittedModel model = emit_text(R"(
init: he_normal
layers:
  - {linear: 4, name: a}
  - {batch_norm: {}, name: n}
  - {sequential: [{linear: 4, name: b}, {linear: 4, name: c, weight_init: ones, bias_init: {constant: 2}},
                  {batch_norm: {}, name: n}], name: s, weight_init: orthogonal}
  - {batch_norm: {}, name: z, weight_init: zeros}
  - {linear: 4, name: d, weight_init: default}
)",
                                       {4});
  CHECK(initializer_of(model, "a.weight").kind == Initializer::normal);
  CHECK(initializer_of(model, "a.bias").kind == Initializer::uniform);
  CHECK(initializer_of(model, "n.weight").value == 1);
  CHECK(initializer_of(model, "s.b.weight").kind == Initializer::orthogonal);
  CHECK(initializer_of(model, "s.c.weight").kind == Initializer::constant);
  CHECK(initializer_of(model, "s.c.bias").value == 2);
  CHECK(initializer_of(model, "s.n.weight").kind == Initializer::constant);
  CHECK(initializer_of(model, "z.weight").value == 0);
  CHECK(initializer_of(model, "d.weight").kind == Initializer::uniform);
}

TEST_CASE("an initialiser that nothing takes is refused") {
  CHECK_THAT(refusal("layers: [linear: 3, {relu: {}, weight_init: ones}]", {3}),
             Contains("model.layers[1] (relu) has no weight of its own"));
  CHECK_THAT(refusal("layers: [{linear: {out_features: 3, bias: false}, bias_init: ones}]", {3}),
             Contains("model.layers[0] (linear) has no bias of its own"));
  CHECK_THAT(refusal("layers: [{batch_norm: {}, weight_init: he_normal}]", {3}),
             Contains("needs a weight of at least two axes"));
  CHECK_THAT(mistakes_in("layers: [{linear: 3, weight_init: he_norml}]"),
             Contains("did you mean 'he_normal'?"));
}

std::vector<double> drawn_initializer(const Initializer& initializer, size_t n) {
  std::vector<float> out(n);
  initialize(initializer, 3, "w", out);
  return {out.begin(), out.end()};
}

TEST_CASE("a truncated normal stays within two deviations") {
  const size_t n = 100'000;
  const auto values = drawn_initializer({Initializer::truncated_normal, 0.5, 1.0}, n);
  double sum = 0, squares = 0;
  for (double v : values) {
    CHECK((v >= 0.0 && v <= 2.0));
    sum += v - 1;
    squares += (v - 1) * (v - 1);
  }
  // Its deviation is 0.8796 of the normal's; five standard errors.
  CHECK(std::abs(sum / static_cast<double>(n)) < 5 * 0.44 / std::sqrt(static_cast<double>(n)));
  CHECK(std::sqrt(squares / static_cast<double>(n)) == Approx(0.8796 * 0.5).epsilon(0.01));
}

TEST_CASE("the vector of a padding id begins with zeros, whatever the initialiser") {
  const auto values =
      drawn_initializer({.kind = Initializer::normal, .value = 1, .zeros_at = {6, 3}}, 12);
  for (size_t i = 0; i < 12; ++i) CHECK((values[i] == 0) == (i >= 6 && i < 9));
}

TEST_CASE("rows or columns of an orthogonal matrix are orthogonal, with the gain as length") {
  for (const auto& [rows, columns] : {std::pair<size_t, size_t>{5, 12}, {12, 5}, {7, 7}}) {
    const auto m = drawn_initializer(
        {.kind = Initializer::orthogonal, .value = 2, .rows = static_cast<int64_t>(rows)},
        rows * columns);
    const size_t count = std::min(rows, columns), length = std::max(rows, columns);
    const auto at = [&](size_t i, size_t k) {
      return rows <= columns ? m[i * columns + k] : m[k * columns + i];
    };
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double dot = 0;
        for (size_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        CHECK(dot == Approx(i == j ? 4 : 0).margin(1e-5));
      }
    }
  }
}

}  // namespace
}  // namespace dltrain
