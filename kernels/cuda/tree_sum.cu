// tree_sum (lib/ops/tree_sum.cpp) over many tensors at once: one block per chunk of kTreeSumChunk
// elements. The device determines the partial sums of a micro-batch, so that one captured call
// serves every micro-batch.
#include <algorithm>
#include <vector>

#include "cuda/device_code.cuh"
#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "ops/step_state.h"
#include "shared/bound_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kTreeSumChunk = 8192;  // elements

struct TreeSumCall {
  DType dtype = DType::f32;  // f32 or f64
  int64_t chunks = 0;
  int64_t levels = 0;
  int64_t micro_batch = 1, micro_steps = 1;
  bool packs = true;  // all addresses are aligned
};

// Device memory: for each chunk 1 + levels addresses (x, then its partial sums from the lowest
// level), and its number of elements.
constexpr int kBlock = 256;

template <typename T>
__global__ void tree_sum_kernel(TreeSumCall call, const StepState* state, void* const* addresses,
                                const int64_t* counts) {
  const int64_t a = state->in.sample_offset / call.micro_batch % call.micro_steps;
  const bool last = a + 1 == call.micro_steps;
  int64_t keep = 0;  // the first level without a partner
  while (keep < call.levels && (a >> keep & 1) != 0) ++keep;
  void* const* rows = addresses + static_cast<int64_t>(blockIdx.x) * (1 + call.levels);
  T* x = static_cast<T*>(rows[0]);
  const auto add = [&]<int N>(int64_t at) {
    T sum[N], more[N];
    load_elements<T, N>(x, at, sum);
    for (int64_t level = 0; level < (last ? call.levels : keep); ++level) {
      if ((a >> level & 1) == 0) continue;
      load_elements<T, N>(rows[1 + level], at, more);
      for (int j = 0; j < N; ++j) sum[j] = more[j] + sum[j];
    }
    store_elements<T, N>(sum, x, at);
    if (!last) store_elements<T, N>(sum, rows[1 + keep], at);
  };
  constexpr int kWidth = Pack<T>::size;
  const int64_t count = counts[blockIdx.x];
  sweep_elements<kWidth>(call.packs ? count / kWidth : 0, count, threadIdx.x, kBlock, add);
}

class TreeSum final : public BoundKernel {
 public:
  explicit TreeSum(const KernelRequest& request)
      : call_{.dtype = request.inputs[1].dtype,
              .levels = request.attributes.integer("levels"),
              .micro_batch = request.attributes.integer("micro_batch"),
              .micro_steps = request.attributes.integer("micro_steps")},
        addresses_(request.device),
        counts_(request.device) {
    const auto count = static_cast<size_t>(request.attributes.integer("count"));
    for (const TensorSpec& spec : request.inputs.subspan(1, count)) {
      elements_.push_back(spec.shape.elements());
    }
  }

  void bind(const Bindings& bindings) override {
    BoundKernel::bind(bindings);
    const auto element = static_cast<int64_t>(dtype_size(call_.dtype));
    std::vector<void*> addresses;
    std::vector<int64_t> counts;
    call_.packs = true;
    for (size_t tensor = 0; tensor < elements_.size(); ++tensor) {
      for (int64_t from = 0; from < elements_[tensor]; from += kTreeSumChunk) {
        for (size_t row = 0; row <= static_cast<size_t>(call_.levels); ++row) {
          auto* begin = static_cast<std::byte*>(bindings.outputs[row * elements_.size() + tensor]);
          addresses.push_back(begin + from * element);
          call_.packs = call_.packs && is_pack_aligned(addresses.back());
        }
        counts.push_back(std::min(kTreeSumChunk, elements_[tensor] - from));
      }
    }
    call_.chunks = static_cast<int64_t>(counts.size());
    address_table_ = addresses_.upload(addresses);
    count_table_ = counts_.upload(counts);
  }

  void run(Stream& stream) override {
    if (call_.chunks == 0) return;
    call_.dtype == DType::f64 ? launch<double>(stream.native()) : launch<float>(stream.native());
  }

 private:
  template <typename T>
  void launch(CudaStream stream) const {
    const TreeSumCall call = call_;
    const auto* state = bindings().input<StepState>(0);
    void* const* addresses = address_table_;
    const int64_t* counts = count_table_;
    DLTRAIN_LAUNCH(tree_sum_kernel<T>, static_cast<unsigned>(call.chunks), kBlock, stream, call,
                   state, addresses, counts);
  }

  TreeSumCall call_;
  std::vector<int64_t> elements_;  // of each tensor
  DeviceTable<void*> addresses_;
  DeviceTable<int64_t> counts_;
  void* const* address_table_ = nullptr;
  const int64_t* count_table_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_tree_sum(const KernelRequest& request) {
  const DType dtype = request.inputs[1].dtype;
  const bool wide = dtype == DType::f32 || dtype == DType::f64;
  return wide ? std::make_unique<TreeSum>(request) : nullptr;
}

}  // namespace dltrain
