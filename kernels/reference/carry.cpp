// Recurrent state between batches, after lib/ops/carry.cpp.
#include <algorithm>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

// Returns the first row of this micro-batch in a state of `rows` rows.
int64_t first_row(const NaiveCall& c, int64_t rows) {
  return c.input<StepState>(0)->in.sample_offset % rows;
}

}  // namespace

std::unique_ptr<Kernel> reference_carried_state(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& shape = c.outputs[0].shape;
    const bool begins = c.input<StepState>(0)->in.step % c.attributes.integer("steps") == 0;
    const T* state = c.input<T>(1) + first_row(c, c.inputs[1].shape[0]) * shape[1];
    for (int64_t i = 0; i < shape.elements(); ++i) {
      c.put<T>(0, i, begins ? 0 : state[i]);
    }
  });
}

std::unique_ptr<Kernel> reference_carry_state(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape &x = c.inputs[1].shape, &all = c.outputs[0].shape;
    const int64_t begin = first_row(c, all[0]) * all[1], end = begin + x.elements();
    for (int64_t i = 0; i < all.elements(); ++i) {
      c.put<T>(0, i, i >= begin && i < end ? c.input<T>(1)[i - begin] : 0);
    }
  });
}

std::unique_ptr<Kernel> reference_carry_state_in_place(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& x = c.inputs[1].shape;
    T* state = c.output<T>(0) + first_row(c, c.outputs[0].shape[0]) * x[1];
    std::copy_n(c.input<T>(1), x.elements(), state);
  });
}

std::unique_ptr<Kernel> reference_carried_update(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    if (c.input<StepState>(0)->out.finite == 0) return;
    std::copy_n(c.input<T>(2), c.outputs[0].shape.elements(), c.output<T>(0));
  });
}

}  // namespace dltrain
