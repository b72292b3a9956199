// Adagrad as torch.optim.Adagrad.
#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Adagrad final : Optimizer {
  double lr_decay = 0, initial_accumulator_value = 0, epsilon = 1e-10;

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number(
        "lr_decay", lr_decay,
        {.doc = "The learning rate is divided by 1 + this times the updates before", .min = 0});
    f.number("initial_accumulator_value", initial_accumulator_value,
             {.doc = "What the sum of squares starts from", .min = 0});
    f.number("epsilon", epsilon,
             {.doc = "Added to the root of the sum of squares", .above = 0, .known_as = {"eps"}});
  }
  std::string op() const override { return "adagrad_update"; }
  Attributes attributes() const override {
    return {{"lr_decay", lr_decay},
            {"initial_accumulator_value", initial_accumulator_value},
            {"epsilon", epsilon}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    return {{"sum_of_squares", shape}};
  }
};

}  // namespace

KindRow<Optimizer> adagrad_row() {
  return {"adagrad", "rates by the sum of squared gradients (Duchi et al. 2011, as PyTorch's)",
          make_kind_of<Adagrad>};
}

}  // namespace dltrain
