// clip_percentile, running_norm and ema_update.
#include "cpu/makers.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "shared/make_kernel.h"
#include "shared/update_groups.h"

namespace dltrain {

std::unique_ptr<Kernel> make_clip_percentile(const KernelRequest& request) {
  const auto attributes = clip_percentile_attributes(request.attributes);
  const int64_t window = request.inputs[1].shape.elements();
  return make_kernel([=](const Bindings& b, Stream&) {
    clip_percentile(attributes, *static_cast<StepState*>(b.inputs[0]),
                    static_cast<float*>(b.inputs[1]), window);
  });
}

std::unique_ptr<Kernel> make_running_norm(const KernelRequest& request) {
  return make_kernel([part = running_norm_part(request.attributes),
                      clips = request.inputs.size() > 2](const Bindings& b, Stream&) {
    running_norm(part, *static_cast<StepState*>(b.inputs[0]), *b.input<double>(1),
                 clips ? static_cast<double*>(b.inputs[2]) : nullptr);
  });
}

std::unique_ptr<Kernel> make_ema_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const EmaAttributes attributes = ema_attributes(request.attributes);
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  const TensorChunks chunks(request.inputs.subspan(1, count));
  return make_kernel([=](const Bindings& b, Stream&) {
    const StepState& state = *b.input<StepState>(0);
    if (state.out.finite == 0) return;
    const auto share = static_cast<float>(ema_share(attributes, state));
    chunks.parallel(16384, [&](int64_t, const TensorChunk& chunk) {
      const float* s = b.input<float>(1 + chunk.tensor) + chunk.begin;
      float* e = static_cast<float*>(b.inputs[1 + count + chunk.tensor]) + chunk.begin;
      if (share == 1) {
        std::copy(s, s + chunk.count, e);
        return;
      }
      for (int64_t i = 0; i < chunk.count; ++i) e[i] = e[i] + share * (s[i] - e[i]);
    });
  });
}

}  // namespace dltrain
