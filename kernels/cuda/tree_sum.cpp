// The kernel class of tree_sum: bind() cuts the tensors into chunks and tells the device where they
// lie.
#include "cuda/tree_sum.h"

#include <algorithm>
#include <vector>

#include "cuda/device_table.h"
#include "cuda/makers.h"

namespace dltrain {
namespace {

class TreeSum final : public Kernel {
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
    const auto element = static_cast<int64_t>(dtype_size(call_.dtype));
    std::vector<void*> addresses;
    std::vector<int64_t> counts;
    for (size_t tensor = 0; tensor < elements_.size(); ++tensor) {
      for (int64_t from = 0; from < elements_[tensor]; from += kTreeSumChunk) {
        for (size_t row = 0; row <= static_cast<size_t>(call_.levels); ++row) {
          auto* begin = static_cast<std::byte*>(bindings.outputs[row * elements_.size() + tensor]);
          addresses.push_back(begin + from * element);
        }
        counts.push_back(std::min(kTreeSumChunk, elements_[tensor] - from));
      }
    }
    call_.chunks = static_cast<int64_t>(counts.size());
    address_table_ = addresses_.upload(addresses);
    count_table_ = counts_.upload(counts);
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
  }

  void run(Stream& stream) override {
    launch_tree_sum(call_, state_, address_table_, count_table_, stream.native());
  }

 private:
  TreeSumCall call_;
  std::vector<int64_t> elements_;  // of each tensor
  DeviceTable<void*> addresses_;
  DeviceTable<int64_t> counts_;
  void* const* address_table_ = nullptr;
  const int64_t* count_table_ = nullptr;
  const StepState* state_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_tree_sum(const KernelRequest& request) {
  const DType dtype = request.inputs[1].dtype;
  const bool wide = dtype == DType::f32 || dtype == DType::f64;
  return wide ? std::make_unique<TreeSum>(request) : nullptr;
}

}  // namespace dltrain
