// layer_norm and rms_norm: normalise each vector along the last axis. Names and defaults as in
// PyTorch.
#include "nn/layers.h"

namespace dltrain {
namespace {

void describe_epsilon(Fields& f, double& epsilon, const char* doc) {
  f.number("epsilon", epsilon, {.doc = doc, .above = 0, .below = 1, .known_as = {"eps"}});
}

struct LayerNorm final : Layer {
  double epsilon = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;

  void describe(Fields& f) override {
    describe_epsilon(f, epsilon, "Added to the variance");
    f.boolean("elementwise_affine", elementwise_affine,
              {.doc = "Learn a weight, and a bias unless `bias` is false",
               .known_as = {"affine", "scale"}});
    f.boolean("bias", bias, {.doc = "Learn a bias", .known_as = {"use_bias", "center"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape channels{c.shape(x)[-1]};
    const ValueId weight =
        elementwise_affine ? c.parameter("weight", channels, Initializer::ones()) : kNoValue;
    const ValueId shift =
        elementwise_affine && bias ? c.parameter("bias", channels, Initializer::zeros()) : kNoValue;
    return c.builder().emit1("layer_norm", {x, weight, shift}, {{"epsilon", epsilon}});
  }
};

struct RmsNorm final : Layer {
  double epsilon = 1.1920928955078125e-7;
  bool elementwise_affine = true;

  void describe(Fields& f) override {
    describe_epsilon(f, epsilon,
                     "Added to the mean square; the default is PyTorch's, the spacing of f32 at 1 "
                     "(language models use 1e-5 or 1e-6)");
    f.boolean("elementwise_affine", elementwise_affine,
              {.doc = "Learn a weight", .known_as = {"affine", "scale"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId weight = elementwise_affine
                               ? c.parameter("weight", {c.shape(x)[-1]}, Initializer::ones())
                               : kNoValue;
    return c.builder().emit1("rms_norm", {x, weight}, {{"epsilon", epsilon}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> layer_norm_rows() {
  return {{"layer_norm", "normalises each vector along the last axis (Ba et al. 2016)",
           make_kind_of<LayerNorm>},
          {"rms_norm", "divides each vector by its root mean square (Zhang & Sennrich 2019)",
           make_kind_of<RmsNorm>}};
}

}  // namespace dltrain
