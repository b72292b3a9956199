// Named architectures against torchvision: names and shapes of all tensors, in its order
// (scripts/record_golden_vision.py).
#include <fstream>
#include <map>

#include "catch.h"
#include "read_model.h"

namespace dltrain {
namespace {

// "conv1.weight [64, 3, 7, 7]": one line a tensor, for each architecture.
std::map<std::string, std::string> recorded() {
  std::ifstream file(DLTRAIN_SOURCE_DIR "/tests/golden/vision/names.txt");
  std::map<std::string, std::string> out;
  std::string line, name;
  while (std::getline(file, line)) {
    if (line.starts_with("[")) {
      name = line.substr(1, line.size() - 2);
    } else {
      out[name] += line + "\n";
    }
  }
  return out;
}

TEST_CASE("tensors of vision models are called as in torchvision and have its shapes and order") {
  const auto wanted = recorded();
  REQUIRE(wanted.size() == 7);
  for (const auto& [name, tensors] : wanted) {
    INFO(name);
    const EmittedModel model = emit_text(fmt::format("{{type: {}}}", name), {64, 64, 3});
    std::string found;
    for (const ParameterInfo& p : model.parameters) {
      found += fmt::format("{} {}\n", p.name, to_string(p.file.shape));
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
