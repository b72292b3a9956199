// A thread copies one unit of a row: as many bytes at a time as divide rows and fit addresses.
#include "cuda/decoding.h"
#include "cuda/device_code.cuh"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

struct alignas(16) Unit16 {
  uint64_t low, high;
};

// Calls f with the widest unit that a row consists of; all tensors begin at multiples of 16 bytes.
template <typename F>
void with_unit(int64_t row_bytes, const F& f) {
  if (row_bytes % 16 == 0) return f(Unit16{});
  if (row_bytes % 4 == 0) return f(uint32_t{});
  if (row_bytes % 2 == 0) return f(uint16_t{});
  f(uint8_t{});
}

__global__ void token_positions_kernel(const int32_t* positions, int64_t count, int64_t tokens,
                                       int64_t limit, int32_t* y) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t place = positions[i / tokens] + i % tokens;
    y[i] = static_cast<int32_t>(place < limit ? place : limit - 1);
  }
}

template <typename U>
__global__ void last_token_kernel(RowCopy c, int64_t width, const U* x, const int32_t* counts,
                                  U* y) {
  for (int64_t i = thread_index(); i < c.samples * width; i += thread_count()) {
    const int64_t n = i / width, last = counts[n] - 1;
    const int64_t token = last < 0 ? 0 : last < c.tokens ? last : c.tokens - 1;
    y[i] = x[(n * c.tokens + token) * width + i % width];
  }
}

template <typename U>
__global__ void slot_state_kernel(RowCopy c, int64_t width, const U* state,
                                  const int32_t* positions, const int32_t* slots, U* y) {
  for (int64_t i = thread_index(); i < c.samples * width; i += thread_count()) {
    const int64_t n = i / width;
    y[i] = positions[n] == 0 ? U{} : state[slots[n] * width + i % width];
  }
}

template <typename U>
__global__ void slot_state_update_kernel(RowCopy c, int64_t width, U* state, const U* y,
                                         const int32_t* counts, const int32_t* slots) {
  for (int64_t i = thread_index(); i < c.samples * width; i += thread_count()) {
    const int64_t n = i / width;
    if (counts[n] <= 0) continue;
    state[slots[n] * width + i % width] = y[(n * c.tokens + counts[n] - 1) * width + i % width];
  }
}

__device__ int64_t first_row(const CarryCall& c, const StepState& step) {
  return step.in.sample_offset % c.rows;
}

template <typename U>
__global__ void carried_state_kernel(CarryCall c, int64_t width, const StepState* step,
                                     const U* state, U* y) {
  const bool begins = step->in.step % c.steps == 0;
  const U* from = state + first_row(c, *step) * width;
  for (int64_t i = thread_index(); i < c.samples * width; i += thread_count()) {
    y[i] = begins ? U{} : from[i];
  }
}

template <typename U>
__global__ void carry_state_kernel(CarryCall c, int64_t width, const StepState* step, const U* x,
                                   U* state, bool others_zero) {
  const int64_t begin = first_row(c, *step) * width, end = begin + c.samples * width;
  for (int64_t i = thread_index(); i < c.rows * width; i += thread_count()) {
    const bool own = i >= begin && i < end;
    if (own || others_zero) state[i] = own ? x[i - begin] : U{};
  }
}

template <typename U>
__global__ void carried_update_kernel(int64_t count, const StepState* step, const U* next,
                                      U* state) {
  if (step->out.finite == 0) return;
  for (int64_t i = thread_index(); i < count; i += thread_count()) state[i] = next[i];
}

}  // namespace

void launch_token_positions(const int32_t* positions, int64_t samples, int64_t tokens,
                            int64_t limit, int32_t* y, CudaStream stream) {
  const int64_t count = samples * tokens;
  if (count == 0) return;
  DLTRAIN_LAUNCH(token_positions_kernel, stride_grid(count, kBlock), kBlock, stream, positions,
                 count, tokens, limit, y);
}

void launch_last_token(const RowCopy& copy, const void* x, const int32_t* counts, void* y,
                       CudaStream stream) {
  if (copy.samples * copy.row_bytes == 0) return;
  with_unit(copy.row_bytes, [&]<typename U>(U) {
    const int64_t width = copy.row_bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(last_token_kernel<U>, stride_grid(copy.samples * width, kBlock), kBlock, stream,
                   copy, width, static_cast<const U*>(x), counts, static_cast<U*>(y));
  });
}

void launch_slot_state(const RowCopy& copy, const void* state, const int32_t* positions,
                       const int32_t* slots, void* y, CudaStream stream) {
  if (copy.samples * copy.row_bytes == 0) return;
  with_unit(copy.row_bytes, [&]<typename U>(U) {
    const int64_t width = copy.row_bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(slot_state_kernel<U>, stride_grid(copy.samples * width, kBlock), kBlock, stream,
                   copy, width, static_cast<const U*>(state), positions, slots, static_cast<U*>(y));
  });
}

void launch_slot_state_update(const RowCopy& copy, void* state, const void* y,
                              const int32_t* counts, const int32_t* slots, CudaStream stream) {
  if (copy.samples * copy.row_bytes == 0) return;
  with_unit(copy.row_bytes, [&]<typename U>(U) {
    const int64_t width = copy.row_bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(slot_state_update_kernel<U>, stride_grid(copy.samples * width, kBlock), kBlock,
                   stream, copy, width, static_cast<U*>(state), static_cast<const U*>(y), counts,
                   slots);
  });
}

void launch_carried_state(const CarryCall& call, const StepState* step, const void* state, void* y,
                          CudaStream stream) {
  if (call.samples * call.row_bytes == 0) return;
  with_unit(call.row_bytes, [&]<typename U>(U) {
    const int64_t width = call.row_bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(carried_state_kernel<U>, stride_grid(call.samples * width, kBlock), kBlock,
                   stream, call, width, step, static_cast<const U*>(state), static_cast<U*>(y));
  });
}

void launch_carry_state(const CarryCall& call, const StepState* step, const void* x, void* state,
                        bool others_zero, CudaStream stream) {
  if (call.rows * call.row_bytes == 0) return;
  with_unit(call.row_bytes, [&]<typename U>(U) {
    const int64_t width = call.row_bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(carry_state_kernel<U>, stride_grid(call.rows * width, kBlock), kBlock, stream,
                   call, width, step, static_cast<const U*>(x), static_cast<U*>(state),
                   others_zero);
  });
}

void launch_carried_update(int64_t bytes, const StepState* step, const void* next, void* state,
                           CudaStream stream) {
  if (bytes == 0) return;
  with_unit(bytes, [&]<typename U>(U) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(U));
    DLTRAIN_LAUNCH(carried_update_kernel<U>, stride_grid(count, kBlock), kBlock, stream, count,
                   step, static_cast<const U*>(next), static_cast<U*>(state));
  });
}

}  // namespace dltrain
