// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes"). Tensors without decay are not scaled by default, as in NVIDIA's and timm's
// implementations.
#include <array>

#include "optim/optimizers.h"
#include "optim/trust_ratio.h"

namespace dltrain {
namespace {

struct Lamb final : TrustRatioOptimizer {
  std::array<double, 2> betas{0.9, 0.999};
  double epsilon = 1e-6;

  Lamb() { weight_decay = 0.01; }
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Decay of the first and second moment", .min = 0, .below = 1});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the second moment", .above = 0, .known_as = {"eps"}});
    describe_adaptation(f, "Adam");
  }
  std::string op() const override { return "lamb_update"; }
  Attributes attributes() const override {
    Attributes out{{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}};
    return with_adaptation(std::move(out));
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
