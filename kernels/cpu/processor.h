// Properties of the processor that decide which of several kernels is the fastest.
#pragma once

namespace dltrain {

// Returns true if the processor has AVX512_BF16 and multiplies pairs of bf16 (VDPBF16PS) at a
// higher rate than f32. False on Intel's processors, where the rate is half of that of f32 (84 and
// 170 GFLOP/s per core on Emerald Rapids); there bf16 is fast in AMX only, which oneDNN uses.
bool has_fast_bf16_dot();

}  // namespace dltrain
