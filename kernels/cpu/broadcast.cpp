// broadcast: rows of the result are copies of the input's rows, or one value repeated. Any dtype of
// 1, 2, 4 or 8 bytes.
#include <array>
#include <cstring>

#include "cpu/broadcast_loop.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

template <typename T>
class Broadcast final : public Kernel {
 public:
  explicit Broadcast(const KernelRequest& request)
      : loop_(request.outputs[0].shape, std::array{request.inputs[0].shape}) {}

  void bind(const Bindings& bindings) override {
    x_ = input<const T>(bindings, 0);
    y_ = output<T>(bindings, 0);
  }

  void run(Stream&) override {
    const int64_t length = loop_.row_length();
    parallel_for(loop_.rows(), std::max<int64_t>(1, 4096 / std::max<int64_t>(1, length)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const T* from = x_ + loop_.offset(0, row);
                     T* to = y_ + row * length;
                     if (loop_.one_value(0)) {
                       std::fill_n(to, length, *from);
                     } else {
                       std::memcpy(to, from, static_cast<size_t>(length) * sizeof(T));
                     }
                   }
                 });
  }

 private:
  BroadcastLoop loop_;
  const T* x_ = nullptr;
  T* y_ = nullptr;
};

}  // namespace

MadeKernel make_broadcast(const KernelRequest& request) {
  switch (dtype_size(request.inputs[0].dtype)) {
    case 1:
      return std::make_unique<Broadcast<uint8_t>>(request);
    case 2:
      return std::make_unique<Broadcast<uint16_t>>(request);
    case 4:
      return std::make_unique<Broadcast<uint32_t>>(request);
    case 8:
      return std::make_unique<Broadcast<uint64_t>>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
