#include "shared/common_kernels.h"

#include <vector>

#include "base/error.h"
#include "shared/bound_kernel.h"
#include "shared/elementwise.h"

namespace dltrain {
namespace {

std::unique_ptr<Kernel> nothing_to_do() {
  return make_kernel([](const Bindings&, Stream&) {});
}

class AllReduceBegin final : public Kernel {
 public:
  explicit AllReduceBegin(const KernelRequest& request)
      : collectives_(*request.collectives),
        ticket_(ticket_of(request)),
        dtype_(request.inputs[0].dtype),
        subject_(request.subject) {
    for (const TensorSpec& spec : request.inputs) bytes_.push_back(spec.bytes());
  }

  void bind(const Bindings& bindings) override {
    data_ = bindings.inputs.front();
    const auto* begin = static_cast<const std::byte*>(data_);
    const std::byte* end = begin;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const auto* input = static_cast<const std::byte*>(bindings.inputs[i]);
      check_internal(input >= end, "all_reduce_begin: tensors are out of order");
      end = input + bytes_[i];
    }
    count_ = static_cast<size_t>(end - begin) / dtype_size(dtype_);
  }

  void run(Stream& stream) override {
    ticket_ = collectives_.all_reduce(data_, count_, dtype_, ReduceOp::sum, stream, subject_);
  }
  bool captured() const override { return false; }

 private:
  Collectives& collectives_;
  Collectives::Ticket& ticket_;
  DType dtype_;
  OperationSubject subject_;
  std::vector<size_t> bytes_;  // of the tensors
  void* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace

std::vector<KernelRow> with_elementwise(const KernelRow& form, std::span<const KernelRow> rows) {
  std::vector<KernelRow> out(std::size(kElementwiseNames), form);
  for (size_t i = 0; i < out.size(); ++i) out[i].op = kElementwiseNames[i];
  out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

std::unique_ptr<Kernel> make_reshape(const KernelRequest&) {
  return nothing_to_do();
}

std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request) {
  if (request.collectives == nullptr) return nothing_to_do();
  return std::make_unique<AllReduceBegin>(request);
}

std::unique_ptr<Kernel> make_all_reduce_end(const KernelRequest& request) {
  if (request.collectives == nullptr) return nothing_to_do();
  return make_wait(request);
}

}  // namespace dltrain
