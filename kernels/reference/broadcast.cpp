// broadcast: y = x repeated along axes of extent 1.
#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_broadcast(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      c.put<T>(0, i, c.input<T>(0)[broadcast_index(i, y, c.inputs[0].shape)]);
    }
  });
}

}  // namespace dltrain
