// Stochastic gradient descent as torch.optim.SGD.
#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Sgd final : Optimizer {
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Decay of the velocity; 0: none", .min = 0, .below = 1});
    f.number("dampening", dampening,
             {.doc = "Share of the gradient that does not enter the velocity", .min = 0, .max = 1});
    f.boolean("nesterov", nesterov, {.doc = "Look ahead along the velocity"});
  }
  void validate(Problems& problems) const override {
    if (momentum == 0 && nesterov) problems.add(*this, "nesterov", "nesterov needs a momentum");
    if (momentum == 0 && dampening != 0) {
      problems.add(*this, "dampening", "dampening needs a momentum");
    }
    if (nesterov && dampening != 0) {
      problems.add(*this, "dampening", "nesterov needs a dampening of 0");
    }
  }
  std::string op() const override { return "sgd_update"; }
  Attributes attributes() const override {
    return {{"momentum", momentum}, {"dampening", dampening}, {"nesterov", nesterov}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (momentum == 0) return {};
    return {{"momentum", shape}};
  }
};

}  // namespace

KindRow<Optimizer> sgd_row() {
  return {"sgd", "stochastic gradient descent with momentum (as PyTorch's)", make_kind_of<Sgd>};
}

}  // namespace dltrain
