// Named architectures against torchvision: names and shapes of all tensors
// (scripts/record_golden_vision.py).
#include <set>

#include "catch.h"
#include "read_model.h"
#include "recorded_names.h"

namespace dltrain {
namespace {

TEST_CASE("tensors of vision models are called as in torchvision and have its shapes") {
  const auto wanted = recorded_names("vision");
  REQUIRE(wanted.size() == 10);
  for (const auto& [name, tensors] : wanted) {
    INFO(name);
    const EmittedModel model =
        emit_text(fmt::format("{{type: {}, num_classes: 1000}}", name), {224, 224, 3}, 1);
    std::set<std::string> found;
    for (const ParameterInfo& p : model.parameters) {
      found.insert(fmt::format("{} {}", p.name, to_string(p.file.shape)));
    }
    CHECK(found == tensors);
  }
}

TEST_CASE("the stem of small images keeps their size") {
  const EmittedModel model =
      emit_text("{type: resnet18, stem: cifar, num_classes: 10, width: 16}", {32, 32, 3});
  CHECK_THAT(print_graph(model.graph),
             Catch::Contains("conv2d(input.x, conv1.weight) {dilation=[1, 1], groups=1, "
                             "padding=[1, 1], stride=[1, 1]} : f32[2, 32, 32, 16]"));
  CHECK(model.graph.value(model.output).spec.shape == Shape{2, 10});
}

}  // namespace
}  // namespace dltrain
