// tree_sum (lib/ops/tree_sum.cpp), in f32 and f64: which partial sums a micro-batch meets is
// decided once, then each is one pass over memory.
#include <algorithm>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "ops/step_state.h"

namespace dltrain {
namespace {

template <typename T>
class TreeSum final : public Kernel {
 public:
  explicit TreeSum(const KernelRequest& request)
      : count_(static_cast<size_t>(request.attributes.integer("count"))),
        levels_(static_cast<size_t>(request.attributes.integer("levels"))),
        micro_batch_(request.attributes.integer("micro_batch")),
        micro_steps_(request.attributes.integer("micro_steps")),
        chunks_(request.inputs.subspan(1, count_)) {}

  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    tensors_.assign(bindings.outputs.begin(), bindings.outputs.end());
  }

  void run(Stream&) override {
    const int64_t a = state_->in.sample_offset / micro_batch_ % micro_steps_;
    const bool last = a + 1 == micro_steps_;
    size_t keep = 0;  // the first level without a partner
    while (keep < levels_ && (a >> keep & 1) != 0) ++keep;
    parallel_for(chunks_.size(), chunks_.grain(32768), [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t, const TensorChunk& chunk) {
        T* x = part(0, chunk);
        for (size_t level = 0; level < (last ? levels_ : keep); ++level) {
          if ((a >> level & 1) != 0) add(part(1 + level, chunk), x, chunk.count);
        }
        if (!last) std::copy(x, x + chunk.count, part(1 + keep, chunk));
      });
    });
  }

 private:
  T* part(size_t row, const TensorChunk& chunk) const {
    return static_cast<T*>(tensors_[row * count_ + chunk.tensor]) + chunk.begin;
  }
  static void add(const T* partial, T* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[i] = partial[i] + x[i];
  }

  size_t count_, levels_;
  int64_t micro_batch_, micro_steps_;
  TensorChunks chunks_;
  const StepState* state_ = nullptr;
  std::vector<void*> tensors_;
};

}  // namespace

MadeKernel make_tree_sum(const KernelRequest& request) {
  if (request.inputs[1].dtype == DType::f32) return std::make_unique<TreeSum<float>>(request);
  if (request.inputs[1].dtype == DType::f64) return std::make_unique<TreeSum<double>>(request);
  return nullptr;
}

}  // namespace dltrain
