// The CPU engine: oneDNN for matrix products and convolutions, own SIMD kernels (chosen at run time
// for the processor) for the rest, OpenMP threads. It computes in f32, on tensors
// of f32, bf16 and f16; products of bf16 by the processor's own instructions where it has them.
//
// Threads: kernels use cpu_threads() threads; the number is to be set before kernels are made
// (set_cpu_threads, OMP_NUM_THREADS) and not changed while they live. Results are the same
// in every run with one thread count, and, but for oneDNN's, with any.
#pragma once

#include "device/engine.h"

namespace dltrain {

const Engine& cpu_engine();

// Of OpenMP, in the calling thread; 1 in builds without it, which cannot be set.
int cpu_threads();
void set_cpu_threads(int threads);

}  // namespace dltrain
