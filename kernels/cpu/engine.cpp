#include "cpu/engine.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <hwy/highway.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "cpu/openmp_waiting.h"
#include "cpu/parallel.h"
#include "cpu/table.h"
#include "shared/host_memory.h"

namespace dltrain {
namespace {

// Returns the widest instruction set that oneDNN may use.
std::string architecture() {
  using Isa = dnnl::cpu_isa;
  static constexpr std::pair<Isa, const char*> kNames[] = {{Isa::avx2, "avx2"},
                                                           {Isa::avx2_vnni, "avx2_vnni"},
                                                           {Isa::avx512_core, "avx512"},
                                                           {Isa::avx512_core_vnni, "avx512_vnni"},
                                                           {Isa::avx512_core_bf16, "avx512_bf16"},
                                                           {Isa::avx512_core_amx, "avx512_amx"}};
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  std::string widest = "generic";
  for (const auto& [isa, name] : kNames) {
    // A newer oneDNN has more sets, with further bits.
    if ((effective & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa)) widest = name;
  }
  return widest;
}

// Returns the targets of the SIMD kernels. DLTRAIN_MAX_CPU_ISA limits them and oneDNN, for tests.
int64_t simd_targets() {
  const char* most = std::getenv("DLTRAIN_MAX_CPU_ISA");
  if (most != nullptr && std::string_view(most) != "AVX2") {
    fail(ExitCode::usage, "DLTRAIN_MAX_CPU_ISA={}: only AVX2 can be asked for", most);
  }
#if HWY_ARCH_X86
  if (most != nullptr) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    // Not DisableTargets(): Highway 1.0.3 forgets it for kernels when SupportedTargets() is called.
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(2 * HWY_AVX3 - 1));
  }
#endif
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  if (targets == 0) {
    fail(ExitCode::device,
         "the CPU engine needs a processor with AVX2 and FMA (Intel since Haswell, AMD since "
         "Excavator)");
  }
  return targets;
}

std::unique_ptr<Device> open(int index) {
  if (index != 0) fail(ExitCode::device, "cpu:{}: there is only cpu:0", index);
  static const int64_t targets = simd_targets();  // before a kernel is chosen
  adapt_openmp_waiting();
  const dnnl_version_t* v = dnnl::version();
  const std::string libraries =
      fmt::format("oneDNN {}.{}.{}, Highway {}.{}.{} for {}", v->major, v->minor, v->patch,
                  HWY_MAJOR, HWY_MINOR, HWY_PATCH, hwy::TargetName(targets & -targets));
  return make_host_device("cpu", libraries.c_str(), architecture());
}

}  // namespace

const Engine& cpu_engine() {
  static const Engine engine{.name = "cpu",
                             .kernels = cpu_kernels().data(),
                             .kernel_count = cpu_kernels().size(),
                             .device_count = [] { return 1; },
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
