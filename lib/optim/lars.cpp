// LARS (You, Gitman & Ginsburg 2017, "Large Batch Training of Convolutional Networks"). Tensors
// without decay are not scaled by default, as in NVIDIA's and timm's implementations: they are
// biases and norms, whose steps the scaling would make tiny.
#include "optim/optimizers.h"
#include "optim/trust_ratio.h"

namespace dltrain {
namespace {

struct Lars final : TrustRatioOptimizer {
  double momentum = 0.9, trust_coefficient = 1e-3, epsilon = 1e-8;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.number("trust_coefficient", trust_coefficient,
             {.doc = "Step of a tensor as a share of its norm",
              .above = 0,
              .known_as = {"trust_coeff", "eta"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the norm of the step", .min = 0, .known_as = {"eps"}});
    describe_adaptation(f, "SGD");
  }
  std::string op() const override { return "lars_update"; }
  Attributes attributes() const override {
    Attributes out{
        {"momentum", momentum}, {"trust_coefficient", trust_coefficient}, {"epsilon", epsilon}};
    return with_adaptation(std::move(out));
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (momentum == 0) return {};
    return {{"momentum", shape}};
  }
};

}  // namespace

KindRow<Optimizer> lars_row() {
  return {"lars", "momentum with steps scaled to each tensor's norm (You et al. 2017)",
          make_kind_of<Lars>};
}

}  // namespace dltrain
