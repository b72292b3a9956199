// Kernel classes of the update segment. bind() builds the table of chunks and copies it to the
// device; run() only launches.
#include "cuda/update.h"

#include <algorithm>
#include <vector>

#include "cuda/makers.h"
#include "shared/update_groups.h"

namespace dltrain {
namespace {

std::vector<UpdateChunk> cut(const std::vector<std::vector<void*>>& roles,
                             const std::vector<int64_t>& counts, size_t element_bytes,
                             const UpdateGroups* groups) {
  std::vector<UpdateChunk> chunks;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor) {
    for (int64_t from = 0; from < counts[tensor]; from += kUpdateChunk) {
      UpdateChunk chunk{};
      for (size_t role = 0; role < roles.size(); ++role) {
        chunk.role[role] = static_cast<std::byte*>(roles[role][tensor]) +
                           from * static_cast<int64_t>(element_bytes);
      }
      chunk.count = std::min(kUpdateChunk, counts[tensor] - from);
      if (groups != nullptr) chunk.group = groups->of(tensor);
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

int64_t chunk_count(const std::vector<int64_t>& counts) {
  int64_t chunks = 0;
  for (int64_t count : counts) chunks += divide_up(count, kUpdateChunk);
  return chunks;
}

// The table of one op: inputs [first, first + roles · tensors) of the request, role by role.
class ChunkTable {
 public:
  ChunkTable(const KernelRequest& request, size_t first, size_t roles)
      : device_(request.device), first_(first), roles_(roles) {
    const size_t tensors = (request.inputs.size() - first) / roles;
    for (size_t i = 0; i < tensors; ++i) {
      counts_.push_back(request.inputs[first + i].shape.elements());
    }
    table_.count = chunk_count(counts_);
    table_.dtype = tensors > 0 ? request.inputs[first].dtype : DType::f32;
  }

  int64_t chunks() const { return table_.count; }

  // Copies the table to the device and waits: bind() is outside the step.
  const UpdateTable& bind(const Bindings& bindings, const UpdateGroups* groups = nullptr) {
    std::vector<std::vector<void*>> roles(roles_);
    for (size_t role = 0; role < roles_; ++role) {
      const auto begin =
          bindings.inputs.begin() + static_cast<std::ptrdiff_t>(first_ + role * counts_.size());
      roles[role].assign(begin, begin + static_cast<std::ptrdiff_t>(counts_.size()));
    }
    const auto chunks = cut(roles, counts_, dtype_size(table_.dtype), groups);
    if (chunks.empty()) return table_;
    const size_t bytes = chunks.size() * sizeof(UpdateChunk);
    if (memory_.bytes() < bytes) memory_ = Buffer(device_, bytes);
    const auto stream = device_.make_stream();
    device_.copy(memory_.data(), chunks.data(), bytes, *stream);
    stream->synchronize();
    table_.chunks = reinterpret_cast<const UpdateChunk*>(memory_.data());
    return table_;
  }

 private:
  Device& device_;
  size_t first_, roles_;
  std::vector<int64_t> counts_;
  Buffer memory_;
  UpdateTable table_;
};

class GradientNorm final : public Kernel {
 public:
  explicit GradientNorm(const KernelRequest& request) : chunks_(request, 1, 1) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.chunks()) * sizeof(double);
  }
  void bind(const Bindings& bindings) override {
    table_ = chunks_.bind(bindings);
    state_ = static_cast<StepState*>(bindings.outputs[0]);
    partial_ = static_cast<double*>(bindings.workspace);
  }
  void run(Stream& stream) override {
    launch_gradient_norm(table_, state_, partial_, stream.native());
  }

 private:
  ChunkTable chunks_;
  UpdateTable table_;
  StepState* state_ = nullptr;
  double* partial_ = nullptr;
};

template <typename Rule>
class ElementUpdate final : public Kernel {
 public:
  ElementUpdate(const KernelRequest& request, const Rule& rule)
      : rule_(rule), groups_(request.attributes), chunks_(request, 1, Rule::kMoments + 2) {}
  void bind(const Bindings& bindings) override {
    table_ = chunks_.bind(bindings, &groups_);
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
  }
  void run(Stream& stream) override {
    launch_element_update(table_, rule_, state_, stream.native());
  }

 private:
  Rule rule_;
  UpdateGroups groups_;
  ChunkTable chunks_;
  UpdateTable table_;
  const StepState* state_ = nullptr;
};

class BatchNormUpdate final : public Kernel {
 public:
  explicit BatchNormUpdate(const KernelRequest& request)
      : call_{.dtype = request.inputs[1].dtype,
              .channels = request.inputs[1].shape.elements(),
              .momentum = request.attributes.number("momentum", 0.1),
              .groups = request.attributes.number("groups", 1),
              .unbias = request.attributes.number("unbias", 1)} {}
  void bind(const Bindings& bindings) override {
    in_.assign(bindings.inputs.begin(), bindings.inputs.end());
  }
  void run(Stream& stream) override {
    launch_batch_norm_update(call_, static_cast<const StepState*>(in_[0]), in_[1], in_[2], in_[3],
                             in_[4], stream.native());
  }

 private:
  BatchNormUpdateCall call_;
  std::vector<void*> in_;
};

class LossSeed final : public Kernel {
 public:
  void bind(const Bindings& bindings) override {
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
    if (bindings.inputs.size() == 2) loss_ = static_cast<const double*>(bindings.inputs[1]);
    seed_ = static_cast<double*>(bindings.outputs[0]);
  }
  void run(Stream& stream) override { launch_loss_seed(state_, loss_, seed_, stream.native()); }

 private:
  const StepState* state_ = nullptr;
  const double* loss_ = nullptr;
  double* seed_ = nullptr;
};

// All tensors after the state have one dtype, f32 or f64.
bool served(const KernelRequest& request) {
  for (const TensorSpec& spec : request.inputs.subspan(1)) {
    if (spec.dtype != request.inputs[1].dtype) return false;
  }
  const DType dtype = request.inputs.size() > 1 ? request.inputs[1].dtype : DType::f32;
  return dtype == DType::f32 || dtype == DType::f64;
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_gradient_norm(const KernelRequest& request) {
  return served(request) ? std::make_unique<GradientNorm>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_element_update(const KernelRequest& request) {
  if (!served(request)) return nullptr;
  return with_element_rule(request.op, request.attributes,
                           [&]<typename Rule>(const Rule& rule) -> std::unique_ptr<Kernel> {
                             return std::make_unique<ElementUpdate<Rule>>(request, rule);
                           });
}

std::unique_ptr<Kernel> make_cuda_batch_norm_update(const KernelRequest& request) {
  return served(request) ? std::make_unique<BatchNormUpdate>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_loss_seed(const KernelRequest&) {
  return std::make_unique<LossSeed>();
}

}  // namespace dltrain
