// The fallback to f32 kernels (shared/through_f32.h) on the CPU, where oneDNN has no f16.
#include "shared/through_f32.h"

#include "cpu/convert.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"

namespace dltrain {
namespace {

void convert(DType from, DType to, const void* x, void* y, int64_t count, Stream&) {
  constexpr int64_t kGrain = 8192;
  if (to == DType::f32) {
    const auto widen = widen_function(from);
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      widen(static_cast<const uint16_t*>(x) + begin, static_cast<float*>(y) + begin, end - begin);
    });
  } else {
    const auto narrow = narrow_function(to);
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      narrow(static_cast<const float*>(x) + begin, static_cast<uint16_t*>(y) + begin, end - begin);
    });
  }
}

}  // namespace

std::unique_ptr<Kernel> make_through_f32(const KernelRequest& request) {
  return make_through_f32(request, cpu_engine(), convert);
}

}  // namespace dltrain
