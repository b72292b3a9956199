// The ops of the update segment over many tensors at once (lib/ops/update.cpp). The arithmetic is
// that of shared/update_rules.h, which the CPU kernels use too.
#include <optional>
#include <type_traits>
#include <utility>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/update_table.h"
#include "shared/make_kernel.h"
#include "shared/moment_codes.h"
#include "tensor/random_rounding.h"

namespace dltrain {
namespace {

struct BatchNormUpdateCall {
  int64_t channels = 0;
  double momentum = 0.1, groups = 1, unbias = 1;
};

constexpr int kBlock = 256;
constexpr int kNormBlock = 1024;

// Calls f (see sweep_elements) for the elements of a chunk, in packs of T if `tensors` are aligned.
template <typename T, typename F>
__device__ void sweep_chunk(int64_t count, std::initializer_list<const void*> tensors, const F& f) {
  uintptr_t any = 0;
  for (const void* tensor : tensors) any |= reinterpret_cast<uintptr_t>(tensor);
  constexpr int kWidth = Pack<T>::size;
  sweep_elements<kWidth>(any % 16 == 0 ? count / kWidth : 0, count, threadIdx.x, kBlock, f);
}

template <typename T>
__global__ void sum_of_squares_kernel(const UpdateChunk* chunks, double* partial) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  const T* gradient = static_cast<const T*>(chunk.role[0]);
  double sum = 0;
  sweep_chunk<T>(chunk.count, {gradient}, [&]<int N>(int64_t at) {
    T value[N];
    load_elements<T, N>(gradient, at, value);
    for (const T g : value) sum += static_cast<double>(g) * static_cast<double>(g);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Returns the sum of `count` partial sums; called by all threads of one block.
__device__ double sum_of(const double* partial, int64_t count) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kNormBlock) sum += partial[i];
  return block_sum(sum);
}

__global__ void finish_norm_kernel(const double* partial, int64_t count, StepState* state) {
  const double sum = sum_of(partial, count);
  if (threadIdx.x == 0) finish_gradient_norm(*state, sum);
}

__global__ void finish_sum_kernel(const double* partial, int64_t count, double* out) {
  const double sum = sum_of(partial, count);
  if (threadIdx.x == 0) *out = sum;
}

__global__ void gradient_norm_of_kernel(StepState* state, const double* sums, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += sums[i];
  finish_gradient_norm(*state, sum);
}

// Updates a chunk of bf16 parameters with stochastic rounding.
template <typename Rule>
__device__ void update_narrow(const UpdateChunk& chunk,
                              const typename Rule::template Factors<float>& f,
                              float* const* tensors, const StepState* state) {
  Bf16* parameter = static_cast<Bf16*>(chunk.role[0]);
  const auto step = static_cast<uint64_t>(state->in.step);
  for (int64_t i = threadIdx.x; i < chunk.count; i += kBlock) {
    const float p = updated_element<Rule>(f, to_f32(parameter[i]), tensors, i);
    const auto index = static_cast<uint64_t>(chunk.first + i);
    const Philox4 block = random_block(state->in.seed, chunk.stream, step, index >> 2);
    parameter[i] = round_at_random(p, element_bits(block, index));
  }
}

// Updates N elements from `at` on.
template <typename Rule, int N, typename T>
__device__ void update_elements(const typename Rule::template Factors<T>& f, T* const* tensors,
                                void* to, DType copy, int64_t at) {
  constexpr int kTensors = Rule::kMoments + 2;
  T own[kTensors][N];
  DLTRAIN_UNROLL
  for (int k = 0; k < kTensors; ++k) load_elements<T, N>(tensors[k], at, own[k]);
  DLTRAIN_UNROLL
  for (int j = 0; j < N; ++j) {
    T m[Rule::kMoments + 1];  // + 1: arrays cannot be empty
    for (int k = 0; k < Rule::kMoments; ++k) m[k] = own[2 + k][j];
    Rule::element(f, own[0][j], f.gradient(own[1][j]), m);
    for (int k = 0; k < Rule::kMoments; ++k) own[2 + k][j] = m[k];
  }
  DLTRAIN_UNROLL
  for (int k = 0; k < kTensors; ++k) {
    if (k != 1) store_elements<T, N>(own[k], tensors[k], at);  // 1: the gradient
  }
  if (to == nullptr) return;
  if (copy == DType::bf16) {
    store_elements<DeviceBf16, N>(own[0], to, at);
  } else {
    store_elements<DeviceF16, N>(own[0], to, at);
  }
}

template <typename T, typename Rule>
__global__ void element_update_kernel(const UpdateChunk* chunks, Rule rule, DType copy, bool rounds,
                                      const StepState* state) {
  using Factors = typename Rule::template Factors<T>;
  __shared__ Factors shared;
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  // Powers and divisions in double: once per block.
  if (threadIdx.x == 0) shared = rule.template factors<T>(*state, chunk.group);
  __syncthreads();
  const Factors f = shared;
  T* tensors[Rule::kMoments + 2];
  for (int k = 0; k < Rule::kMoments + 2; ++k) tensors[k] = static_cast<T*>(chunk.role[k]);
  if constexpr (std::is_same_v<T, float>) {
    if (rounds) {
      update_narrow<Rule>(chunk, f, tensors, state);
      return;
    }
  }
  constexpr int kWidth = Pack<T>::size;
  bool aligned = reinterpret_cast<uintptr_t>(chunk.copy) % (2 * kWidth) == 0;
  for (const T* tensor : tensors) {
    aligned = aligned && reinterpret_cast<uintptr_t>(tensor) % sizeof(Pack<T>) == 0;
  }
  sweep_elements<kWidth>(
      aligned ? chunk.count / kWidth : 0, chunk.count, threadIdx.x, kBlock,
      [&]<int N>(int64_t at) { update_elements<Rule, N>(f, tensors, chunk.copy, copy, at); });
}

// Moments in 8 bits. A warp updates a block, a lane 8 elements of it: N at a time, which follow
// each other. Calls f(first of N elements of the lane, its place in the chunk).
constexpr int kLaneElements = kMomentBlock / kWarp;

template <int N, typename F>
__device__ void each_of_lane(int64_t block, int64_t count, const F& f) {
  DLTRAIN_UNROLL
  for (int j = 0; j < kLaneElements; j += N) {
    const int64_t at = block * kMomentBlock + j * kWarp + threadIdx.x % kWarp * N;
    if (at < count) f(j, at);
  }
}

// P: the type of parameters. Elements beyond the end of the chunk are zero and are not stored.
template <typename Rule, int N, typename P>
__device__ void update_block(const typename Rule::template Factors<float>& f,
                             const NarrowMomentCodes* tables, const UpdateChunk& chunk, DType copy,
                             const StepState& state, int64_t block) {
  float p[kLaneElements] = {}, g[kLaneElements] = {}, m[Rule::kMoments][kLaneElements];
  uint8_t codes[Rule::kMoments][kLaneElements];
  const auto scale = [&](int k) -> float& {
    return static_cast<float*>(chunk.role[2 + Rule::kMoments + k])[block];
  };
  for (int k = 0; k < Rule::kMoments; ++k) {
    for (uint8_t& code : codes[k]) code = static_cast<uint8_t>(tables[k].zero);
  }
  each_of_lane<N>(block, chunk.count, [&](int j, int64_t at) {
    load_elements<P, N>(chunk.role[0], at, p + j);
    load_elements<float, N>(chunk.role[1], at, g + j);
    for (int k = 0; k < Rule::kMoments; ++k) {
      load_elements<uint8_t, N>(chunk.role[2 + k], at, codes[k] + j);
    }
  });
  DLTRAIN_UNROLL
  for (int j = 0; j < kLaneElements; ++j) {
    float own[Rule::kMoments];
    for (int k = 0; k < Rule::kMoments; ++k) own[k] = tables[k].value[codes[k][j]] * scale(k);
    Rule::element(f, p[j], f.gradient(g[j]), own);
    for (int k = 0; k < Rule::kMoments; ++k) m[k][j] = own[k];
  }
  for (int k = 0; k < Rule::kMoments; ++k) {
    float most = 0;
    for (const float x : m[k]) most = fmaxf(most, fabsf(x));
    most = warp_max(most);
    for (int j = 0; j < kLaneElements; ++j) {
      codes[k][j] = tables[k].nearest(m[k][j] / (most > 0 ? most : 1));
    }
    if (threadIdx.x % kWarp == 0) scale(k) = most;  // every lane has read it: warp_max waits
  }
  each_of_lane<N>(block, chunk.count, [&](int j, int64_t at) {
    DLTRAIN_UNROLL
    for (int i = 0; i < N && std::is_same_v<P, DeviceBf16>; ++i) {
      const auto index = static_cast<uint64_t>(chunk.first + at + i);
      const Philox4 random = random_block(state.in.seed, chunk.stream,
                                          static_cast<uint64_t>(state.in.step), index >> 2);
      p[j + i] = to_f32(round_at_random(p[j + i], element_bits(random, index)));
    }
    store_elements<P, N>(p + j, chunk.role[0], at);
    for (int k = 0; k < Rule::kMoments; ++k) {
      store_elements<uint8_t, N>(codes[k] + j, chunk.role[2 + k], at);
    }
    if (chunk.copy == nullptr) return;
    if (copy == DType::bf16) {
      store_elements<DeviceBf16, N>(p + j, chunk.copy, at);
    } else {
      store_elements<DeviceF16, N>(p + j, chunk.copy, at);
    }
  });
}

template <typename Rule, typename P>
__global__ void block_update_kernel(const UpdateChunk* chunks, Rule rule, DType copy,
                                    const NarrowMomentCodes* tables, const StepState* state) {
  using Factors = typename Rule::template Factors<float>;
  __shared__ Factors f;
  __shared__ NarrowMomentCodes own[Rule::kMoments];
  if (state->out.finite == 0) return;
  constexpr size_t kWords = Rule::kMoments * (sizeof(NarrowMomentCodes) / sizeof(uint4));
  for (size_t i = threadIdx.x; i < kWords; i += kBlock) {
    reinterpret_cast<uint4*>(own)[i] = reinterpret_cast<const uint4*>(tables)[i];
  }
  const UpdateChunk& chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) f = rule.template factors<float>(*state, chunk.group);
  __syncthreads();
  uintptr_t any = reinterpret_cast<uintptr_t>(chunk.copy);
  for (int k = 0; k < 2 + Rule::kMoments; ++k) any |= reinterpret_cast<uintptr_t>(chunk.role[k]);
  for (int64_t block = threadIdx.x / kWarp; block * kMomentBlock < chunk.count;
       block += kBlock / kWarp) {
    if (any % 16 == 0 && (block + 1) * kMomentBlock <= chunk.count) {
      update_block<Rule, kLaneElements, P>(f, own, chunk, copy, *state, block);
    } else {
      update_block<Rule, 1, P>(f, own, chunk, copy, *state, block);
    }
  }
}

template <typename T, typename Copy>
__global__ void low_precision_update_kernel(const UpdateChunk* chunks) {
  const UpdateChunk& chunk = chunks[blockIdx.x];
  const T* parameter = static_cast<const T*>(chunk.role[0]);
  Copy* copy = static_cast<Copy*>(chunk.role[1]);
  sweep_chunk<Copy>(chunk.count, {parameter, copy},
                    [&]<int N>(int64_t at) { cast_elements<N>(parameter, copy, at); });
}

template <typename T>
__global__ void ema_update_kernel(const UpdateChunk* chunks, EmaAttributes attributes,
                                  const StepState* state) {
  if (state->out.finite == 0) return;
  const UpdateChunk& chunk = chunks[blockIdx.x];
  const T share = static_cast<T>(ema_share(attributes, *state));
  const T* source = static_cast<const T*>(chunk.role[0]);
  T* average = static_cast<T*>(chunk.role[1]);
  sweep_chunk<T>(chunk.count, {source, average}, [&]<int N>(int64_t at) {
    T value[N], old[N];
    load_elements<T, N>(source, at, value);
    load_elements<T, N>(average, at, old);
    for (int j = 0; j < N; ++j) {
      // Assign at the start: an average that is still NaN must not stay NaN.
      value[j] = share == T(1) ? value[j] : old[j] + share * (value[j] - old[j]);
    }
    store_elements<T, N>(value, average, at);
  });
}

__global__ void clip_percentile_kernel(ClipPercentileAttributes attributes, StepState* state,
                                       float* norms, int64_t window) {
  clip_percentile(attributes, *state, norms, window);
}

__global__ void running_norm_kernel(RunningNorm part, StepState* state, const double* squares,
                                    double* previous) {
  running_norm(part, *state, *squares, previous);
}

template <typename T>
__global__ void batch_norm_update_kernel(BatchNormUpdateCall c, const StepState* state, T* mean,
                                         T* variance, const T* mean_sum, const T* variance_sum) {
  const int64_t k = thread_index();
  if (k >= c.channels || state->out.finite == 0) return;
  mean[k] = running_statistic(mean[k], mean_sum[k], c.momentum, c.groups, 1.0);
  variance[k] = running_statistic(variance[k], variance_sum[k], c.momentum, c.groups, c.unbias);
}

// `weight` is that of the loss, if it is `given`.
__global__ void loss_seed_kernel(const StepState* state, const double* loss, double* seed,
                                 bool given, double weight) {
  // 0 · loss is 0 for a finite loss and NaN for any other.
  *seed = state->out.loss_scale * (given ? weight : state->in.inverse_valid) +
          (loss != nullptr ? 0.0 * *loss : 0.0);
}

void partial_sums(const UpdateTable& table, double* partial, CudaStream stream) {
  if (table.count == 0) return;
  const auto grid = static_cast<unsigned>(table.count);
  if (table.dtype == DType::f64) {
    DLTRAIN_LAUNCH(sum_of_squares_kernel<double>, grid, kBlock, stream, table.chunks, partial);
  } else {
    DLTRAIN_LAUNCH(sum_of_squares_kernel<float>, grid, kBlock, stream, table.chunks, partial);
  }
}

struct TableOptions {
  size_t first = 1, roles = 1;  // of the table
  size_t scratch = 0;           // bytes of the workspace for each chunk
  bool grouped = false;         // chunks contain the settings of their parameter groups
};

// An op of launches over one table: run(table, bindings, stream).
template <typename Run>
std::unique_ptr<Kernel> make_table_update(const KernelRequest& request, const TableOptions& options,
                                          const Run& run) {
  const ChunkTable chunks(request, options.first, options.roles);
  std::optional<UpdateGroups> groups;
  if (options.grouped) groups.emplace(request.attributes);
  return make_prepared_kernel(
      [chunks, groups](const Bindings& b) { return chunks.bound(b, groups ? &*groups : nullptr); },
      [run](const ChunkTable::Bound& bound, const Bindings& b, Stream& stream) {
        run(bound.table, b, stream.native());
      },
      static_cast<size_t>(chunks.chunks()) * options.scratch);
}

}  // namespace

// (state, gradients) → state.out.
std::unique_ptr<Kernel> make_cuda_gradient_norm(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  return make_table_update(request, {.scratch = sizeof(double)},
                           [](const UpdateTable& table, const Bindings& b, CudaStream stream) {
                             auto* partial = static_cast<double*>(b.workspace);
                             partial_sums(table, partial, stream);
                             DLTRAIN_LAUNCH(finish_norm_kernel, 1u, kNormBlock, stream, partial,
                                            table.count, b.output<StepState>(0));
                           });
}

std::unique_ptr<Kernel> make_cuda_sum_of_squares(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
  return make_table_update(request, {.first = 0, .scratch = sizeof(double)},
                           [](const UpdateTable& table, const Bindings& b, CudaStream stream) {
                             auto* partial = static_cast<double*>(b.workspace);
                             partial_sums(table, partial, stream);
                             DLTRAIN_LAUNCH(finish_sum_kernel, 1u, kNormBlock, stream, partial,
                                            table.count, b.output<double>(0));
                           });
}

std::unique_ptr<Kernel> make_cuda_gradient_norm_of(const KernelRequest& request) {
  return make_kernel([count = request.inputs[1].shape[0]](const Bindings& b, Stream& stream) {
    DLTRAIN_LAUNCH(gradient_norm_of_kernel, 1u, 1u, stream.native(),
                   static_cast<StepState*>(b.inputs[0]), b.input<double>(1), count);
  });
}

// The same with moments in 8 bits. Roles: parameter, gradient, codes, scales.
template <typename Rule>
std::unique_ptr<Kernel> make_block_update(const KernelRequest& request, const Rule& rule) {
  struct Prepared {
    ChunkTable::Bound chunks;
    DeviceTable<NarrowMomentCodes> tables;
  };
  const ChunkTable chunks(request, 1, 2 + 2 * Rule::kMoments);
  return make_prepared_kernel(
      [chunks, groups = UpdateGroups(request.attributes),
       &device = request.device](const Bindings& b) {
        std::vector<NarrowMomentCodes> tables(2);
        for (size_t k = 0; k < 2; ++k) fill_moment_codes(tables[k], k == 0);
        return Prepared{chunks.bound(b, &groups), {device, tables}};
      },
      [rule](const Prepared& prepared, const Bindings& b, Stream& stream) {
        const UpdateTable& table = prepared.chunks.table;
        const NarrowMomentCodes* codes = prepared.tables.data();
        if (table.count == 0) return;
        const auto launch = [&]<typename P>(P) {
          DLTRAIN_LAUNCH((block_update_kernel<Rule, P>), static_cast<unsigned>(table.count), kBlock,
                         stream.native(), table.chunks, rule, table.copy, codes,
                         b.input<StepState>(0));
        };
        table.rounds ? launch(DeviceBf16{}) : launch(float{});
      });
}

// An optimizer of shared/element_rules.h. Roles: parameter, gradient, the rule's moments.
std::unique_ptr<Kernel> make_cuda_element_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  if (request.attributes.has("block") && request.inputs[1].dtype == DType::f64) return nullptr;
  return with_element_rule(request.op, request.attributes, [&]<typename Rule>(const Rule& rule) {
    if constexpr (kHas8BitMoments<Rule>) {
      if (request.attributes.has("block")) return make_block_update(request, rule);
    }
    return make_table_update(
        request, {.roles = Rule::kMoments + 2, .grouped = true},
        [rule](const UpdateTable& table, const Bindings& b, CudaStream stream) {
          if (table.count == 0) return;
          with_wide(table.dtype, [&]<typename T>(T) {
            DLTRAIN_LAUNCH((element_update_kernel<T, Rule>), static_cast<unsigned>(table.count),
                           kBlock, stream, table.chunks, rule, table.copy, table.rounds,
                           b.input<StepState>(0));
          });
        });
  });
}

// Roles: parameter, copy.
std::unique_ptr<Kernel> make_cuda_low_precision_update(const KernelRequest& request) {
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  const SpecSpan parameters = request.inputs.subspan(1, count);
  if (count == 0) return nullptr;
  const DType copy = request.outputs[0].dtype;
  for (size_t i = 0; i < count; ++i) {
    if (parameters[i].dtype != parameters[0].dtype || request.outputs[i].dtype != copy) {
      return nullptr;
    }
  }
  return make_table_update(
      request, {.roles = 2}, [copy](const UpdateTable& table, const Bindings&, CudaStream stream) {
        if (table.count == 0) return;
        with_floating(table.dtype, [&]<typename T>(T) {
          with_floating(copy, [&]<typename Copy>(Copy) {
            if constexpr (sizeof(T) >= 4 && sizeof(Copy) == 2) {
              DLTRAIN_LAUNCH((low_precision_update_kernel<T, Copy>),
                             static_cast<unsigned>(table.count), kBlock, stream, table.chunks);
            }
          });
        });
      });
}

// Roles: source, average.
std::unique_ptr<Kernel> make_cuda_ema_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  return make_table_update(request, {.roles = 2},
                           [attributes = ema_attributes(request.attributes)](
                               const UpdateTable& table, const Bindings& b, CudaStream stream) {
                             if (table.count == 0) return;
                             with_wide(table.dtype, [&]<typename T>(T) {
                               DLTRAIN_LAUNCH(ema_update_kernel<T>,
                                              static_cast<unsigned>(table.count), kBlock, stream,
                                              table.chunks, attributes, b.input<StepState>(0));
                             });
                           });
}

std::unique_ptr<Kernel> make_cuda_clip_percentile(const KernelRequest& request) {
  const int64_t window = request.inputs[1].shape.elements();
  return make_kernel([window, attributes = clip_percentile_attributes(request.attributes)](
                         const Bindings& b, Stream& stream) {
    DLTRAIN_LAUNCH(clip_percentile_kernel, 1u, 1u, stream.native(), attributes,
                   static_cast<StepState*>(b.inputs[0]), static_cast<float*>(b.inputs[1]), window);
  });
}

std::unique_ptr<Kernel> make_cuda_running_norm(const KernelRequest& request) {
  return make_kernel([part = running_norm_part(request.attributes),
                      clips = request.inputs.size() > 2](const Bindings& b, Stream& stream) {
    DLTRAIN_LAUNCH(running_norm_kernel, 1u, 1u, stream.native(), part,
                   static_cast<StepState*>(b.inputs[0]), b.input<double>(1),
                   clips ? static_cast<double*>(b.inputs[2]) : nullptr);
  });
}

// (state, mean, variance, the sums of both), in place.
std::unique_ptr<Kernel> make_cuda_batch_norm_update(const KernelRequest& request) {
  if (!is_wide_update(request)) return nullptr;
  const BatchNormUpdateCall call{.channels = request.inputs[1].shape.elements(),
                                 .momentum = request.attributes.number("momentum", 0.1),
                                 .groups = request.attributes.number("groups", 1),
                                 .unbias = request.attributes.number("unbias", 1)};
  return make_kernel([call, dtype = request.inputs[1].dtype](const Bindings& b, Stream& stream) {
    if (call.channels == 0) return;
    with_wide(dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(batch_norm_update_kernel<T>,
                     static_cast<unsigned>(divide_up(call.channels, kBlock)), kBlock,
                     stream.native(), call, b.input<StepState>(0), static_cast<T*>(b.inputs[1]),
                     static_cast<T*>(b.inputs[2]), b.input<T>(3), b.input<T>(4));
    });
  });
}

// (state, optional loss) → the seed: NaN for a loss that is not finite.
std::unique_ptr<Kernel> make_cuda_loss_seed(const KernelRequest& request) {
  const std::vector<double> weights = request.attributes.numbers("weights");
  const auto count = static_cast<size_t>(request.outputs[0].shape[0]);
  return make_kernel([=](const Bindings& b, Stream& stream) {
    for (size_t i = 0; i < count; ++i) {
      const auto* loss = b.input<double>(1);
      DLTRAIN_LAUNCH(loss_seed_kernel, 1u, 1u, stream.native(), b.input<StepState>(0),
                     loss == nullptr ? loss : loss + i, b.output<double>(0) + i, !weights.empty(),
                     weights.empty() ? 0.0 : weights[i]);
    }
  });
}

}  // namespace dltrain
