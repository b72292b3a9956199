// Recurrent state between batches (lib/ops/carry.cpp): copies a few rows per micro-step.
#include <algorithm>

#include "cpu/makers.h"
#include "cpu/support.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// The rows of a micro-batch within the state of all streams.
struct CarriedRows {
  CarriedRows(const TensorSpec& micro_batch, const TensorSpec& whole)
      : count(micro_batch.shape.elements()), rows(whole.shape[0]), width(whole.shape[1]) {}

  int64_t begin(const Bindings& b) const {
    return b.input<StepState>(0)->in.sample_offset % rows * width;
  }
  int64_t count, rows, width;
};

}  // namespace

MadeKernel make_carried_state(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const CarriedRows r(request.outputs[0], request.inputs[1]);
  return make_kernel([r, steps = request.attributes.integer("steps")](const Bindings& b, Stream&) {
    if (b.input<StepState>(0)->in.step % steps == 0) {
      std::fill_n(b.output<float>(0), r.count, 0.0f);
    } else {
      std::copy_n(b.input<float>(1) + r.begin(b), r.count, b.output<float>(0));
    }
  });
}

MadeKernel make_carry_state(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const CarriedRows r(request.inputs[1], request.outputs[0]);
  return make_kernel([r, accumulate = request.accumulate](const Bindings& b, Stream&) {
    if (!accumulate) std::fill_n(b.output<float>(0), r.rows * r.width, 0.0f);
    const float* x = b.input<float>(1);
    float* out = b.output<float>(0) + r.begin(b);
    for (int64_t i = 0; i < r.count; ++i) out[i] += x[i];
  });
}

MadeKernel make_carry_state_in_place(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const CarriedRows r(request.inputs[1], request.outputs[0]);
  return make_kernel([r](const Bindings& b, Stream&) {
    std::copy_n(b.input<float>(1), r.count, b.output<float>(0) + r.begin(b));
  });
}

MadeKernel make_carried_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return make_kernel([count = request.outputs[0].shape.elements()](const Bindings& b, Stream&) {
    if (b.input<StepState>(0)->out.finite != 0)
      std::copy_n(b.input<float>(2), count, b.output<float>(0));
  });
}

}  // namespace dltrain
