// dropout: the mask is drawn element by element from the counter-based generator.
#include "base/philox.h"
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Dropout {
  explicit Dropout(const NaiveCall& c)
      : rate(c.attributes.number("rate")),
        stream(static_cast<uint64_t>(c.attributes.integer("stream"))),
        per_sample(c.inputs[0].shape.elements(1, c.inputs[0].shape.rank())) {}

  void run(const NaiveCall& c) const {
    const StepInputs& state = c.input<StepState>(1)->in;
    const int64_t first = state.sample_offset * per_sample;
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const double u = random_uniform(state.seed, stream, static_cast<uint64_t>(state.step),
                                      static_cast<uint64_t>(first + i));
      c.put<T>(0, i, u >= rate ? c.input<T>(0)[i] / (1 - rate) : 0);
    }
  }

  double rate;
  uint64_t stream;
  int64_t per_sample;
};

}  // namespace

KernelPointer reference_dropout(const KernelRequest& request) {
  return make_naive<Dropout>(request);
}

}  // namespace dltrain
