// dropout: sets each element to zero with probability `rate` in training and scales the others by
// 1/(1 − rate). Which elements depends on seed, layer path, step and the sample's place in the
// global batch only (base/philox.h).
#include "base/philox.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

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
    if (!c.training() || rate == 0) return x;
    return c.builder().emit1(
        "dropout", {x, c.builder().step_state()},
        {{"rate", rate}, {"stream", static_cast<int64_t>(random_stream(c.path()))}});
  }
};

}  // namespace

KindRow<Layer> dropout_row() {
  return {"dropout", "zeroes elements at random in training", make_kind_of<Dropout>, "rate"};
}

}  // namespace dltrain
