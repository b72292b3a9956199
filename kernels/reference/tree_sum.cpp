// tree_sum, after lib/ops/tree_sum.cpp.
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_tree_sum(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const auto count = static_cast<size_t>(c.attributes.integer("count"));
    const auto levels = static_cast<size_t>(c.attributes.integer("levels"));
    const int64_t micro_batch = c.attributes.integer("micro_batch");
    const int64_t micro_steps = c.attributes.integer("micro_steps");
    const int64_t offset = c.input<StepState>(0)->in.sample_offset;
    const int64_t a = offset / micro_batch % micro_steps;
    const bool last = a + 1 == micro_steps;
    for (size_t t = 0; t < count; ++t) {
      const auto partial = [&](size_t level) { return c.output<T>((1 + level) * count + t); };
      for (int64_t i = 0; i < c.outputs[t].shape.elements(); ++i) {
        T& x = c.output<T>(t)[i];
        size_t level = 0;
        for (; level < levels && (a >> level & 1) != 0; ++level) x = partial(level)[i] + x;
        if (!last) partial(level)[i] = x;
        for (; last && level < levels; ++level) {
          if ((a >> level & 1) != 0) x = partial(level)[i] + x;
        }
      }
    }
  });
}

}  // namespace dltrain
