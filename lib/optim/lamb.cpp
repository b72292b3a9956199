// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes").
#include <array>

#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Lamb final : Optimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-6;

  Lamb() { weight_decay = 0.01; }
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the first and second moment", .min = 0, .below = 1});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment; tensors without decay are not scaled "
                     "to their norm",
              .above = 0,
              .known_as = {"eps"}});
  }
  std::string op() const override { return "lamb_update"; }
  Attributes attributes() const override {
    return {{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"first_moment", shape}, {"second_moment", shape}};
  }
};

}  // namespace

KindRow<Optimizer> lamb_row() {
  return {"lamb", "AdamW with steps scaled to each tensor's norm (You et al. 2020)",
          make_kind_of<Lamb>};
}

}  // namespace dltrain
