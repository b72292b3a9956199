// dropout: sets each element to zero with probability `rate` in training and scales the others by
// 1/(1 − rate). dropout2d does so with whole channels of a sample. The choice is a function of
// seed, layer path, step and the sample's place in the global batch (base/philox.h).
#include "base/philox.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

struct Dropout : Layer {
  double rate = 0.5;

  virtual const char* op() const { return "dropout"; }

  void describe(Fields& f) override {
    f.number("rate", rate,
             {.doc = "Probability of setting an element to zero",
              .min = 0,
              .below = 1,
              .known_as = {"p", "probability", "dropout"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    if (!c.noise() || rate == 0) return x;
    return c.builder().emit1(
        op(), {x, c.builder().step_state()},
        {{"rate", rate}, {"stream", static_cast<int64_t>(random_stream(c.path()))}});
  }
};

struct Dropout2d final : Dropout {
  const char* op() const override { return "dropout2d"; }
};

}  // namespace

std::vector<KindRow<Layer>> dropout_rows() {
  return {{"dropout", "zeroes elements at random in training", make_kind_of<Dropout>, "rate"},
          {"dropout2d", "zeroes whole channels of a sample at random in training",
           make_kind_of<Dropout2d>, "rate"}};
}

}  // namespace dltrain
