// The CUDA kernels of snake.cpp. nvcc compiles them without dltrain's headers. Each function queues
// work on a cudaStream_t and returns a cudaError_t.
#pragma once

#include <cstdint>

int launch_snake(int64_t count, int64_t channels, const float* x, const float* alpha, float* y,
                 void* stream);
int launch_snake_backward(int64_t count, int64_t channels, const float* x, const float* alpha,
                          const float* dy, float* dx, float* dalpha, void* stream);
int launch_quantile(int64_t count, double q, const float* x, const float* targets, double* loss,
                    void* stream);
int launch_quantile_backward(int64_t count, double q, const float* x, const float* targets,
                             const double* dloss, float* dx, void* stream);
