// tree_sum (lib/ops/tree_sum.cpp), in f32 and f64: selects the partial sums for the micro-batch,
// then makes one pass over memory for each.
#include <algorithm>

#include "cpu/makers.h"
#include "cpu/tensor_chunks.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

template <typename T>
std::unique_ptr<Kernel> make_tree_sum_of(const KernelRequest& request) {
  const auto count = static_cast<size_t>(request.attributes.integer("count"));
  const auto levels = static_cast<size_t>(request.attributes.integer("levels"));
  const int64_t micro_batch = request.attributes.integer("micro_batch");
  const int64_t micro_steps = request.attributes.integer("micro_steps");
  const TensorChunks chunks(request.inputs.subspan(1, count));
  return make_kernel([=](const Bindings& b, Stream&) {
    const int64_t a = b.input<StepState>(0)->in.sample_offset / micro_batch % micro_steps;
    const bool last = a + 1 == micro_steps;
    size_t keep = 0;  // the first level without a partner
    while (keep < levels && (a >> keep & 1) != 0) ++keep;
    const auto part = [&](size_t row, const TensorChunk& chunk) {
      return b.output<T>(row * count + chunk.tensor) + chunk.begin;
    };
    chunks.parallel(32768, [&](int64_t, const TensorChunk& chunk) {
      T* x = part(0, chunk);
      for (size_t level = 0; level < (last ? levels : keep); ++level) {
        if ((a >> level & 1) == 0) continue;
        const T* partial = part(1 + level, chunk);
        for (int64_t i = 0; i < chunk.count; ++i) x[i] = partial[i] + x[i];
      }
      if (!last) std::copy(x, x + chunk.count, part(1 + keep, chunk));
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_tree_sum(const KernelRequest& request) {
  if (request.inputs[1].dtype == DType::f32) return make_tree_sum_of<float>(request);
  if (request.inputs[1].dtype == DType::f64) return make_tree_sum_of<double>(request);
  return nullptr;
}

}  // namespace dltrain
