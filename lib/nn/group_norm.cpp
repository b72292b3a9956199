// group_norm: normalises each group of channels of each sample, so nothing depends on the batch.
// Names and defaults as in PyTorch.
#include "base/error.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct GroupNorm final : Layer {
  int64_t num_groups = 0;
  double epsilon = 1e-5;
  bool affine = true;

  void describe(Fields& f) override {
    f.integer(
        "num_groups", num_groups,
        {.doc = "Groups that the channels are divided into; 1: all channels together, as many "
                "as channels: instance norm",
         .required = true,
         .min = 1,
         .known_as = {"groups"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the variance", .above = 0, .below = 1, .known_as = {"eps"}});
    f.boolean("affine", affine,
              {.doc = "Learn a weight and a bias", .known_as = {"elementwise_affine", "scale"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const int64_t channels = c.shape(x)[-1];
    if (channels % num_groups != 0) {
      fail(ExitCode::usage, "{} groups must divide {} channels", num_groups, channels);
    }
    const ValueId weight =
        affine ? c.parameter("weight", {channels}, Initializer::ones()) : kNoValue;
    const ValueId bias = affine ? c.parameter("bias", {channels}, Initializer::zeros()) : kNoValue;
    return c.builder().emit1("group_norm", {x, weight, bias},
                             {{"groups", num_groups}, {"epsilon", epsilon}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> group_norm_rows() {
  return {{"group_norm", "normalises groups of channels of each sample (Wu & He 2018)",
           make_kind_of<GroupNorm>, "num_groups"}};
}

}  // namespace dltrain
