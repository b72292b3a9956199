#include "compile/id_bounds.h"

#include "base/error.h"
#include "catch.h"
#include "graph/builder.h"

namespace dltrain {
namespace {

struct Ids {
  Graph graph;
  GraphBuilder builder{graph};
  std::vector<ValueId> slots;

  Ids() {
    for (const char* name : {"input.a", "input.b"}) {
      slots.push_back(builder.add_value(name, {Shape{4, 3}, DType::i32}, Role::input));
    }
  }
  void embed(ValueId ids, int64_t rows, const char* layer) {
    builder.set_layer(layer);
    const ValueId weight = builder.add_value(std::string(layer) + ".weight",
                                             {Shape{rows, 2}, DType::f32}, Role::parameter);
    builder.emit1("embedding", {ids, weight});
  }
};

TEST_CASE("ids are followed back to the inputs that they come from") {
  Ids g;
  const ValueId part = g.builder.emit1(
      "slice", {g.slots[0]},
      {{"before", std::vector<int64_t>{0, 1}}, {"after", std::vector<int64_t>{0, 0}}});
  g.embed(g.builder.emit1("concat", {part, g.slots[1]}, {{"axis", int64_t{1}}}), 9, "layers.0");
  g.embed(g.slots[1], 5, "layers.1");
  const auto bounds = id_bounds(g.graph, g.slots);
  REQUIRE(bounds.size() == 2);
  const IdBound& first = bounds[bounds[0].slot == 0 ? 0 : 1];
  const IdBound& second = bounds[bounds[0].slot == 0 ? 1 : 0];
  CHECK(first.bound == 9);
  CHECK(first.layer == "layers.0");
  CHECK(second.slot == 1);
  CHECK(second.bound == 5);
  CHECK(second.layer == "layers.1");
}

TEST_CASE("ids that are computed are refused") {
  Ids g;
  const ValueId padded = g.builder.emit1("pad", {g.slots[0]},
                                         {{"before", std::vector<int64_t>{0, 1}},
                                          {"after", std::vector<int64_t>{0, 0}},
                                          {"value", 100.0}});
  g.embed(padded, 9, "layers.0");
  CHECK_THROWS_WITH(id_bounds(g.graph, g.slots),
                    Catch::Contains("must come from an integer input"));
}

}  // namespace
}  // namespace dltrain
