// broadcast: rows of the result are copies of the input's rows, or one value repeated. Any dtype of
// 1, 2, 4 or 8 bytes.
#include <array>
#include <cstring>

#include "cpu/broadcast_loop.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

template <typename T>
std::unique_ptr<Kernel> make_broadcast_of(const KernelRequest& request) {
  const BroadcastLoop loop(request.outputs[0].shape, std::array{request.inputs[0].shape});
  return make_kernel([loop](const Bindings& b, Stream&) {
    const int64_t length = loop.row_length();
    const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, length));
    parallel_each(loop.rows(), grain, [&](int64_t row) {
      const T* from = b.input<T>(0) + loop.offset(0, row);
      T* to = b.output<T>(0) + row * length;
      if (loop.one_value(0)) {
        std::fill_n(to, length, *from);
      } else {
        std::memcpy(to, from, static_cast<size_t>(length) * sizeof(T));
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_broadcast(const KernelRequest& request) {
  return with_word(request.inputs[0].dtype,
                   [&]<typename T>(T) { return make_broadcast_of<T>(request); });
}

}  // namespace dltrain
