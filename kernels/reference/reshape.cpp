// reshape: the output has the input's address, so there is nothing to do. Any dtype.
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Reshape {
  explicit Reshape(const NaiveCall&) {}
  void run(const NaiveCall&) const {}
};

}  // namespace

KernelPointer reference_reshape(const KernelRequest& request) {
  return std::make_unique<NaiveKernel<Reshape>>(request);
}

}  // namespace dltrain
