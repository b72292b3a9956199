// dropout: the mask is drawn element by element from the counter-based generator.
#include "base/philox.h"
#include "ops/shard_position.h"
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {

KernelPointer reference_dropout(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const double rate = c.attributes.number("rate");
    const auto stream = static_cast<uint64_t>(c.attributes.integer("stream"));
    const int64_t per_sample = c.inputs[0].shape.elements(1, c.inputs[0].shape.rank());
    const StepInputs& state = c.input<StepState>(1)->in;
    const ShardPosition position(c.attributes, c.outputs[0].shape.elements());
    const int64_t first = state.sample_offset * position.whole(per_sample);
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const double u = random_uniform(state.seed, stream, static_cast<uint64_t>(state.step),
                                      static_cast<uint64_t>(first + position(i)));
      c.put<T>(0, i, u >= rate ? c.input<T>(0)[i] / (1 - rate) : 0);
    }
  });
}

}  // namespace dltrain
