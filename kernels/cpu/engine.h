// The CPU engine: oneDNN for matrix products and convolutions, own SIMD kernels (chosen at run time
// for the processor) for the rest, OpenMP threads. It computes in f32, on tensors of f32, bf16 and
// f16; products of bf16 use the processor's bf16 instructions if available.
//
// Threads: kernels use cpu_threads() threads; the number must be set before kernels are made
// (set_cpu_threads, OMP_NUM_THREADS) and not changed while they exist. Results are reproducible
// with the same thread count and, except for oneDNN's, with any.
#pragma once

#include "device/engine.h"

namespace dltrain {

const Engine& cpu_engine();

// OpenMP's number of threads in the calling thread; always 1 in builds without OpenMP.
int cpu_threads();
void set_cpu_threads(int threads);

}  // namespace dltrain
