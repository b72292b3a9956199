// RMSprop as torch.optim.RMSprop.
#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Rmsprop final : Optimizer {
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;
  bool centered = false;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("alpha", alpha,
             {.doc = "Decay of the mean of squares", .min = 0, .below = 1, .known_as = {"rho"}});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the mean of squares", .above = 0, .known_as = {"eps"}});
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.boolean("centered", centered, {.doc = "Divide by the estimated deviation instead"});
  }
  std::string op() const override { return "rmsprop_update"; }
  Attributes attributes() const override {
    return {{"alpha", alpha}, {"epsilon", epsilon}, {"momentum", momentum}, {"centered", centered}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    std::vector<MomentSpec> out{{"mean_of_squares", shape}};
    if (centered) out.push_back({"mean_of_gradients", shape});
    if (momentum != 0) out.push_back({"momentum", shape});
    return out;
  }
};

}  // namespace

KindRow<Optimizer> rmsprop_row() {
  return {"rmsprop", "rates by a moving mean of squared gradients (Tieleman & Hinton 2012)",
          make_kind_of<Rmsprop>};
}

}  // namespace dltrain
