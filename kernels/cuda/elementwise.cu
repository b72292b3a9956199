// Element-wise ops, one pass over memory, 16 bytes a thread and step. The op is an argument, not a
// template parameter: the switch is the same for all threads and hides behind the memory accesses.
#include "cuda/device_code.cuh"
#include "cuda/elementwise.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename T>
struct Arguments {
  ElementwiseOp op;
  bool accumulate;
  MathOf<T> p, q;
};

template <typename T>
__device__ T apply(const Arguments<T>& f, T a, T b, T old) {
  using M = MathOf<T>;
  const M y = elementwise<M>(f.op, static_cast<M>(a), static_cast<M>(b), f.p, f.q);
  return static_cast<T>(f.accumulate ? static_cast<M>(old) + y : y);
}

// `packs` whole packs first (0 when an operand is not aligned), then the rest one by one. For unary
// ops b is a.
template <typename T>
__global__ void elementwise_kernel(Arguments<T> f, const T* a, const T* b, T* y, int64_t packs,
                                   int64_t count) {
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    const Pack<T> pa = reinterpret_cast<const Pack<T>*>(a)[i];
    const Pack<T> pb = b == a ? pa : reinterpret_cast<const Pack<T>*>(b)[i];
    Pack<T> old{};
    if (f.accumulate) old = reinterpret_cast<const Pack<T>*>(y)[i];
    Pack<T> out;
    for (int j = 0; j < Pack<T>::size; ++j) out.v[j] = apply(f, pa.v[j], pb.v[j], old.v[j]);
    reinterpret_cast<Pack<T>*>(y)[i] = out;
  }
  for (int64_t i = packs * Pack<T>::size + thread_index(); i < count; i += thread_count()) {
    y[i] = apply(f, a[i], b[i], f.accumulate ? y[i] : T(0));
  }
}

// Index is uint32_t where it suffices: 64-bit division is several times slower.
template <typename T, typename Index>
__global__ void broadcast_kernel(Arguments<T> f, StridedLayout layout, const T* a, const T* b, T* y,
                                 Index count) {
  const Index step = static_cast<Index>(thread_count());
  for (Index i = static_cast<Index>(thread_index()); i < count; i += step) {
    Index rest = i;
    int64_t at_a = 0, at_b = 0;
    for (int axis = layout.rank - 1; axis >= 0; --axis) {
      const Index extent = static_cast<Index>(layout.extent[axis]);
      const Index index = rest % extent;
      rest /= extent;
      at_a += static_cast<int64_t>(index) * layout.stride[0][axis];
      at_b += static_cast<int64_t>(index) * layout.stride[1][axis];
    }
    y[i] = apply(f, a[at_a], b[at_b], f.accumulate ? y[i] : T(0));
  }
}

template <typename T>
__global__ void bias_activation_kernel(ElementwiseOp op, const T* bias, T* y, int64_t count,
                                       int64_t columns) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const M x = static_cast<M>(y[i]) + (bias == nullptr ? M(0) : static_cast<M>(bias[i % columns]));
    y[i] = static_cast<T>(elementwise<M>(op, x, x, M(0), M(0)));
  }
}

template <typename From, typename To>
__global__ void cast_kernel(const From* x, To* y, int64_t count, bool accumulate) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const To value = static_cast<To>(x[i]);
    y[i] = accumulate ? static_cast<To>(y[i] + value) : value;
  }
}

// One interpreter for every program. The operands of a thread lie in local memory (in the cache,
// for the short programs that the fuse pass makes); programs compiled for the GPU are a later row
// of the kernel table.
template <typename T>
__global__ void fused_kernel(FusedCall call, int64_t packs, int64_t count) {
  using M = MathOf<T>;
  constexpr int kWidth = Pack<T>::size;
  M value[FusedCall::kMaxInputs + FusedCall::kMaxSteps][kWidth];
  const int64_t loose = count - packs * kWidth;  // elements after the packs, one a loop step
  for (int64_t i = thread_index(); i < packs + loose; i += thread_count()) {
    const bool whole = i < packs;
    const int64_t at = whole ? i * kWidth : packs * kWidth + (i - packs);
    for (int k = 0; k < call.inputs; ++k) {
      const T* input = static_cast<const T*>(call.input[k]) + at;
      Pack<T> in{};
      if (whole) {
        in = *reinterpret_cast<const Pack<T>*>(input);
      } else {
        in.v[0] = input[0];
      }
      for (int j = 0; j < kWidth; ++j) value[k][j] = static_cast<M>(in.v[j]);
    }
    for (int k = 0; k < call.steps; ++k) {
      const FusedCall::Step& step = call.step[k];
      for (int j = 0; j < kWidth; ++j) {
        value[call.inputs + k][j] = elementwise<M>(step.op, value[step.a][j], value[step.b][j],
                                                   static_cast<M>(step.p), static_cast<M>(step.q));
      }
    }
    for (int k = 0; k < call.results; ++k) {
      T* output = static_cast<T*>(call.output[k]) + at;
      Pack<T> out;
      for (int j = 0; j < kWidth; ++j) out.v[j] = static_cast<T>(value[call.result[k]][j]);
      if (whole) {
        *reinterpret_cast<Pack<T>*>(output) = out;
      } else {
        output[0] = out.v[0];
      }
    }
  }
}

__device__ inline float load_mixed(DType dtype, const void* from, int64_t i) {
  if (dtype == DType::bf16) return static_cast<const DeviceBf16*>(from)[i];
  if (dtype == DType::f16) return static_cast<const DeviceF16*>(from)[i];
  return static_cast<const float*>(from)[i];
}

// The same over tensors of several dtypes, an element at a time, in f32.
template <typename T>
__global__ void mixed_kernel(FusedCall call, int64_t count) {
  float value[FusedCall::kMaxInputs + FusedCall::kMaxSteps];
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    for (int k = 0; k < call.inputs; ++k) value[k] = load_mixed(call.dtypes[k], call.input[k], i);
    for (int k = 0; k < call.steps; ++k) {
      const FusedCall::Step& step = call.step[k];
      value[call.inputs + k] =
          elementwise<float>(step.op, value[step.a], value[step.b], static_cast<float>(step.p),
                             static_cast<float>(step.q));
    }
    for (int k = 0; k < call.results; ++k) {
      static_cast<T*>(call.output[k])[i] = static_cast<T>(value[call.result[k]]);
    }
  }
}

template <typename T>
Arguments<T> arguments(const ElementwiseCall& call) {
  return {call.op, call.accumulate, static_cast<MathOf<T>>(call.p), static_cast<MathOf<T>>(call.q)};
}

template <typename T>
void elementwise_typed(const ElementwiseCall& call, const void* a, const void* b, void* y,
                       int64_t count, CudaStream stream) {
  const void* second = elementwise_operands(call.op) == 2 ? b : a;
  const bool aligned = is_pack_aligned(a) && is_pack_aligned(second) && is_pack_aligned(y);
  const int64_t packs = aligned ? count / Pack<T>::size : 0;
  DLTRAIN_LAUNCH(elementwise_kernel<T>, stride_grid(packs > 0 ? packs : count, kBlock), kBlock,
                 stream, arguments<T>(call), static_cast<const T*>(a),
                 static_cast<const T*>(second), static_cast<T*>(y), packs, count);
}

template <typename T>
void broadcast_typed(const ElementwiseCall& call, const StridedLayout& layout, const void* a,
                     const void* b, void* y, CudaStream stream) {
  int64_t count = 1;
  for (int i = 0; i < layout.rank; ++i) count *= layout.extent[i];
  if (count == 0) return;
  const T* ta = static_cast<const T*>(a);
  const T* tb = elementwise_operands(call.op) == 2 ? static_cast<const T*>(b) : ta;
  const unsigned grid = stride_grid(count, kBlock);
  // The last loop step must not pass 2³².
  if (count < (int64_t{1} << 31)) {
    DLTRAIN_LAUNCH((broadcast_kernel<T, uint32_t>), grid, kBlock, stream, arguments<T>(call),
                   layout, ta, tb, static_cast<T*>(y), static_cast<uint32_t>(count));
  } else {
    DLTRAIN_LAUNCH((broadcast_kernel<T, uint64_t>), grid, kBlock, stream, arguments<T>(call),
                   layout, ta, tb, static_cast<T*>(y), static_cast<uint64_t>(count));
  }
}

template <typename T>
void fused_typed(const FusedCall& call, int64_t count, CudaStream stream) {
  if (call.mixed) {
    DLTRAIN_LAUNCH(mixed_kernel<T>, stride_grid(count, kBlock), kBlock, stream, call, count);
    return;
  }
  bool aligned = true;
  for (int k = 0; k < call.inputs; ++k) aligned = aligned && is_pack_aligned(call.input[k]);
  for (int k = 0; k < call.results; ++k) aligned = aligned && is_pack_aligned(call.output[k]);
  const int64_t packs = aligned ? count / Pack<T>::size : 0;
  DLTRAIN_LAUNCH(fused_kernel<T>, stride_grid(packs > 0 ? packs : count, kBlock), kBlock, stream,
                 call, packs, count);
}

// Calls f with a null pointer of the type that stores `dtype`.
template <typename F>
void with_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::i32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::i64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::u8:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::bf16:
      return f(static_cast<DeviceBf16*>(nullptr));
    case DType::f16:
      return f(static_cast<DeviceF16*>(nullptr));
    default:  // the Kernel class serves no others
      return;
  }
}

}  // namespace

void launch_elementwise(const ElementwiseCall& call, const void* a, const void* b, void* y,
                        int64_t count, CudaStream stream) {
  if (count == 0) return;
  with_floating(call.dtype,
                [&]<typename T>(T) { elementwise_typed<T>(call, a, b, y, count, stream); });
}

void launch_broadcast(const ElementwiseCall& call, const StridedLayout& layout, const void* a,
                      const void* b, void* y, CudaStream stream) {
  with_floating(call.dtype,
                [&]<typename T>(T) { broadcast_typed<T>(call, layout, a, b, y, stream); });
}

void launch_bias_activation(ElementwiseOp op, DType dtype, const void* bias, void* y, int64_t rows,
                            int64_t columns, CudaStream stream) {
  const int64_t count = rows * columns;
  if (count == 0) return;
  with_floating(dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(bias_activation_kernel<T>, stride_grid(count, kBlock), kBlock, stream, op,
                   static_cast<const T*>(bias), static_cast<T*>(y), count, columns);
  });
}

void launch_cast(DType from, DType to, const void* x, void* y, int64_t count, CudaStream stream,
                 bool accumulate) {
  if (count == 0) return;
  with_storage(from, [&](auto* from_type) {
    with_storage(to, [&](auto* to_type) {
      using From = std::remove_pointer_t<decltype(from_type)>;
      using To = std::remove_pointer_t<decltype(to_type)>;
      DLTRAIN_LAUNCH((cast_kernel<From, To>), stride_grid(count, kBlock), kBlock, stream,
                     static_cast<const From*>(x), static_cast<To*>(y), count, accumulate);
    });
  });
}

void launch_fused(const FusedCall& call, int64_t count, CudaStream stream) {
  if (count == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) { fused_typed<T>(call, count, stream); });
}

}  // namespace dltrain
