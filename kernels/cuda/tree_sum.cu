// tree_sum (lib/ops/tree_sum.cpp) over many tensors at once: one block per chunk of kTreeSumChunk
// elements. The device determines the partial sums of a micro-batch, so that one captured call
// serves every micro-batch.
#include <algorithm>
#include <vector>

#include "cuda/device_code.cuh"
#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

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

struct TreeSumTables {
  TreeSumCall call;
  DeviceTable<void*> addresses;
  DeviceTable<int64_t> counts;
};

// `elements`: of each tensor.
TreeSumTables tree_sum_tables(Device& device, TreeSumCall call,
                              const std::vector<int64_t>& elements, const Bindings& bindings) {
  const auto element = static_cast<int64_t>(dtype_size(call.dtype));
  std::vector<void*> addresses;
  std::vector<int64_t> counts;
  for (size_t tensor = 0; tensor < elements.size(); ++tensor) {
    for (int64_t from = 0; from < elements[tensor]; from += kTreeSumChunk) {
      for (size_t row = 0; row <= static_cast<size_t>(call.levels); ++row) {
        auto* begin = static_cast<std::byte*>(bindings.outputs[row * elements.size() + tensor]);
        addresses.push_back(begin + from * element);
        call.packs = call.packs && is_pack_aligned(addresses.back());
      }
      counts.push_back(std::min(kTreeSumChunk, elements[tensor] - from));
    }
  }
  call.chunks = static_cast<int64_t>(counts.size());
  return {call, {device, addresses}, {device, counts}};
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_tree_sum(const KernelRequest& request) {
  const DType dtype = request.inputs[1].dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
  const TreeSumCall call{.dtype = dtype,
                         .levels = request.attributes.integer("levels"),
                         .micro_batch = request.attributes.integer("micro_batch"),
                         .micro_steps = request.attributes.integer("micro_steps")};
  std::vector<int64_t> elements;
  for (const TensorSpec& spec :
       request.inputs.subspan(1, static_cast<size_t>(request.attributes.integer("count")))) {
    elements.push_back(spec.shape.elements());
  }
  return make_prepared_kernel(
      [&device = request.device, call, elements](const Bindings& b) {
        return tree_sum_tables(device, call, elements, b);
      },
      [](const TreeSumTables& tables, const Bindings& b, Stream& stream) {
        const TreeSumCall call = tables.call;
        void* const* addresses = tables.addresses.data();
        const int64_t* counts = tables.counts.data();
        if (call.chunks == 0) return;
        with_wide(call.dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH(tree_sum_kernel<T>, static_cast<unsigned>(call.chunks), kBlock,
                         stream.native(), call, b.input<StepState>(0), addresses, counts);
        });
      });
}

}  // namespace dltrain
