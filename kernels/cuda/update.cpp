// Kernel classes of the update segment. bind() builds the table of chunks and copies it to the
// device; run() only launches.
#include "cuda/update.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "ops/op.h"
#include "shared/update_groups.h"

namespace dltrain {
namespace {

// The addresses of one role's tensors.
struct RoleTensors {
  std::vector<void*> addresses;
  size_t element_bytes;
};

std::vector<UpdateChunk> cut(const std::vector<RoleTensors>& roles,
                             const std::vector<int64_t>& counts, const UpdateGroups* groups) {
  std::vector<UpdateChunk> chunks;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor) {
    for (int64_t from = 0; from < counts[tensor]; from += kUpdateChunk) {
      UpdateChunk chunk{};
      for (size_t role = 0; role < roles.size(); ++role) {
        chunk.role[role] = static_cast<std::byte*>(roles[role].addresses[tensor]) +
                           from * static_cast<int64_t>(roles[role].element_bytes);
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
      : memory_(request.device), first_(first) {
    const size_t tensors = (request.inputs.size() - first) / roles;
    for (size_t role = 0; role < roles; ++role) {
      const DType dtype = tensors > 0 ? request.inputs[first + role * tensors].dtype : DType::f32;
      element_bytes_.push_back(dtype_size(dtype));
    }
    for (size_t i = 0; i < tensors; ++i) {
      counts_.push_back(request.inputs[first + i].shape.elements());
    }
    table_.count = chunk_count(counts_);
    table_.dtype = tensors > 0 ? request.inputs[first].dtype : DType::f32;
  }

  int64_t chunks() const { return table_.count; }

  // Copies the table to the device and waits: bind() is outside the step.
  const UpdateTable& bind(const Bindings& bindings, const UpdateGroups* groups = nullptr) {
    std::vector<RoleTensors> roles;
    for (size_t role = 0; role < element_bytes_.size(); ++role) {
      const auto begin =
          bindings.inputs.begin() + static_cast<std::ptrdiff_t>(first_ + role * counts_.size());
      roles.push_back(
          {{begin, begin + static_cast<std::ptrdiff_t>(counts_.size())}, element_bytes_[role]});
    }
    const auto chunks = cut(roles, counts_, groups);
    table_.chunks = memory_.upload(chunks);
    return table_;
  }

 private:
  DeviceTable<UpdateChunk> memory_;
  size_t first_;
  std::vector<size_t> element_bytes_;  // of each role
  std::vector<int64_t> counts_;
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

// An op that is one launch over the table: launch(table, state, stream).
template <typename Launch>
class TableUpdate final : public Kernel {
 public:
  TableUpdate(const KernelRequest& request, size_t roles, std::optional<UpdateGroups> groups,
              Launch launch)
      : chunks_(request, 1, roles), groups_(std::move(groups)), launch_(std::move(launch)) {}
  void bind(const Bindings& bindings) override {
    table_ = chunks_.bind(bindings, groups_ ? &*groups_ : nullptr);
    state_ = static_cast<const StepState*>(bindings.inputs[0]);
  }
  void run(Stream& stream) override { launch_(table_, state_, stream.native()); }

 private:
  ChunkTable chunks_;
  std::optional<UpdateGroups> groups_;
  Launch launch_;
  UpdateTable table_;
  const StepState* state_ = nullptr;
};

template <typename Launch>
std::unique_ptr<Kernel> make_table_update(const KernelRequest& request, size_t roles,
                                          std::optional<UpdateGroups> groups, Launch launch) {
  return std::make_unique<TableUpdate<Launch>>(request, roles, std::move(groups),
                                               std::move(launch));
}

class ClipPercentile final : public Kernel {
 public:
  explicit ClipPercentile(const KernelRequest& request)
      : attributes_(clip_percentile_attributes(request.attributes)),
        window_(request.inputs[1].shape.elements()) {}
  void bind(const Bindings& bindings) override {
    state_ = static_cast<StepState*>(bindings.inputs[0]);
    norms_ = static_cast<float*>(bindings.inputs[1]);
  }
  void run(Stream& stream) override {
    launch_clip_percentile(attributes_, state_, norms_, window_, stream.native());
  }

 private:
  ClipPercentileAttributes attributes_;
  int64_t window_;
  StepState* state_ = nullptr;
  float* norms_ = nullptr;
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
  return with_element_rule(request.op, request.attributes, [&]<typename Rule>(const Rule& rule) {
    return make_table_update(request, Rule::kMoments + 2, UpdateGroups(request.attributes),
                             [rule](const auto& table, const auto* state, CudaStream stream) {
                               launch_element_update(table, rule, state, stream);
                             });
  });
}

std::unique_ptr<Kernel> make_cuda_low_precision_update(const KernelRequest& request) {
  const auto count = static_cast<size_t>(request.attributes.integer("count"));
  const SpecSpan parameters = request.inputs.subspan(1, count);
  if (count == 0) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (parameters[i].dtype != parameters[0].dtype ||
        request.outputs[i].dtype != request.outputs[0].dtype) {
      return nullptr;
    }
  }
  return make_table_update(
      request, 2, {},
      [copy = request.outputs[0].dtype](const auto& table, const auto*, CudaStream stream) {
        launch_low_precision_update(table, copy, stream);
      });
}

std::unique_ptr<Kernel> make_cuda_ema_update(const KernelRequest& request) {
  if (!served(request)) return nullptr;
  return make_table_update(request, 2, {},
                           [attributes = ema_attributes(request.attributes)](
                               const auto& table, const auto* state, CudaStream stream) {
                             launch_ema_update(table, attributes, state, stream);
                           });
}

std::unique_ptr<Kernel> make_cuda_clip_percentile(const KernelRequest& request) {
  return std::make_unique<ClipPercentile>(request);
}

std::unique_ptr<Kernel> make_cuda_batch_norm_update(const KernelRequest& request) {
  return served(request) ? std::make_unique<BatchNormUpdate>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_loss_seed(const KernelRequest&) {
  return std::make_unique<LossSeed>();
}

}  // namespace dltrain
