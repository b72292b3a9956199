// Element-wise ops, one pass over memory, 16 bytes per thread and step. The op is an argument, not
// a template parameter: the switch is uniform over all threads and hidden by the memory accesses.
#include <algorithm>

#include "cuda/column_sums.cuh"
#include "cuda/elementwise.h"
#include "cuda/makers.h"
#include "cuda/strided.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct ElementwiseCall {
  ElementwiseOp op;
  DType dtype;      // of operands and output
  double p, q;      // the op's numbers (ops/elementwise.h)
  bool accumulate;  // y += f(a, b)
};

// The program of a fused_elementwise op for kernels. Operands 0 … inputs−1 are the inputs, later
// numbers are earlier steps.
struct FusedCall {
  static constexpr int kMaxInputs = 16, kMaxSteps = 64;
  struct Step {
    ElementwiseOp op;
    uint8_t a, b;
    double p, q;
  };
  int inputs = 0, steps = 0;
  // The dtype of every tensor, unless `mixed`: then input i has dtypes[i], and the output has
  // `dtype`.
  DType dtype = DType::f32;
  bool mixed = false;
  DType dtypes[kMaxInputs];
  Step step[kMaxSteps];
  const void* input[kMaxInputs];
  void* output;  // the result of the last step
};

constexpr int kBlock = 256;

template <typename T>
struct Arguments {
  ElementwiseOp op;
  bool accumulate;
  MathOf<T> p, q;
};

// y = f(a, b) of N elements from `at` on. The op is chosen once for all of them.
template <int N, typename T>
__device__ void apply(const Arguments<T>& f, const T* a, const T* b, T* y, int64_t at) {
  using M = MathOf<T>;
  M left[N], right[N], old[N] = {};
  load_elements<T, N>(a, at, left);
  load_elements<T, N>(b, at, right);
  if (f.accumulate) load_elements<T, N>(y, at, old);
  dispatch_elementwise(f.op, [&]<ElementwiseOp op>() {
    DLTRAIN_UNROLL
    for (int j = 0; j < N; ++j) left[j] = elementwise<op, M>(left[j], right[j], f.p, f.q);
  });
  for (int j = 0; j < N; ++j) left[j] = f.accumulate ? old[j] + left[j] : left[j];
  store_elements<T, N>(left, y, at);
}

// `packs` full packs first (0 when an operand is not aligned), then the rest one by one. For unary
// ops b is a.
template <typename T>
__global__ void elementwise_kernel(Arguments<T> f, const T* a, const T* b, T* y, int64_t packs,
                                   int64_t count) {
  sweep_elements<Pack<T>::size>(packs, count, thread_index(), thread_count(),
                                [&]<int N>(int64_t at) { apply<N>(f, a, b, y, at); });
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
    apply<1>(f, a + at_a, b + at_b, y + i, 0);
  }
}

// A thread has the same W columns of several rows, and so the same bias.
template <typename T, int W>
__global__ void bias_activation_kernel(ElementwiseOp op, const T* bias, T* y, int64_t rows,
                                       int64_t columns) {
  using M = MathOf<T>;
  const int64_t column = own_columns<W>();
  if (column >= columns) return;
  M added[W] = {}, value[W];
  if (bias != nullptr) load_columns<W>(bias + column, added);
  for (int64_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows;
       row += static_cast<int64_t>(gridDim.y) * blockDim.y) {
    T* at = y + row * columns + column;
    load_columns<W>(at, value);
    dispatch_elementwise(op, [&]<ElementwiseOp fixed>() {
      DLTRAIN_UNROLL
      for (int j = 0; j < W; ++j) {
        const M x = value[j] + added[j];
        value[j] = elementwise<fixed, M>(x, x, M(0), M(0));
      }
    });
    store_columns<W>(value, at);
  }
}

template <typename From, typename To>
__global__ void cast_kernel(const From* x, To* y, int64_t packs, int64_t count, bool accumulate) {
  sweep_elements<kCastPack<From, To>>(
      packs, count, thread_index(), thread_count(),
      [&]<int N>(int64_t at) { cast_elements<N>(x, y, at, accumulate); });
}

// Interpreter for all programs. The operands of a thread are in local memory (in the cache, for the
// short programs of the fuse pass). vendor/nvrtc_fused.cpp compiles programs instead.
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
    T* output = static_cast<T*>(call.output) + at;
    Pack<T> out;
    for (int j = 0; j < kWidth; ++j) {
      out.v[j] = static_cast<T>(value[call.inputs + call.steps - 1][j]);
    }
    if (whole) {
      *reinterpret_cast<Pack<T>*>(output) = out;
    } else {
      output[0] = out.v[0];
    }
  }
}

__device__ inline float load_mixed(DType dtype, const void* from, int64_t i) {
  if (dtype == DType::bf16) return static_cast<const DeviceBf16*>(from)[i];
  if (dtype == DType::f16) return static_cast<const DeviceF16*>(from)[i];
  return static_cast<const float*>(from)[i];
}

// The same for tensors of several dtypes, one element at a time, in f32.
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
    static_cast<T*>(call.output)[i] = static_cast<T>(value[call.inputs + call.steps - 1]);
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
  // The index of the last loop step must stay below 2³².
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
  bool aligned = is_pack_aligned(call.output);
  for (int k = 0; k < call.inputs; ++k) aligned = aligned && is_pack_aligned(call.input[k]);
  const int64_t packs = aligned ? count / Pack<T>::size : 0;
  DLTRAIN_LAUNCH(fused_kernel<T>, stride_grid(packs > 0 ? packs : count, kBlock), kBlock, stream,
                 call, packs, count);
}

// Calls f with a value of the type that stores `dtype`; does nothing for other dtypes.
template <typename F>
void with_storage(DType dtype, const F& f) {
  if (dtype == DType::i32) return f(int32_t{});
  if (dtype == DType::i64) return f(int64_t{});
  if (dtype == DType::u8) return f(uint8_t{});
  with_floating(dtype, f);
}

// Sets the strides of a dense operand of `shape` within the output: 0 where it is broadcast.
void set_strides(const Shape& out, const Shape& shape, int64_t* stride) {
  const int extra = out.rank() - shape.rank();
  int64_t step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int64_t extent = i < extra ? 1 : shape[i - extra];
    stride[i] = extent == 1 ? 0 : step;
    step *= extent;
  }
}

// Merges adjacent axes that are contiguous for both operands: [rows, C] + [C] has rank 2.
StridedLayout broadcast_layout(const Shape& out, const Shape& a, const Shape& b) {
  int64_t stride[2][StridedLayout::kMaxRank];
  set_strides(out, a, stride[0]);
  set_strides(out, b, stride[1]);
  StridedLayout layout;
  for (int i = 0; i < out.rank(); ++i) {
    if (out[i] == 1) continue;
    const int last = layout.rank - 1;
    const bool merges = last >= 0 && layout.stride[0][last] == stride[0][i] * out[i] &&
                        layout.stride[1][last] == stride[1][i] * out[i];
    const int at = merges ? last : layout.rank++;
    layout.extent[at] = merges ? layout.extent[at] * out[i] : out[i];
    layout.stride[0][at] = stride[0][i];
    layout.stride[1][at] = stride[1][i];
  }
  return layout;
}

std::unique_ptr<Kernel> make_elementwise_kernel(const KernelRequest& request, ElementwiseOp op) {
  const Shape& out = request.outputs[0].shape;
  const ElementwiseNumbers numbers = elementwise_numbers(request.op, request.attributes);
  const ElementwiseCall call{.op = op,
                             .dtype = request.outputs[0].dtype,
                             .p = numbers.p,
                             .q = numbers.q,
                             .accumulate = request.accumulate};
  const bool same_shape = std::all_of(request.inputs.begin(), request.inputs.end(),
                                      [&](const TensorSpec& input) { return input.shape == out; });
  const StridedLayout layout =
      same_shape ? StridedLayout{}
                 : broadcast_layout(out, request.inputs.front().shape, request.inputs.back().shape);
  return make_kernel([=, count = out.elements()](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    const void *first = b.inputs.front(), *second = b.inputs.back();
    with_floating(call.dtype, [&]<typename T>(T) {
      if (same_shape) {
        elementwise_typed<T>(call, first, second, b.outputs[0], count, stream.native());
      } else {
        broadcast_typed<T>(call, layout, first, second, b.outputs[0], stream.native());
      }
    });
  });
}

bool castable(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8;
}

}  // namespace

void launch_bias_activation(ElementwiseOp op, DType dtype, const void* bias, void* y, int64_t rows,
                            int64_t columns, CudaStream stream) {
  if (rows * columns == 0) return;
  with_floating(dtype, [&]<typename T>(T) {
    with_width<T>(rows_in_packs<T>(columns, {bias, y}), [&]<int W>(std::integral_constant<int, W>) {
      const ColumnGrid tiles = ColumnGrid::over_rows(columns, W, rows);
      DLTRAIN_LAUNCH((bias_activation_kernel<T, W>), tiles.grid, tiles.block, stream, op,
                     static_cast<const T*>(bias), static_cast<T*>(y), rows, columns);
    });
  });
}

void launch_cast(DType from, DType to, const void* x, void* y, int64_t count, CudaStream stream,
                 bool accumulate) {
  if (count == 0) return;
  with_storage(from, [&]<typename From>(From) {
    with_storage(to, [&]<typename To>(To) {
      const bool aligned = is_pack_aligned(x) && is_pack_aligned(y);
      const int64_t packs = aligned ? count / kCastPack<From, To> : 0;
      DLTRAIN_LAUNCH((cast_kernel<From, To>), stride_grid(packs > 0 ? packs : count, kBlock),
                     kBlock, stream, static_cast<const From*>(x), static_cast<To*>(y), packs, count,
                     accumulate);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_elementwise(const KernelRequest& request) {
  for (const TensorSpec& input : request.inputs) {
    if (!is_floating(input.dtype) || input.dtype != request.outputs[0].dtype) return nullptr;
  }
  return make_elementwise_kernel(request, elementwise_op(request.op).value());
}

std::unique_ptr<Kernel> make_cuda_broadcast(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return make_elementwise_kernel(request, ElementwiseOp::identity);
}

std::unique_ptr<Kernel> make_cuda_cast(const KernelRequest& request) {
  const DType from = request.inputs[0].dtype, to = request.outputs[0].dtype;
  if (!castable(from) || !castable(to)) return nullptr;
  return make_kernel(
      [from, to, count = request.outputs[0].shape.elements()](const Bindings& b, Stream& stream) {
        launch_cast(from, to, b.inputs[0], b.outputs[0], count, stream.native());
      });
}

std::unique_ptr<Kernel> make_cuda_fused(const KernelRequest& request) {
  const auto steps = parse_fused_program(request.attributes.text("program"));
  if (!is_floating(request.inputs[0].dtype) || request.inputs.size() > FusedCall::kMaxInputs ||
      steps.size() > FusedCall::kMaxSteps) {
    return nullptr;
  }
  FusedCall call{};
  call.inputs = static_cast<int>(request.inputs.size());
  call.steps = static_cast<int>(steps.size());
  call.dtype = request.outputs[0].dtype;
  call.mixed = !fused_dtype(request.inputs, request.outputs);
  for (size_t i = 0; i < request.inputs.size(); ++i) call.dtypes[i] = request.inputs[i].dtype;
  for (size_t i = 0; i < steps.size(); ++i) {
    call.step[i] = {elementwise_op(steps[i].op).value(),
                    static_cast<uint8_t>(steps[i].operands.front()),
                    static_cast<uint8_t>(steps[i].operands.back()), steps[i].p, steps[i].q};
  }
  return make_kernel([call, count = request.inputs[0].shape.elements()](const Bindings& b,
                                                                        Stream& stream) {
    if (count == 0) return;
    FusedCall own = call;
    std::copy(b.inputs.begin(), b.inputs.end(), own.input);
    own.output = b.outputs[0];
    with_floating(own.dtype, [&]<typename T>(T) { fused_typed<T>(own, count, stream.native()); });
  });
}

}  // namespace dltrain
