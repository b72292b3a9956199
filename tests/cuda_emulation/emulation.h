// CUDA on the CPU, for tests only: what the .cu files of kernels/cuda need of the language, so that
// g++ compiles the same kernels. Each thread of a block is a fiber; blocks run one after the other;
// a fiber runs until it waits at a barrier or a warp shuffle. Not a model of speed.
//
// It finds:
//   * launches that a GPU would refuse (empty or too large grids and blocks);
//   * barriers and shuffles that not all threads of the block or warp reach;
//   * missing barriers and other dependence on the order of threads and blocks: every launch runs
//     them in another random order, so running a kernel twice gives different bits;
//   * with AddressSanitizer, accesses outside of what was allocated.
// Shared memory is static memory, or with a size of the launch that of an allocation: at the start
// of a block it holds what the last block left.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define DLTRAIN_CUDA_EMULATION 1
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // as CUDA's
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
// A store that is not cached in L1.
inline void __stcg(uint4* to, uint4 value) {
  *to = value;
}

namespace dltrain::emulation {

// Where the running fiber is.
struct Position {
  dim3 thread, block, block_size, grid_size;
};
const Position& position();

// Runs `thread` once for every thread of the grid. Throws std::runtime_error naming the kernel when
// a GPU would refuse the launch or hang in it. `shared`: bytes of dynamic shared memory.
void launch(const char* kernel, dim3 grid, dim3 block, const std::function<void()>& thread,
            size_t shared = 0);

// The same on a stream: as cuda_emulation/queue.h says.
void launch_on(void* stream, const char* kernel, dim3 grid, dim3 block,
               std::function<void()> thread, size_t shared = 0);

inline constexpr size_t kMostShared = 227 << 10;  // of a block of sm_90
void* shared_memory();

// Waits for all threads of the block.
void block_barrier();
// Hands in 8 bytes, waits for the warp, and returns what lane `lane ^ offset` handed in.
uint64_t exchange_xor(uint32_t mask, uint64_t bits, int offset);

}  // namespace dltrain::emulation

#define threadIdx (::dltrain::emulation::position().thread)
#define blockIdx (::dltrain::emulation::position().block)
#define blockDim (::dltrain::emulation::position().block_size)
#define gridDim (::dltrain::emulation::position().grid_size)
// Arguments are taken by value, as CUDA takes them.
#define DLTRAIN_LAUNCH(kernel, grid, block, stream, ...) \
  DLTRAIN_LAUNCH_SHARED(kernel, grid, block, 0, stream, __VA_ARGS__)
#define DLTRAIN_LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                            \
  ::dltrain::emulation::launch_on((stream), #kernel, grid, block, [=] { (kernel)(__VA_ARGS__); }, \
                                  bytes)
// One block, in which every two steps between barriers run in random order too.
#define DLTRAIN_LAUNCH_COOPERATIVE(kernel, block, stream, ...) \
  DLTRAIN_LAUNCH(kernel, 1, block, stream, __VA_ARGS__)

namespace dltrain {

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::shared_memory());
}
template <typename Kernel>
bool allow_shared(Kernel*, size_t bytes) {
  return bytes <= emulation::kMostShared;
}

}  // namespace dltrain

inline void __syncthreads() {
  ::dltrain::emulation::block_barrier();
}

namespace dltrain {
inline void grid_barrier() {
  __syncthreads();
}
}  // namespace dltrain

inline void __syncwarp() {
  ::dltrain::emulation::exchange_xor(0xffffffffu, 0, 0);
}

// Threads run one at a time.
template <typename T>
T atomicAdd(T* address, T value) {
  const T old = *address;
  *address += value;
  return old;
}

template <typename T>
T atomicMax(T* address, T value) {
  const T old = *address;
  *address = value > old ? value : old;
  return old;
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int offset) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = ::dltrain::emulation::exchange_xor(mask, bits, offset);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
