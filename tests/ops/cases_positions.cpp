// rotary (whole and partial, turned back, every scaling) and sinusoidal_positions.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {

void add_position_cases(std::vector<OpCase>& cases) {
  const auto rotary = [&](const Shape& x, const Attributes& attributes) {
    cases.push_back({fmt::format("rotary {} {}", to_string(x), to_string(attributes)),
                     "rotary",
                     {case_tensor(x)},
                     attributes});
  };
  rotary({1, 1, 1, 2}, {});
  rotary({2, 7, 3, 8}, {{"theta", 500000.0}});
  rotary({2, 7, 3, 8}, {{"inverse", true}});
  rotary({1, 33, 2, 20}, {{"dim", int64_t{6}}});
  rotary({1, 40, 4, 64}, {{"scaling", std::string("linear")}, {"factor", 4.0}});
  rotary({3, 50, 2, 32}, {{"scaling", std::string("llama3")},
                          {"theta", 10000.0},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_positions", 256.0}});
  // The tokens of a rank: one run, and two.
  for (const bool balanced : {false, true}) {
    Attributes attributes;
    TokenPositions::set(attributes, TokenCut(4, 1, balanced), 48);
    cases.push_back({fmt::format("sinusoidal_positions of a part, {} runs", balanced ? 2 : 1),
                     "sinusoidal_positions",
                     {case_tensor({2, 12, 6})},
                     attributes});
    attributes.set("inverse", balanced);
    rotary({2, 12, 3, 8}, attributes);
  }
  const auto places = [](int64_t samples) {
    return CaseInput{{{samples}, DType::i32}, Fill::ids, 50};
  };
  for (const Shape& x : {Shape{3, 1, 2, 8}, Shape{2, 7, 3, 6}}) {
    cases.push_back({fmt::format("rotary {} with places", to_string(x)),
                     "rotary",
                     {case_tensor(x), places(x[0])},
                     {{"theta", 500000.0}}});
    const Shape tokens{x[0], x[1], x[3]};
    cases.push_back({fmt::format("sinusoidal_positions {} with places", to_string(tokens)),
                     "sinusoidal_positions",
                     {case_tensor(tokens), places(x[0])}});
  }
  for (const Shape& x : {Shape{1, 1, 1}, Shape{2, 9, 5}, Shape{2, 130, 64}}) {
    cases.push_back({fmt::format("sinusoidal_positions {}", to_string(x)),
                     "sinusoidal_positions",
                     {case_tensor(x)}});
  }
}

}  // namespace dltrain
