// layer_norm and rms_norm over x [rows, columns] and their gradients (lib/ops/layer_norm.cpp has
// the formulas). Weight, bias and statistics have the accumulation dtype of x.
//
// First the mean, then the deviations from it in a second pass over the row, which is then in the
// cache: no cancellation. The backward is one pass over memory: a block has a chunk of rows, and
// each of its threads the same columns of all of them, so it adds their parts of dweight and dbias
// in registers. The sums of the chunks are then added in order and in double.
#include <algorithm>
#include <cmath>

#include "cuda/async_copy.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct RowNormCall {
  DType dtype, low;  // of x, and of the tensors that are not in this dtype
  int64_t rows, columns;
  double epsilon;
  bool centred;  // layer_norm; false: rms_norm, which has no mean and no bias
};

RowNormCall row_norm_call(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const int64_t columns = x.shape[-1];
  RowNormCall c{.dtype = x.dtype,
                .low = x.dtype,
                .rows = columns == 0 ? 0 : x.shape.elements() / columns,
                .columns = columns,
                .epsilon = request.attributes.number("epsilon", 1e-5),
                .centred = request.op.starts_with("layer_norm")};
  for (const SpecSpan list : {request.inputs, request.outputs}) {
    for (const TensorSpec& spec : list) {
      if (is_low_precision(spec.dtype)) c.low = spec.dtype;
    }
  }
  return c;
}

// Calls f with values of the types that store x and the tensors in `low`.
template <typename F>
void with_norm_types(const RowNormCall& c, const F& f) {
  if (c.dtype != DType::f32 || c.low == DType::f32) {
    return with_floating(c.dtype, [&](auto x) { f(x, x); });
  }
  c.low == DType::bf16 ? f(float{}, DeviceBf16{}) : f(float{}, DeviceF16{});
}

// A tensor of one of two dtypes, or none.
template <typename T, typename L>
struct Either {
  T* wide = nullptr;
  L* low = nullptr;

  Either(void* data, DType dtype, const RowNormCall& c) {
    if (dtype == c.dtype) {
      wide = static_cast<T*>(data);
    } else {
      low = static_cast<L*>(data);
    }
  }
  __device__ explicit operator bool() const { return wide != nullptr || low != nullptr; }
  template <int W>
  __device__ void load(int64_t at, MathOf<T>* to) const {
    wide != nullptr ? load_elements<T, W>(wide, at, to) : load_elements<L, W>(low, at, to);
  }
  // Bytes of W elements.
  template <int W>
  DLTRAIN_HD int bytes() const {
    return W * static_cast<int>(wide != nullptr ? sizeof(T) : sizeof(L));
  }
  // Queues a copy of W elements, at least 8 bytes, and reads what has come.
  template <int W>
  __device__ void fetch(int64_t at, unsigned char* shared) const {
    if constexpr (W * sizeof(T) == 16) {
      if (wide != nullptr) return copy_async<16>(shared, wide + at);
    }
    if constexpr (W * sizeof(L) >= 8) copy_async<W * sizeof(L)>(shared, low + at);
  }
  template <int W>
  __device__ void fetched(const unsigned char* shared, MathOf<T>* to) const {
    wide != nullptr ? shared_elements<T, W>(shared, to) : shared_elements<L, W>(shared, to);
  }
  template <int W>
  __device__ void store(const MathOf<T>* from, int64_t at) const {
    if (wide != nullptr) store_elements<T, W>(from, wide, at);
    if (low != nullptr) store_elements<L, W>(from, low, at);
  }
};

template <typename T, typename L>
struct NormForward {
  using M = MathOf<T>;
  const T* x;
  Either<T, L> delta, y;
  const M *weight, *bias;
  T *sum, *wide_y;
  M *mean, *rstd;
  int64_t rows, columns;
  M epsilon;
};

// kPacks: the packs of columns of a thread, which it reads once and keeps in registers; 0: any
// number, read anew in every pass over the row.
template <typename T, typename L, int W, int kThreads, int kPacks>
__global__ void row_norm_kernel(NormForward<T, L> a) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= a.rows) return;  // uniform over a warp
  const int64_t at = row * a.columns, first = own_lane<kThreads>() * W, step = kThreads * W;
  // Reads W values of x, or of x + delta as it is stored.
  const auto load = [&](int64_t c, M* v) {
    M added[W];
    load_elements<T, W>(a.x, at + c, v);
    if (a.delta) {
      a.delta.template load<W>(at + c, added);
      for (int j = 0; j < W; ++j) v[j] = static_cast<M>(static_cast<T>(v[j] + added[j]));
    }
  };
  M kept[kPacks > 0 ? kPacks : 1][W];
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * step < a.columns) load(first + i * step, kept[i]);
  }
  // Calls f(column, W values) for the columns of this thread.
  const auto sweep = [&](const auto& f) {
    if constexpr (kPacks > 0) {
      for (int i = 0; i < kPacks; ++i) {
        if (first + i * step < a.columns) f(first + i * step, kept[i]);
      }
    } else {
      for (int64_t c = first; c < a.columns; c += step) {
        load(c, kept[0]);
        f(c, kept[0]);
      }
    }
  };
  const M count = static_cast<M>(a.columns);
  M own_mean = 0, squares = 0;
  if (a.mean != nullptr) {
    sweep([&](int64_t, const M* v) {
      for (int j = 0; j < W; ++j) own_mean += v[j];
    });
    own_mean = row_sum<kThreads>(own_mean) / count;
  }
  sweep([&](int64_t, const M* v) {
    for (int j = 0; j < W; ++j) squares += (v[j] - own_mean) * (v[j] - own_mean);
  });
  const M scale = M(1) / std::sqrt(row_sum<kThreads>(squares) / count + a.epsilon);
  sweep([&](int64_t c, const M* v) {
    M y[W], factor[W];
    for (int j = 0; j < W; ++j) y[j] = (v[j] - own_mean) * scale;
    if (a.weight != nullptr) {
      load_elements<M, W>(a.weight, c, factor);
      for (int j = 0; j < W; ++j) y[j] *= factor[j];
    }
    if (a.bias != nullptr) {
      load_elements<M, W>(a.bias, c, factor);
      for (int j = 0; j < W; ++j) y[j] += factor[j];
    }
    a.y.template store<W>(y, at + c);
    if (a.sum != nullptr) store_elements<T, W>(v, a.sum, at + c);
    if (a.wide_y != nullptr) store_elements<T, W>(y, a.wide_y, at + c);
  });
  if (own_lane<kThreads>() != 0) return;
  if (a.mean != nullptr) a.mean[row] = own_mean;
  a.rstd[row] = scale;
}

// A thread keeps at most kKept elements of its row.
template <int W, typename T, typename L>
void launch_norm(const NormForward<T, L>& a, CudaStream stream) {
  constexpr int kKept = 32, kMost = kKept / W;
  const auto launch = [&]<int kThreads>(std::integral_constant<int, kThreads>) {
    [[maybe_unused]] const int64_t packs = divide_up(a.columns, W * kThreads);
    const auto with = [&]<int kPacks>(std::integral_constant<int, kPacks>) {
      DLTRAIN_LAUNCH((row_norm_kernel<T, L, W, kThreads, kPacks>),
                     static_cast<unsigned>(divide_up(a.rows, kRowBlock / kThreads)), kRowBlock,
                     stream, a);
    };
    if constexpr (W > 1) {
      if (packs <= kMost / 4) return with(std::integral_constant<int, kMost / 4>{});
      if (packs <= kMost / 2) return with(std::integral_constant<int, kMost / 2>{});
      if (packs <= kMost) return with(std::integral_constant<int, kMost>{});
    }
    with(std::integral_constant<int, 0>{});
  };
  a.columns <= kWarpRow ? launch(std::integral_constant<int, kWarp>{})
                        : launch(std::integral_constant<int, kRowBlock>{});
}

template <typename T, typename L>
struct NormBackward {
  using M = MathOf<T>;
  const T* x;
  Either<T, L> dy;
  const M *weight, *mean, *rstd;
  const T* residual;
  bool to_dy;  // the residual is added to dy, not to dx
  T* dx;
  L* low_dx;
  M* partial;  // [chunks][2][columns]: Σ dy·x̂ and Σ dy over the rows of a chunk; or nullptr
  int64_t rows, columns, chunk;
};

constexpr int kNormThreads = 1024;  // most of a block
// The backward has as many blocks as a GPU with this many multiprocessors, with this many threads
// on each: what an H100 has at once. Sums of chunks depend on it, so it is the same for all GPUs.
constexpr int64_t kNormProcessors = 132, kThreadsOnProcessor = 1280;
// Most threads of a block that reads ahead: 48 registers each, so that three blocks of 416 threads
// (1,600 columns) fit a multiprocessor, and two rows of x, residual and dy fit 48 KiB.
constexpr int kAheadThreads = 640;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kAheadBlocks = 1;  // a multiprocessor of sm_75 has 1024 threads
#else
constexpr int kAheadBlocks = 2;
#endif
constexpr int64_t kMostAhead = 47 << 10;

// dx = rstd·(g − mean g − x̂·mean(g·x̂)) (+ residual) with g = dy·weight; without the first mean for
// rms_norm. kOne: a thread has one pack of columns, which stays in registers. kAhead: the next row
// is on its way into shared memory while one is summed. A thread reads there only what it has
// copied itself, so this needs no barrier.
template <typename T, typename L, int W, bool kOne, bool kAhead>
__global__ void __launch_bounds__(kAhead ? kAheadThreads : kNormThreads, kAhead ? kAheadBlocks : 0)
    row_norm_backward_kernel(NormBackward<T, L> a) {
  using M = MathOf<T>;
  __shared__ M parts[2][2][kWarp];  // of two rows: one barrier a row is enough
  const int64_t begin = blockIdx.x * a.chunk;
  const int64_t end = begin + a.chunk < a.rows ? begin + a.chunk : a.rows;
  const int64_t own = static_cast<int64_t>(threadIdx.x) * W, step = int64_t{blockDim.x} * W;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int64_t weighted_at = 2 * a.columns * blockIdx.x, plain_at = weighted_at + a.columns;
  M normal[W] = {}, g[W] = {}, weighted_own[W] = {}, plain_own[W] = {};
  const auto put_sums = [&](int64_t c) {
    if (a.partial == nullptr) return;
    store_elements<M, W>(weighted_own, a.partial, weighted_at + c);
    store_elements<M, W>(plain_own, a.partial, plain_at + c);
  };
  if (!kOne) {
    for (int64_t c = own; c < a.columns; c += step) put_sums(c);
  }

  // x, the residual and dy of all threads for a row lie one after another.
  constexpr int kPack = W * static_cast<int>(sizeof(T));
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int dy_bytes = a.dy.template bytes<W>();
  const auto place = [&](int64_t row) {
    return dynamic_shared<unsigned char>() + (row & 1) * threads * (2 * kPack + dy_bytes);
  };
  const auto queue = [&](int64_t row) {
    if constexpr (kAhead) {
      if (own < a.columns && row < end) {
        unsigned char* to = place(row) + thread * kPack;
        copy_async<kPack>(to, a.x + row * a.columns + own);
        if (a.residual != nullptr) {
          copy_async<kPack>(to + threads * kPack, a.residual + row * a.columns + own);
        }
        a.dy.template fetch<W>(row * a.columns + own,
                               place(row) + threads * 2 * kPack + thread * dy_bytes);
      }
      commit_copies();
    }
  };
  const auto load_residual = [&](int64_t row, int64_t c, M* to) {
    if constexpr (kAhead) {
      shared_elements<T, W>(place(row) + (threads + thread) * kPack, to);
    } else {
      load_elements<T, W>(a.residual, row * a.columns + c, to);
    }
  };
  queue(begin);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * a.columns;
    const M own_mean = a.mean != nullptr ? a.mean[row] : M(0), scale = a.rstd[row];
    M dy[W] = {};
    const auto load = [&](int64_t c) {
      if constexpr (kAhead) {
        wait_copies<1>();
        shared_elements<T, W>(place(row) + thread * kPack, normal);
        a.dy.template fetched<W>(place(row) + threads * 2 * kPack + thread * dy_bytes, dy);
      } else {
        load_elements<T, W>(a.x, at + c, normal);
        a.dy.template load<W>(at + c, dy);
      }
      if (a.to_dy) {
        load_residual(row, c, g);
        for (int j = 0; j < W; ++j) dy[j] += g[j];
      }
      if (a.weight != nullptr) load_elements<M, W>(a.weight, c, g);
      for (int j = 0; j < W; ++j) {
        normal[j] = (normal[j] - own_mean) * scale;
        g[j] = a.weight != nullptr ? dy[j] * g[j] : dy[j];
      }
    };
    queue(row + 1);
    M plain = 0, weighted = 0;
    for (int64_t c = own; c < a.columns; c += step) {
      load(c);
      if (!kOne && a.partial != nullptr) {
        load_elements<M, W>(a.partial, weighted_at + c, weighted_own);
        load_elements<M, W>(a.partial, plain_at + c, plain_own);
      }
      for (int j = 0; j < W; ++j) {
        plain += g[j];
        weighted += g[j] * normal[j];
        weighted_own[j] += dy[j] * normal[j];
        plain_own[j] += dy[j];
      }
      if (!kOne) put_sums(c);
    }
    plain = warp_sum(plain);
    weighted = warp_sum(weighted);
    auto& sums = parts[row % 2];
    if (threadIdx.x % kWarp == 0) {
      sums[0][warp] = plain;
      sums[1][warp] = weighted;
    }
    __syncthreads();
    plain = weighted = 0;
    for (int i = 0; i < warps; ++i) {
      plain += sums[0][i];
      weighted += sums[1][i];
    }
    plain = a.mean != nullptr ? plain / static_cast<M>(a.columns) : M(0);
    weighted /= static_cast<M>(a.columns);
    for (int64_t c = own; c < a.columns; c += step) {
      if (!kOne) load(c);
      M dx[W], residual[W] = {};
      if (a.residual != nullptr && !a.to_dy) load_residual(row, c, residual);
      for (int j = 0; j < W; ++j) {
        dx[j] = residual[j] + scale * (g[j] - plain - normal[j] * weighted);
      }
      store_elements<T, W>(dx, a.dx, at + c);
      if (a.low_dx != nullptr) store_elements<L, W>(dx, a.low_dx, at + c);
    }
  }
  if (kOne && own < a.columns) put_sums(own);
}

// Blocks of the backward: threads of each, and rows.
struct NormChunks {
  NormChunks(const RowNormCall& c, int width)
      : packs(divide_up(c.columns, width)),
        threads(std::min<int64_t>(divide_up(packs, kWarp) * kWarp, kNormThreads)),
        rows(std::max<int64_t>(
            divide_up(c.rows,
                      kNormProcessors * std::max<int64_t>(kThreadsOnProcessor / threads, 1)),
            1)),
        count(divide_up(c.rows, rows)) {}
  int64_t packs, threads, rows, count;
};

template <typename T, typename L>
void launch_norm_backward(const RowNormCall& c, NormBackward<T, L> a, bool packs,
                          MathOf<T>* dweight, MathOf<T>* dbias, CudaStream stream) {
  int64_t count = 0;
  with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
    const NormChunks chunks(c, W);
    a.chunk = chunks.rows;
    count = chunks.count;
    if (count == 0) return;
    const auto blocks = static_cast<unsigned>(count),
               threads = static_cast<unsigned>(chunks.threads);
    const auto launch = [&]<bool kOne, bool kAhead>(int64_t shared) {
      DLTRAIN_LAUNCH_SHARED((row_norm_backward_kernel<T, L, W, kOne, kAhead>), blocks, threads,
                            static_cast<unsigned>(shared), stream, a);
    };
    const int64_t two_rows =
        2 * chunks.threads * (2 * W * static_cast<int>(sizeof(T)) + a.dy.template bytes<W>());
    if (chunks.packs > chunks.threads) {
      launch.template operator()<false, false>(0);
    } else if (W == 1 || W > 4 || two_rows > kMostAhead) {
      launch.template operator()<true, false>(0);
    } else if constexpr (W > 1 && W <= 4) {
      launch.template operator()<true, true>(two_rows);
    }
  });
  if (a.partial == nullptr) return;
  const ColumnGrid join = ColumnGrid::join(c.columns);
  DLTRAIN_LAUNCH(join_pairs_kernel<MathOf<T>>, join.grid, join.block, stream,
                 static_cast<const MathOf<T>*>(a.partial), dweight, dbias, c.columns, count);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_row_norm(const KernelRequest& request) {
  const RowNormCall c = row_norm_call(request);
  const size_t delta = c.centred ? 3 : 2;  // the input after weight and bias; outputs after rstd
  const bool adds = request.inputs.size() > delta;
  const DType delta_dtype = adds ? request.inputs[delta].dtype : c.dtype;
  const DType y_dtype = request.outputs[0].dtype;
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_norm_types(c, [&]<typename T, typename L>(T, L) {
      using M = MathOf<T>;
      const NormForward<T, L> a{.x = b.input<T>(0),
                                .delta = {adds ? b.inputs[delta] : nullptr, delta_dtype, c},
                                .y = {b.outputs[0], y_dtype, c},
                                .weight = b.input<M>(1),
                                .bias = c.centred ? b.input<M>(2) : nullptr,
                                .sum = adds ? b.output<T>(delta) : nullptr,
                                .wide_y = b.output<T>(delta + (adds ? 1 : 0)),
                                .mean = c.centred ? b.output<M>(1) : nullptr,
                                .rstd = b.output<M>(c.centred ? 2 : 1),
                                .rows = c.rows,
                                .columns = c.columns,
                                .epsilon = static_cast<M>(c.epsilon)};
      const bool packs = rows_in_packs<T>(
          c.columns,
          {a.x, adds ? b.inputs[delta] : nullptr, b.outputs[0], a.weight, a.bias, a.sum, a.wide_y});
      with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
        launch_norm<W>(a, stream.native());
      });
    });
  });
}

std::unique_ptr<Kernel> make_cuda_row_norm_backward(const KernelRequest& request) {
  const RowNormCall c = row_norm_call(request);
  const bool has_weight = !is_absent(request.inputs[2]);
  const bool has_bias = c.centred && request.attributes.boolean("bias");
  const bool sums = (has_weight || has_bias) && c.columns > 0;
  const DType dy_dtype = request.inputs[1].dtype;
  const bool to_dy = request.attributes.boolean("adds_to_dy");
  const size_t rstd = c.centred ? 4 : 3, after = 1 + (has_weight ? 1 : 0) + (has_bias ? 1 : 0);
  const auto run = [=](const Bindings& b, Stream& stream) {
    with_norm_types(c, [&]<typename T, typename L>(T, L) {
      using M = MathOf<T>;
      const NormBackward<T, L> a{.x = b.input<T>(0),
                                 .dy = {b.inputs[1], dy_dtype, c},
                                 .weight = b.input<M>(2),
                                 .mean = c.centred ? b.input<M>(3) : nullptr,
                                 .rstd = b.input<M>(rstd),
                                 .residual = b.input<T>(rstd + 1),
                                 .to_dy = to_dy,
                                 .dx = b.output<T>(0),
                                 .low_dx = b.output<L>(after),
                                 .partial = sums ? static_cast<M*>(b.workspace) : nullptr,
                                 .rows = c.rows,
                                 .columns = c.columns,
                                 .chunk = 0};
      const bool packs = rows_in_packs<T>(
          c.columns, {a.x, b.inputs[1], a.weight, a.residual, a.dx, a.low_dx, a.partial});
      launch_norm_backward(c, a, packs, has_weight ? b.output<M>(1) : nullptr,
                           has_bias ? b.output<M>(after - 1) : nullptr, stream.native());
    });
  };
  // Without packs a block has at least as many threads, so there are not more chunks.
  const int width = static_cast<int>(16 / dtype_size(c.dtype));
  const int64_t partial = 2 * c.columns * NormChunks(c, width).count;
  return make_kernel(
      run, sums ? static_cast<size_t>(partial) * dtype_size(accumulation_dtype(c.dtype)) : 0);
}

}  // namespace dltrain
