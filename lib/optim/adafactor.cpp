// Adafactor as torch.optim.Adafactor (Shazeer & Stern 2018, without momentum).
#include <array>

#include "optim/optimizers.h"

namespace dltrain {
namespace {

struct Adafactor final : Optimizer {
  double beta2_decay = -0.8, d = 1;
  std::array<double, 2> epsilons{0x1p-23, 1e-3};

  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("beta2_decay", beta2_decay,
             {.doc = "Exponent of the update's number: how fast the variances forget", .max = 0});
    f.numbers(
        "epsilons", epsilons,
        {.doc = "Least root of a variance, and least root mean square of a parameter that the "
                "step is scaled by",
         .above = 0,
         .known_as = {"eps", "epsilon"}});
    f.number("d", d,
             {.doc = "Greatest root mean square of an update",
              .above = 0,
              .known_as = {"clip_threshold"}});
  }
  std::string op() const override { return "adafactor_update"; }
  Attributes attributes() const override {
    return {{"beta2_decay", beta2_decay},
            {"epsilon1", epsilons[0]},
            {"epsilon2", epsilons[1]},
            {"d", d}};
  }
  std::vector<MomentSpec> moments(const Shape& shape) const override {
    if (shape.rank() < 2) return {{"variance", shape}, {}};
    return {{"row_variance", Shape{shape[0]}},
            {"column_variance", Shape{shape.elements(1, shape.rank())}}};
  }
};

}  // namespace

std::vector<KindRow<Optimizer>> adafactor_rows() {
  return {{"adafactor", "factored second moments (Shazeer & Stern 2018, as PyTorch's)",
           make_kind_of<Adafactor>}};
}

}  // namespace dltrain
