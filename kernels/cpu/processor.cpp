#include "cpu/processor.h"

namespace dltrain {

bool has_fast_bf16_dot() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace dltrain
