// dropout: sets each element to zero with probability `rate` in training and scales the others by
// 1/(1 − rate). dropout2d does so with whole channels of a sample. The choice is a function of
// seed, layer path, step and the sample's place in the global batch (base/philox.h).
#include "nn/layer.h"

namespace dltrain {
namespace {

// Both kinds are named like their ops.
struct Dropout final : Layer {
  double rate = 0.5;

  void describe(Fields& f) override {
    f.number("rate", rate,
             {.doc = "Probability of setting an element to zero",
              .min = 0,
              .below = 1,
              .known_as = {"p", "probability", "dropout"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    return c.with_dropout(x, rate, c.path(), kind);
  }
};

}  // namespace

std::vector<KindRow<Layer>> dropout_rows() {
  return {{"dropout", "zeroes elements at random in training", make_kind_of<Dropout>, "rate"},
          {"dropout2d", "zeroes whole channels of a sample at random in training",
           make_kind_of<Dropout>, "rate"}};
}

}  // namespace dltrain
