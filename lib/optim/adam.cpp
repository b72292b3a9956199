// Adam and AdamW.
#include <array>

#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Adam : Optimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-8;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the first and second moment", .min = 0, .below = 1});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment", .above = 0, .known_as = {"eps"}});
  }
  std::string op() const override { return "adam_update"; }
  Attributes attributes() const override {
    return {{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"first_moment", shape}, {"second_moment", shape}};
  }
};

struct AdamW final : Adam {
  AdamW() { weight_decay = 0.01; }
  std::string op() const override { return "adamw_update"; }
};

}  // namespace

KindRow<Optimizer> adam_row() {
  return {"adam", "Adam (Kingma & Ba 2015), decay added to the gradient", make_kind_of<Adam>};
}
KindRow<Optimizer> adamw_row() {
  return {"adamw", "Adam with decoupled weight decay (Loshchilov & Hutter 2019)",
          make_kind_of<AdamW>};
}

}  // namespace dltrain
