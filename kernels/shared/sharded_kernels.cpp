// reduce_scatter and all_gather of units (lib/ops/sharded.cpp) through request.collectives, on any
// device, and gradient_norm_of, for memory that the host can access.
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "shared/bound_kernel.h"
#include "shared/common_kernels.h"
#include "shared/update_rules.h"

namespace dltrain {
namespace {

// A kernel run(bindings, stream) that does work on the host and is not captured.
template <typename Run>
class MessageKernel final : public BoundKernel {
 public:
  explicit MessageKernel(Run run) : run_(std::move(run)) {}
  void run(Stream& stream) override { run_(bindings(), stream); }
  bool captured() const override { return false; }

 private:
  Run run_;
};

template <typename Run>
std::unique_ptr<Kernel> make_message(Run run) {
  return std::make_unique<MessageKernel<Run>>(std::move(run));
}

class ReduceScatterBegin final : public Kernel {
 public:
  explicit ReduceScatterBegin(const KernelRequest& request)
      : device_(request.device),
        collectives_(*request.collectives),
        ticket_(ticket_of(request)),
        dtype_(request.inputs[0].dtype),
        elements_(static_cast<size_t>(request.attributes.integer("elements"))),
        whole_bytes_(elements_ * dtype_size(dtype_) *
                     static_cast<size_t>(request.attributes.integer("ranks"))),
        subject_(request.subject) {
    check_internal(collectives_.size() == request.attributes.integer("ranks"),
                   "a unit of {} ranks in a group of {}", request.attributes.integer("ranks"),
                   collectives_.size());
    for (const TensorSpec& spec : request.inputs) bytes_.push_back(spec.bytes());
  }

  void bind(const Bindings& bindings) override {
    unit_ = static_cast<std::byte*>(bindings.inputs.front());
    part_ = bindings.outputs.front();
    gaps_.clear();
    std::byte* at = unit_;
    const auto skip_to = [&](std::byte* next) {
      check_internal(next >= at && next <= unit_ + whole_bytes_, "a tensor is outside of its unit");
      if (next > at) gaps_.push_back({at, static_cast<size_t>(next - at)});
    };
    for (size_t i = 0; i < bytes_.size(); ++i) {
      skip_to(static_cast<std::byte*>(bindings.inputs[i]));
      at = static_cast<std::byte*>(bindings.inputs[i]) + bytes_[i];
    }
    skip_to(unit_ + whole_bytes_);
  }

  void run(Stream& stream) override {
    for (const auto& [at, bytes] : gaps_) device_.zero(at, bytes, stream);
    ticket_ = collectives_.reduce_scatter(unit_, part_, elements_, dtype_, ReduceOp::sum, stream,
                                          subject_);
  }
  bool captured() const override { return false; }

 private:
  struct Gap {
    std::byte* at;
    size_t bytes;
  };
  Device& device_;
  Collectives& collectives_;
  Collectives::Ticket& ticket_;
  DType dtype_;
  size_t elements_, whole_bytes_;
  OperationSubject subject_;
  std::vector<size_t> bytes_;
  std::vector<Gap> gaps_;
  std::byte* unit_ = nullptr;
  void* part_ = nullptr;
};

}  // namespace

Collectives::Ticket& ticket_of(const KernelRequest& request) {
  const int64_t slot = request.attributes.integer("slot");
  check_internal(request.collectives != nullptr, "{} without a group", request.op);
  check_internal(slot >= 0 && slot < static_cast<int64_t>(request.tickets.size()),
                 "{}: slot {} of {}", request.op, slot, request.tickets.size());
  return request.tickets[static_cast<size_t>(slot)];
}

std::unique_ptr<Kernel> make_reduce_scatter_begin(const KernelRequest& request) {
  return std::make_unique<ReduceScatterBegin>(request);
}
std::unique_ptr<Kernel> make_all_gather_begin(const KernelRequest& request) {
  const TensorSpec& part = request.inputs[0];
  const auto elements = static_cast<size_t>(part.shape.elements());
  return make_message([elements, dtype = part.dtype, &group = *request.collectives,
                       &ticket = ticket_of(request),
                       subject = request.subject](const Bindings& b, Stream& stream) {
    ticket = group.all_gather(b.inputs[0], b.outputs[0], elements, dtype, stream, subject);
  });
}
std::unique_ptr<Kernel> make_wait(const KernelRequest& request) {
  return make_message([&group = *request.collectives, &ticket = ticket_of(request)](
                          const Bindings&, Stream& stream) { group.wait(ticket, stream); });
}
std::unique_ptr<Kernel> make_gradient_norm_of(const KernelRequest& request) {
  return make_kernel([count = request.inputs[1].shape[0]](const Bindings& b, Stream&) {
    const double* sums = b.input<double>(1);
    finish_gradient_norm(*static_cast<StepState*>(b.inputs[0]),
                         std::accumulate(sums, sums + count, 0.0));
  });
}

}  // namespace dltrain
