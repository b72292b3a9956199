// linear: y = x·Wᵀ + b over the last axis. Weight [out, in] as in PyTorch, both in files and
// memory.
#include <cmath>

#include "base/error.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct Linear final : Layer {
  int64_t out_features = 0;
  bool bias = true;

  void describe(Fields& f) override {
    f.integer("out_features", out_features,
              {.doc = "Length of the output vector",
               .required = true,
               .min = 1,
               .max = 1e8,
               .known_as = {"units", "output_size", "hidden_size", "out_channels"}});
    f.boolean("bias", bias, {.doc = "Add a bias", .known_as = {"use_bias"}});
  }

  // PyTorch's default: both uniform within 1/√in (He et al. 2015 with a = √5).
  ValueId emit(LayerContext& c, ValueId x) const override {
    if (c.shape(x).rank() > 3) expect_vectors(c.shape(x));
    const int64_t in = c.shape(x)[-1];
    const auto init = Initializer::uniform_within(1.0 / std::sqrt(static_cast<double>(in)));
    const ValueId weight = c.parameter("weight", {out_features, in}, init);
    std::vector<ValueId> inputs{x, weight};
    if (bias) inputs.push_back(c.parameter("bias", {out_features}, init));
    return c.builder().emit1("matmul", inputs, {{"transpose_b", true}});
  }
};

}  // namespace

KindRow<Layer> linear_row() {
  return {"linear", "y = x·Wᵀ + b over the last axis", make_kind_of<Linear>, "out_features"};
}

}  // namespace dltrain
