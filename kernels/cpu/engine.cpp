#include "cpu/engine.h"

#include <string>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "cpu/parallel.h"
#include "cpu/table.h"
#include "shared/host_memory.h"

namespace dltrain {
namespace {

// The widest instruction set that oneDNN may use here; the SIMD kernels choose alike.
std::string architecture() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_amx";
    default:
      return "generic";
  }
}

std::unique_ptr<Device> open(int index) {
  if (index != 0) fail(ExitCode::device, "cpu:{}: there is only cpu:0", index);
  const dnnl_version_t* v = dnnl::version();
  const std::string libraries = fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  return make_host_device("cpu", libraries.c_str(), architecture());
}

int device_count() {
  return 1;
}

}  // namespace

const Engine& cpu_engine() {
  static const Engine engine{.name = "cpu",
                             .kernels = cpu_kernels().data(),
                             .kernel_count = cpu_kernels().size(),
                             .device_count = device_count,
                             .open = open};
  return engine;
}

int cpu_threads() {
  return thread_count();
}

void set_cpu_threads([[maybe_unused]] int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
}

}  // namespace dltrain
