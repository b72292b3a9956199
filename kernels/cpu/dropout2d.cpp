// dropout2d: draws a row of factors for each sample, then multiplies its pixels with them.
#include <algorithm>

#include "base/philox.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {

MadeKernel make_dropout2d(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  if (!computes_in_f32(request) || x.elements() == 0) return nullptr;
  const int64_t samples = x[0], channels = x[-1], pixels = x.elements(1, x.rank() - 1);
  const double rate = request.attributes.number("rate");
  const auto stream = static_cast<uint64_t>(request.attributes.integer("stream"));
  const auto run = [=](const Bindings& b, Stream&) {
    const StepInputs state = b.input<StepState>(1)->in;
    auto* factors = static_cast<float*>(b.workspace);
    const auto scale = static_cast<float>(1 / (1 - rate));
    parallel_for(samples * channels, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto index = static_cast<uint64_t>(state.sample_offset * channels + i);
        const double u =
            random_uniform(state.seed, stream, static_cast<uint64_t>(state.step), index);
        factors[i] = u >= rate ? scale : 0;
      }
    });
    const int64_t grain = std::max<int64_t>(1, 4096 / channels);
    parallel_for(samples * pixels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t pixel = begin; pixel < end; ++pixel) {
        const float* factor = factors + pixel / pixels * channels;
        const float* from = b.input<float>(0) + pixel * channels;
        float* to = b.output<float>(0) + pixel * channels;
        // A dropped channel is 0 even if it contains infinities or NaN.
        for (int64_t c = 0; c < channels; ++c) to[c] = factor[c] == 0 ? 0 : from[c] * factor[c];
      }
    });
  };
  return make_kernel(run, static_cast<size_t>(samples * channels) * sizeof(float));
}

}  // namespace dltrain
