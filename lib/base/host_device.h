// Marks functions whose arithmetic runs both on the host and in CUDA kernels.
#pragma once

#if defined(__CUDACC__)
#define DLTRAIN_HD __host__ __device__ __forceinline__
#else
#define DLTRAIN_HD inline
#endif
