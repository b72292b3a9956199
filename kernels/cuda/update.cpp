// Kernel classes of the update segment. bind() builds the table of chunks and copies it to the
// device; run() only launches.
#include "cuda/update.h"

#include <optional>
#include <utility>
#include <vector>

#include "cuda/makers.h"
#include "cuda/update_table.h"
#include "ops/op.h"
#include "shared/update_groups.h"

namespace dltrain {
namespace {

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

class SumOfSquares final : public Kernel {
 public:
  explicit SumOfSquares(const KernelRequest& request) : chunks_(request, 0, 1) {}
  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.chunks()) * sizeof(double);
  }
  void bind(const Bindings& bindings) override {
    table_ = chunks_.bind(bindings);
    sum_ = static_cast<double*>(bindings.outputs[0]);
    partial_ = static_cast<double*>(bindings.workspace);
  }
  void run(Stream& stream) override {
    launch_sum_of_squares(table_, sum_, partial_, stream.native());
  }

 private:
  ChunkTable chunks_;
  UpdateTable table_;
  double *sum_ = nullptr, *partial_ = nullptr;
};

class GradientNormOf final : public Kernel {
 public:
  void bind(const Bindings& bindings) override {
    state_ = static_cast<StepState*>(bindings.inputs[0]);
    squares_ = static_cast<const double*>(bindings.inputs[1]);
  }
  void run(Stream& stream) override { launch_gradient_norm_of(state_, squares_, stream.native()); }

 private:
  StepState* state_ = nullptr;
  const double* squares_ = nullptr;
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

}  // namespace

std::unique_ptr<Kernel> make_cuda_gradient_norm(const KernelRequest& request) {
  return is_wide_update(request) ? std::make_unique<GradientNorm>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_sum_of_squares(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const bool wide = dtype == DType::f32 || dtype == DType::f64;
  return wide ? std::make_unique<SumOfSquares>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_gradient_norm_of(const KernelRequest&) {
  return std::make_unique<GradientNormOf>();
}

std::unique_ptr<Kernel> make_cuda_element_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
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
  if (!is_wide_update(request)) return nullptr;
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
  return is_wide_update(request) ? std::make_unique<BatchNormUpdate>(request) : nullptr;
}

std::unique_ptr<Kernel> make_cuda_loss_seed(const KernelRequest&) {
  return std::make_unique<LossSeed>();
}

}  // namespace dltrain
