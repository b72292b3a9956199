// Layers of token sequences [samples, tokens, width] that only hold parameters:
// class_token puts a learned token in front (Devlin et al. 2019; Dosovitskiy et
// al. 2021), position_embedding adds a learned vector to every place.
// Parameters have torchvision's names and shapes: class_token [1, 1, width],
// pos_embedding [1, tokens, width].
#include "base/error.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

Shape expect_tokens(const Shape& shape) {
  if (shape.rank() == 3) return shape;
  fail(ExitCode::usage, "expects tokens [samples, tokens, width], got {}", to_string(shape));
}

struct ClassToken final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = expect_tokens(c.shape(x));
    const ValueId token = c.parameter("class_token", {1, 1, shape[2]}, Initializer::zeros());
    const ValueId repeated = c.builder().emit1(
        "broadcast", {token}, {{"shape", std::vector<int64_t>{shape[0], 1, shape[2]}}});
    return c.builder().emit1("concat", {repeated, x}, {{"axis", int64_t{1}}});
  }
};

struct PositionEmbedding final : Layer {
  double std = 0.02;

  void describe(Fields& f) override {
    f.number("std", std,
             {.doc = "Standard deviation of the initial values",
              .min = 0,
              .known_as = {"init_std", "initializer_range"}});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = expect_tokens(c.shape(x));
    const ValueId places =
        c.parameter("pos_embedding", {1, shape[1], shape[2]}, Initializer::normal_of(std));
    return c.builder().emit1("add", {x, places});
  }
};

}  // namespace

KindRow<Layer> class_token_row() {
  return {"class_token", "a learned token before the others", make_kind_of<ClassToken>};
}
KindRow<Layer> position_embedding_row() {
  return {"position_embedding", "adds a learned vector to each place",
          make_kind_of<PositionEmbedding>};
}

}  // namespace dltrain
