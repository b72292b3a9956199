// broadcast: y = x repeated along axes of extent 1.
#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Broadcast {
  explicit Broadcast(const NaiveCall&) {}

  void run(const NaiveCall& c) const {
    const Shape& y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      c.put<T>(0, i, c.input<T>(0)[broadcast_index(i, y, c.inputs[0].shape)]);
    }
  }
};

}  // namespace

KernelPointer reference_broadcast(const KernelRequest& request) {
  return make_naive<Broadcast>(request);
}

}  // namespace dltrain
