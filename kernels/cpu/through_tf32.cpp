// TF32 products on the CPU (shared/through_tf32.h): exact, and slower than those of f32.
#include "shared/through_tf32.h"

#include "cpu/convert.h"
#include "cpu/engine.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"

namespace dltrain {

void round_to_tf32(const float* x, float* y, int64_t count) {
  parallel_for(count, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = to_tf32(x[i]);
  });
}

std::unique_ptr<Kernel> make_through_tf32(const KernelRequest& request) {
  return make_through_tf32(
      request, cpu_engine(),
      [](const float* x, float* y, int64_t count, Stream&) { round_to_tf32(x, y, count); });
}

}  // namespace dltrain
