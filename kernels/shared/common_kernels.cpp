#include "shared/common_kernels.h"

#include "base/error.h"

namespace dltrain {
namespace {

class NothingToDo final : public Kernel {
 public:
  void bind(const Bindings&) override {}
  void run(Stream&) override {}
};

class AllReduceBegin final : public Kernel {
 public:
  explicit AllReduceBegin(const KernelRequest& request)
      : collectives_(*request.collectives),
        ticket_(ticket_of(request)),
        dtype_(request.inputs[0].dtype),
        last_bytes_(request.inputs.back().bytes()) {}

  void bind(const Bindings& bindings) override {
    data_ = bindings.inputs.front();
    const auto* begin = static_cast<const std::byte*>(data_);
    const auto* end = static_cast<const std::byte*>(bindings.inputs.back()) + last_bytes_;
    for (const void* input : bindings.inputs) {
      check_internal(input >= begin && input < end, "all_reduce_begin: tensors are out of order");
    }
    count_ = static_cast<size_t>(end - begin) / dtype_size(dtype_);
  }

  void run(Stream& stream) override {
    ticket_ = collectives_.all_reduce(data_, count_, dtype_, ReduceOp::sum, stream);
  }
  bool captured() const override { return false; }

 private:
  Collectives& collectives_;
  Collectives::Ticket& ticket_;
  DType dtype_;
  size_t last_bytes_;
  void* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_reshape(const KernelRequest&) {
  return std::make_unique<NothingToDo>();
}

std::unique_ptr<Kernel> make_all_reduce_begin(const KernelRequest& request) {
  if (request.collectives == nullptr) return std::make_unique<NothingToDo>();
  return std::make_unique<AllReduceBegin>(request);
}

std::unique_ptr<Kernel> make_all_reduce_end(const KernelRequest& request) {
  if (request.collectives == nullptr) return std::make_unique<NothingToDo>();
  return make_wait(request);
}

}  // namespace dltrain
