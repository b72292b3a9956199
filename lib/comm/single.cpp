#include "comm/single.h"

#include "base/error.h"

namespace dltrain {
namespace {

class SingleCollectives : public Collectives {
 public:
  explicit SingleCollectives(Device& device) : device_(device) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  Ticket all_reduce(void*, size_t, DType, ReduceOp, Stream&) override { return ++tickets_; }
  Ticket reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp,
                        Stream& after) override {
    return copy(input, output, count, dtype, after);
  }
  Ticket all_gather(const void* input, void* output, size_t count, DType dtype,
                    Stream& after) override {
    return copy(input, output, count, dtype, after);
  }
  Ticket broadcast(void*, size_t, DType, int, Stream&) override { return ++tickets_; }
  Ticket all_to_all(const void* input, void* output, size_t count, DType dtype,
                    Stream& after) override {
    return copy(input, output, count, dtype, after);
  }
  Ticket send(const void*, size_t, DType, int to, Stream&) override {
    throw Error(ExitCode::internal, fmt::format("internal error: send to rank {} of 1", to));
  }
  Ticket receive(void*, size_t, DType, int from, Stream&) override {
    throw Error(ExitCode::internal, fmt::format("internal error: receive from rank {} of 1", from));
  }
  // Everything happens on the streams themselves, in order.
  void wait(Ticket, Stream&) override {}
  void barrier() override {}

 private:
  Ticket copy(const void* input, void* output, size_t count, DType dtype, Stream& after) {
    if (input != output && count > 0) {
      device_.copy(output, input, count * dtype_size(dtype), after);
    }
    return ++tickets_;
  }

  Device& device_;
  Ticket tickets_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_single(Device& device) {
  return std::make_unique<SingleCollectives>(device);
}

}  // namespace dltrain
