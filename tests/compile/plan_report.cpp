#include "compile/plan_report.h"

#include "catch.h"

namespace dltrain {
namespace {

std::vector<std::string> folded_names(const std::vector<LayerCost>& layers) {
  std::vector<std::string> names;
  for (const LayerCost& row : fold_equal_blocks(layers)) {
    names.push_back(row.layer + (row.copies > 1 ? " x" + std::to_string(row.copies) : ""));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("neighbouring equal blocks become one, with the sums of their rows") {
  std::vector<LayerCost> layers{{.layer = "wte", .parameters = 7}};
  for (const char* block : {"h.0", "h.1", "h.2"}) {
    layers.push_back({.layer = std::string(block) + ".ln", .parameters = 2, .forward_flops = 3});
    layers.push_back(
        {.layer = std::string(block) + ".mlp.0", .parameters = 5, .backward_flops = 1});
  }
  CHECK(folded_names(layers) == Names{"wte", "h.0-2.ln x3", "h.0-2.mlp.0 x3"});
  const LayerCost row = fold_equal_blocks(layers)[1];
  CHECK(row.parameters == 6);
  CHECK(row.forward_flops == 9);
  // The last block's backward may have less to do.
  layers.back().backward_flops = 0;
  CHECK(folded_names(layers).size() == 3);
  CHECK(fold_equal_blocks(layers)[2].backward_flops == 2);
  layers.back().parameters = 6;
  CHECK(folded_names(layers) ==
        Names{"wte", "h.0-1.ln x2", "h.0-1.mlp.0 x2", "h.2.ln", "h.2.mlp.0"});
}

TEST_CASE("what is no run of blocks stays as it is") {
  CHECK(folded_names({{.layer = "layers.0"}, {.layer = "layers.1"}}) ==
        Names{"layers.0", "layers.1"});
  CHECK(
      folded_names({{.layer = "a.0.x"}, {.layer = "a.0.y"}, {.layer = "a.2.x"}, {.layer = "a.2.y"}})
          .size() == 4);
  CHECK(
      folded_names({{.layer = "a.0.x"}, {.layer = "a.0.y"}, {.layer = "b.1.x"}, {.layer = "b.1.y"}})
          .size() == 4);
}

}  // namespace
}  // namespace dltrain
