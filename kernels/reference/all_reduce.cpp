// all_reduce_begin and all_reduce_end: the bucket is one range of memory, from the first tensor's
// start to the last one's end. With one rank (no Collectives) both do nothing.
#include "base/error.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

class AllReduceBegin final : public Kernel {
 public:
  AllReduceBegin(Collectives* collectives, Collectives::Ticket& ticket, const TensorSpec& last)
      : collectives_(collectives), ticket_(ticket), last_(last) {}

  void bind(const Bindings& bindings) override {
    data_ = static_cast<std::byte*>(bindings.inputs.front());
    const auto* end = static_cast<std::byte*>(bindings.inputs.back()) + last_.bytes();
    check_internal(end > data_, "the tensors of an all-reduce are not in order of address");
    count_ = static_cast<size_t>(end - data_) / dtype_size(last_.dtype);
  }
  void run(Stream& stream) override {
    ticket_ = collectives_->all_reduce(data_, count_, last_.dtype, ReduceOp::sum, stream);
  }

 private:
  Collectives* collectives_;
  Collectives::Ticket& ticket_;
  TensorSpec last_;
  std::byte* data_ = nullptr;
  size_t count_ = 0;
};

class AllReduceEnd final : public Kernel {
 public:
  AllReduceEnd(Collectives* collectives, const Collectives::Ticket& ticket)
      : collectives_(collectives), ticket_(ticket) {}

  void bind(const Bindings&) override {}
  void run(Stream& stream) override { collectives_->wait(ticket_, stream); }

 private:
  Collectives* collectives_;
  const Collectives::Ticket& ticket_;
};

class Nothing final : public Kernel {
 public:
  void bind(const Bindings&) override {}
  void run(Stream&) override {}
};

Collectives::Ticket& slot_of(const KernelRequest& request) {
  const int64_t slot = request.attributes.integer("slot");
  check_internal(slot >= 0 && static_cast<size_t>(slot) < request.tickets.size(),
                 "all-reduce slot {} of {}", slot, request.tickets.size());
  return request.tickets[static_cast<size_t>(slot)];
}

}  // namespace

KernelPointer reference_all_reduce_begin(const KernelRequest& request) {
  if (request.collectives == nullptr) return std::make_unique<Nothing>();
  return std::make_unique<AllReduceBegin>(request.collectives, slot_of(request),
                                          request.inputs.back());
}
KernelPointer reference_all_reduce_end(const KernelRequest& request) {
  if (request.collectives == nullptr) return std::make_unique<Nothing>();
  return std::make_unique<AllReduceEnd>(request.collectives, slot_of(request));
}

}  // namespace dltrain
