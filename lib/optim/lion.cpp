// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms").
#include <array>

#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Lion final : Optimizer {
  std::array<double, 2> betas{0.9, 0.99};

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas,
              {.doc = "Share of the moment in the step, and its decay", .min = 0, .below = 1});
  }
  std::string op() const override { return "lion_update"; }
  Attributes attributes() const override { return {{"beta1", betas[0]}, {"beta2", betas[1]}}; }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"momentum", shape}};
  }
};

}  // namespace

KindRow<Optimizer> lion_row() {
  return {"lion", "steps by the sign of a moment (Chen et al. 2023)", make_kind_of<Lion>};
}

}  // namespace dltrain
