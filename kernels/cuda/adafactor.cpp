// Kernel class of adafactor_update. bind() builds the lists of chunks, rows and columns and copies
// them to the device; run() only launches.
#include "cuda/adafactor.h"

#include <algorithm>
#include <vector>

#include "cuda/makers.h"
#include "cuda/update_table.h"

namespace dltrain {
namespace {

// [0, count) of a tensor in parts of at most `most`.
void cut(std::vector<AdafactorPart>& parts, int64_t tensor, int64_t count, int64_t most) {
  for (int64_t begin = 0; begin < count; begin += most) {
    parts.push_back({tensor, begin, std::min(most, count - begin)});
  }
}

class AdafactorUpdate final : public Kernel {
 public:
  explicit AdafactorUpdate(const KernelRequest& request)
      : groups_(request.attributes),
        tensor_table_(request.device),
        chunk_table_(request.device),
        row_table_(request.device),
        column_table_(request.device) {
    call_.dtype = request.inputs[1].dtype;
    call_.rule = adafactor_rule(request.attributes);
    const size_t count = groups_.group.size();
    for (size_t i = 0; i < count; ++i) add(request.inputs[1 + i].shape, groups_.of(i));
    call_.tensor_count = static_cast<int64_t>(count);
  }

  size_t workspace_bytes() const override {
    return chunks_.size() * sizeof(double) + tensors_.size() * sizeof(AdafactorFactors);
  }
  void bind(const Bindings& bindings) override {
    const size_t count = tensors_.size();
    for (size_t i = 0; i < count; ++i) {
      AdafactorTensor& t = tensors_[i];
      t.parameter = bindings.inputs[1 + i];
      t.gradient = bindings.inputs[1 + count + i];
      t.row = bindings.inputs[1 + 2 * count + i];
      t.column = bindings.inputs[1 + 3 * count + i];
    }
    const auto uploaded = [](DeviceTable<AdafactorPart>& table, const auto& parts) {
      return AdafactorParts{table.upload(parts), static_cast<int64_t>(parts.size())};
    };
    call_.tensors = tensor_table_.upload(tensors_);
    call_.chunks = uploaded(chunk_table_, chunks_);
    call_.rows = uploaded(row_table_, rows_);
    call_.columns = uploaded(column_table_, columns_);
    call_.sums = static_cast<double*>(bindings.workspace);
    call_.factors = reinterpret_cast<AdafactorFactors*>(call_.sums + chunks_.size());
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
  }
  void run(Stream& stream) override { launch_adafactor_update(call_, state_, stream.native()); }

 private:
  void add(const Shape& shape, const GroupSettings& group) {
    const auto index = static_cast<int64_t>(tensors_.size());
    AdafactorTensor t{};
    t.factored = shape.rank() > 1;
    t.rows = t.factored ? shape[0] : 1;
    t.columns = t.factored ? shape.elements(1, shape.rank()) : shape.elements();
    t.group = group;
    t.first_chunk = static_cast<int64_t>(chunks_.size());
    cut(chunks_, index, t.rows * t.columns, kAdafactorChunk);
    t.chunks = static_cast<int64_t>(chunks_.size()) - t.first_chunk;
    if (t.factored && t.chunks > 0) {
      cut(rows_, index, t.rows, kAdafactorRows);
      cut(columns_, index, t.columns, kAdafactorColumns);
    }
    tensors_.push_back(t);
  }

  UpdateGroups groups_;
  std::vector<AdafactorTensor> tensors_;
  std::vector<AdafactorPart> chunks_, rows_, columns_;
  DeviceTable<AdafactorTensor> tensor_table_;
  DeviceTable<AdafactorPart> chunk_table_, row_table_, column_table_;
  AdafactorCall call_;
  const StepState* state_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_cuda_adafactor_update(const KernelRequest& request) {
  if (request.inputs.size() < 2 || !is_wide_update(request)) return nullptr;
  return std::make_unique<AdafactorUpdate>(request);
}

}  // namespace dltrain
