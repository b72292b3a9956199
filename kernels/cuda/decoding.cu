// The ops on slots (lib/ops/decoding.cpp) and on recurrent state between batches
// (lib/ops/carry.cpp): copies of rows whose indices are in device memory. A thread copies one unit
// of a row: the largest access that divides rows and matches the alignment.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct RowCopy {
  int64_t samples, tokens, row_bytes;
};

// The rows of a micro-batch within the `rows` of all streams.
struct CarryCall {
  int64_t samples, rows, row_bytes;
  int64_t steps = 1;  // carried_state: streams begin where the step is a multiple
};

// Returns the bytes per index of the first `axes` axes.
int64_t row_bytes(const TensorSpec& spec, int axes) {
  return spec.shape.elements(axes, spec.shape.rank()) *
         static_cast<int64_t>(dtype_size(spec.dtype));
}

CarryCall carry_call(const TensorSpec& micro_batch, const TensorSpec& all) {
  return {.samples = micro_batch.shape[0],
          .rows = all.shape[0],
          .row_bytes = row_bytes(micro_batch, 1)};
}

constexpr int kBlock = 256;

struct alignas(16) Unit16 {
  uint64_t low, high;
};

// Calls f with the widest unit that divides a row and all addresses.
template <typename F>
void with_unit(int64_t row_bytes, const Bindings& b, const F& f) {
  auto all = static_cast<uintptr_t>(row_bytes);
  for (const void* tensor : b.inputs) all |= reinterpret_cast<uintptr_t>(tensor);
  for (const void* tensor : b.outputs) all |= reinterpret_cast<uintptr_t>(tensor);
  if (all % 16 == 0) return f(Unit16{});
  if (all % 4 == 0) return f(uint32_t{});
  if (all % 2 == 0) return f(uint16_t{});
  f(uint8_t{});
}

__global__ void token_positions_kernel(const int32_t* positions, int64_t count, int64_t tokens,
                                       int64_t limit, int32_t* y) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t position = positions[i / tokens] + i % tokens;
    y[i] = static_cast<int32_t>(position < limit ? position : limit - 1);
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

// A kernel run(call, units of a row, bindings, stream, unit); skipped if there is nothing to copy.
template <typename Call, typename Run>
std::unique_ptr<Kernel> make_row_kernel(const Call& call, int64_t rows, Run run) {
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (rows * call.row_bytes == 0) return;
    with_unit(call.row_bytes, b, [&]<typename U>(U unit) {
      run(call, call.row_bytes / static_cast<int64_t>(sizeof(U)), b, stream, unit);
    });
  });
}

// With `others_zero` sets the rows of other micro-batches to zero, else keeps them.
template <bool others_zero>
std::unique_ptr<Kernel> make_carry_state(const KernelRequest& request) {
  const CarryCall call = carry_call(request.inputs[1], request.outputs[0]);
  return make_row_kernel(
      call, call.rows,
      []<typename U>(const CarryCall& c, int64_t width, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(carry_state_kernel<U>, stride_grid(c.rows * width, kBlock), kBlock,
                       stream.native(), c, width, b.input<StepState>(0), b.input<U>(1),
                       b.output<U>(0), others_zero);
      });
}

}  // namespace

// y[samples, tokens]: positions[n] + token, at most limit − 1.
std::unique_ptr<Kernel> make_cuda_token_positions(const KernelRequest& request) {
  const int64_t count = request.outputs[0].shape.elements(), tokens = request.outputs[0].shape[1];
  const int64_t limit = request.attributes.integer("limit");
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    DLTRAIN_LAUNCH(token_positions_kernel, stride_grid(count, kBlock), kBlock, stream.native(),
                   b.input<int32_t>(0), count, tokens, limit, b.output<int32_t>(0));
  });
}

// (x, counts): y[n] = x[n, counts[n] − 1], or x[n, 0] if counts[n] = 0.
std::unique_ptr<Kernel> make_cuda_last_token(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  return make_row_kernel(
      RowCopy{x.shape[0], x.shape[1], row_bytes(x, 2)}, x.shape[0],
      []<typename U>(const RowCopy& c, int64_t width, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(last_token_kernel<U>, stride_grid(c.samples * width, kBlock), kBlock,
                       stream.native(), c, width, b.input<U>(0), b.input<int32_t>(1),
                       b.output<U>(0));
      });
}

// (state, positions, slots): y[n] = state[slots[n]], or 0 where positions[n] is 0.
std::unique_ptr<Kernel> make_cuda_slot_state(const KernelRequest& request) {
  const TensorSpec& y = request.outputs[0];
  return make_row_kernel(
      RowCopy{y.shape[0], 1, row_bytes(y, 1)}, y.shape[0],
      []<typename U>(const RowCopy& c, int64_t width, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(slot_state_kernel<U>, stride_grid(c.samples * width, kBlock), kBlock,
                       stream.native(), c, width, b.input<U>(0), b.input<int32_t>(1),
                       b.input<int32_t>(2), b.output<U>(0));
      });
}

// (state, y, counts, slots): state[slots[n]] = y[n, counts[n] − 1] where counts[n] > 0.
std::unique_ptr<Kernel> make_cuda_slot_state_update(const KernelRequest& request) {
  const Shape& y = request.inputs[1].shape;
  return make_row_kernel(
      RowCopy{y[0], y[1], row_bytes(request.inputs[0], 1)}, y[0],
      []<typename U>(const RowCopy& c, int64_t width, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(slot_state_update_kernel<U>, stride_grid(c.samples * width, kBlock), kBlock,
                       stream.native(), c, width, static_cast<U*>(b.inputs[0]), b.input<U>(1),
                       b.input<int32_t>(2), b.input<int32_t>(3));
      });
}

std::unique_ptr<Kernel> make_cuda_carried_state(const KernelRequest& request) {
  CarryCall call = carry_call(request.outputs[0], request.inputs[1]);
  call.steps = request.attributes.integer("steps");
  return make_row_kernel(
      call, call.samples,
      []<typename U>(const CarryCall& c, int64_t width, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(carried_state_kernel<U>, stride_grid(c.samples * width, kBlock), kBlock,
                       stream.native(), c, width, b.input<StepState>(0), b.input<U>(1),
                       b.output<U>(0));
      });
}

std::unique_ptr<Kernel> make_cuda_carry_state(const KernelRequest& request) {
  return make_carry_state<true>(request);
}
std::unique_ptr<Kernel> make_cuda_carry_state_in_place(const KernelRequest& request) {
  return make_carry_state<false>(request);
}

std::unique_ptr<Kernel> make_cuda_carried_update(const KernelRequest& request) {
  const auto bytes = static_cast<int64_t>(request.outputs[0].bytes());
  return make_row_kernel(
      RowCopy{1, 1, bytes}, 1,
      []<typename U>(const RowCopy&, int64_t count, const Bindings& b, Stream& stream, U) {
        DLTRAIN_LAUNCH(carried_update_kernel<U>, stride_grid(count, kBlock), kBlock,
                       stream.native(), count, b.input<StepState>(0), b.input<U>(2),
                       b.output<U>(0));
      });
}

}  // namespace dltrain
