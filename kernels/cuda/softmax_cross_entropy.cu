// Softmax-cross-entropy over logits [rows, columns], the first `classes` of which count, with i32
// targets [rows] and its gradient (lib/ops/softmax_cross_entropy.cpp has the formulas): one warp
// per row for few classes, one block per row for vocabularies. Forward and gradient read a row
// once, 16 bytes at a time wherever the row begins (50257 classes of 16 bits begin anywhere).
// Results of rows are in the workspace until one block adds them in a fixed order, in double.
// log_sum_exp has the accumulation dtype of the logits; sums and dloss are f64. dlogits may be
// logits.
//
// Loss and gradient together: the block of a row keeps it in shared memory, so that it is read once
// from the memory of the device. Rows that do not fit, or do not begin at multiples of 16 bytes, go
// through the two kernels one after the other.
#include <cmath>

#include "cuda/async_copy.cuh"
#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct CrossEntropyCall {
  DType dtype;
  int64_t rows, columns, classes, ignore_index;  // the first `classes` columns count
  int64_t first, all_classes;                    // the classes of a shard
  double label_smoothing, z_loss;
};

CrossEntropyCall cross_entropy_call(const KernelRequest& request) {
  const int64_t classes = cross_entropy_classes(request.inputs[0], request.attributes);
  return {.dtype = request.inputs[0].dtype,
          .rows = request.inputs[1].shape.elements(),
          .columns = request.inputs[0].shape[-1],
          .classes = classes,
          .ignore_index = request.attributes.integer("ignore_index", -100),
          .first = request.attributes.integer("first_class"),
          .all_classes = request.attributes.integer("all_classes", classes),
          .label_smoothing = request.attributes.number("label_smoothing", 0),
          .z_loss = request.attributes.number("z_loss", 0)};
}

constexpr int kBlock = kRowBlock;

// The running maximum and sums of a thread's logits, in one pass (Milakov & Gimelshein 2018). The
// logits of a thread depend on their classes alone, not on addresses, so a row has the same bits in
// any micro-batch.
template <typename M>
struct OnlineSoftmax {
  M top = -static_cast<M>(INFINITY);  // the greatest that is not NaN
  M sum = 0, distances = 0;           // Σ exp(x − top), Σ (top − x)
  M count = 0;

  __device__ void raise(M to) {
    // While all are −∞ (or there are none), both sums are independent of top.
    if (top > -static_cast<M>(INFINITY)) {
      sum *= std::exp(top - to);
      distances += count * (to - top);
    }
    top = to;
  }
  // `greatest`: of the values; less than any: −∞.
  template <int N>
  __device__ void add(const M (&x)[N], M greatest) {
    raise(greatest > top ? greatest : top);
    const M from = top > -static_cast<M>(INFINITY) ? top : M(0);
    for (int j = 0; j < N; ++j) {
      const M below = x[j] - from;
      sum += std::exp(below);
      distances -= below;
    }
    count += static_cast<M>(N);
  }
};

// The loss of a row that counts: log_sum is log Σ exp(x − top), distances is Σ (top − x).
template <typename M>
__device__ M loss_of_row(M log_sum, M distances, M top, M aim, int64_t classes, M smoothing,
                         M z_loss) {
  // −log softmax at the target, and its mean over all classes.
  const M missed = log_sum + (top - aim), spread = log_sum + distances / static_cast<M>(classes);
  const M log_sum_exp = top + log_sum;
  // Avoid 0 · spread, since a logit of −∞ makes spread infinite.
  M loss = smoothing > M(0) ? (M(1) - smoothing) * missed + smoothing * spread : missed;
  if (z_loss > M(0)) loss += z_loss * log_sum_exp * log_sum_exp;
  return loss;
}

constexpr int64_t kPartsOfRow = 5;  // of cross_entropy_parts

// With `parts` the results of a row are what this rank's classes, from `first` on, add to it.
template <typename T, int kThreads>
__global__ void cross_entropy_kernel(const T* logits, const int32_t* targets,
                                     MathOf<T>* log_sum_exp, double* row_loss, double* row_correct,
                                     MathOf<T>* parts, int64_t rows, int64_t columns,
                                     int64_t classes, int64_t first_class, int64_t ignore_index,
                                     MathOf<T> smoothing, MathOf<T> z_loss) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;  // uniform over a warp
  const T *x = logits + row * columns, *end = logits + rows * columns;
  const int64_t target = targets[row] - first_class;
  const bool counted =
      parts != nullptr ? target >= 0 && target < classes : targets[row] != ignore_index;
  const M aim = counted ? static_cast<M>(x[target]) : M(0);
  OnlineSoftmax<M> own;
  bool beaten = false;  // by a greater logit, or by an equal one of an earlier class
  const auto take = [&]<int N>(const M(&value)[N], int64_t first) {
    M greatest = value[0];
    for (int j = 1; j < N; ++j) greatest = value[j] > greatest ? value[j] : greatest;
    own.add(value, greatest);
    beaten = beaten || greatest > aim;
    if (greatest != aim || first > target) return;
    for (int j = 0; j < N; ++j) beaten = beaten || (value[j] == aim && first + j < target);
  };
  sweep_elements<Pack<T>::size>(classes / Pack<T>::size, classes, own_lane<kThreads>(), kThreads,
                                [&]<int N>(int64_t at) {
                                  M value[N];
                                  load_anywhere(x + at, logits, end, value);
                                  take(value, at);
                                });
  const M top = row_max<kThreads>(own.top);
  own.raise(top);
  const M log_sum = std::log(row_sum<kThreads>(own.sum));
  const M distances = row_sum<kThreads>(own.distances);
  const M losses = row_sum<kThreads>(beaten ? M(1) : M(0));
  if (own_lane<kThreads>() != 0) return;

  if (parts != nullptr) {
    MathOf<T>* part = parts + row * kPartsOfRow;
    part[0] = top + log_sum;
    part[1] = top;
    part[2] = aim;
    part[3] = counted && losses == M(0) && log_sum == log_sum ? M(1) : M(0);
    part[4] = smoothing > M(0) ? static_cast<M>(classes) * top - distances : M(0);
    return;
  }
  log_sum_exp[row] = top + log_sum;
  row_loss[row] = counted ? static_cast<double>(loss_of_row(log_sum, distances, top, aim, classes,
                                                            smoothing, z_loss))
                          : 0.0;
  // A NaN among the logits makes the sum NaN.
  row_correct[row] = counted && losses == M(0) && log_sum == log_sum ? 1.0 : 0.0;
}

// The results of a row from the parts of the ranks, one thread a row.
template <typename M>
__global__ void join_parts_kernel(const M* parts, const int32_t* targets, M* log_sum_exp,
                                  double* row_loss, double* row_correct, int64_t rows,
                                  int64_t ranks, int64_t all_classes, int64_t ignore_index,
                                  double smoothing, double z_loss) {
  for (int64_t row = thread_index(); row < rows; row += thread_count()) {
    const auto part = [&](int64_t rank, int i) {
      return static_cast<double>(parts[(rank * rows + row) * kPartsOfRow + i]);
    };
    int64_t best = 0;  // the first rank with the greatest logit
    double shift = part(0, 0), sum = 0, expected = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (part(rank, 1) > part(best, 1)) best = rank;
      if (part(rank, 0) > shift) shift = part(rank, 0);
      expected += (1 - smoothing) * part(rank, 2);
      if (smoothing > 0) expected += smoothing / static_cast<double>(all_classes) * part(rank, 4);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) sum += std::exp(part(rank, 0) - shift);
    const double log_sum = shift + std::log(sum);
    const bool counted = targets[row] != ignore_index;
    log_sum_exp[row] = static_cast<M>(log_sum);
    row_loss[row] = counted ? log_sum - expected + z_loss * log_sum * log_sum : 0.0;
    row_correct[row] = counted ? part(best, 3) : 0.0;
  }
}

__global__ void add_rows_kernel(const double* row_loss, const double* row_correct, int64_t rows,
                                double* loss_sum, double* correct) {
  double loss = 0, right = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    loss += row_loss[i];
    right += row_correct[i];
  }
  loss = block_sum(loss);
  right = block_sum(right);
  if (threadIdx.x == 0) {
    *loss_sum = loss;
    *correct = right;
  }
}

template <typename T, int kThreads>
__global__ void cross_entropy_backward_kernel(const T* logits, const int32_t* targets,
                                              const MathOf<T>* log_sum_exp, const double* dloss,
                                              T* dlogits, int64_t rows, int64_t columns,
                                              int64_t classes, int64_t first_class,
                                              int64_t all_classes, int64_t ignore_index,
                                              MathOf<T> smoothing, MathOf<T> z_loss) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;
  const int32_t target = targets[row];
  const M log_sum = log_sum_exp[row], pull = M(1) + M(2) * z_loss * log_sum;
  const M scale = static_cast<M>(*dloss), rest = smoothing / static_cast<M>(all_classes);
  const T* x = logits + row * columns;
  T* dx = dlogits + row * columns;
  if (target == ignore_index) {
    map_row<kThreads>(x, dx, columns, [](int64_t, M) { return M(0); });
    return;
  }
  const M hit = M(1) - smoothing + rest;
  map_row<kThreads>(x, dx, columns, [&](int64_t c, M value) {
    const M wanted = c + first_class == target ? hit : rest;
    return c < classes ? scale * (pull * std::exp(value - log_sum) - wanted) : M(0);
  });
}

// The threads of a row in shared memory. Two such blocks fit an SM of sm_90 with rows of 112 KiB,
// so that one waits for its row while the other computes.
constexpr int kHeldBlock = 512;

// e^x by the instruction of the GPU: a third of the work of std::exp. Denormal results are 0.
__device__ inline float quick_exp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
#else
  return std::exp(x);
#endif
}

// All columns of a row lie in whole packs.
template <typename T>
__global__ void __launch_bounds__(kHeldBlock, 2)
    held_cross_entropy_kernel(CrossEntropyCall c, const T* logits, const int32_t* targets,
                              const double* dloss, T* dlogits, double* row_loss,
                              double* row_correct) {
  constexpr int kWidth = Pack<T>::size, kStep = kHeldBlock * kWidth;
  T* x = dynamic_shared<T>();
  const int64_t row = blockIdx.x;
  const T* from = logits + row * c.columns;
  T* dx = dlogits + row * c.columns;
  const int thread = static_cast<int>(threadIdx.x), own = thread * kWidth;
  const int columns = static_cast<int>(c.columns), classes = static_cast<int>(c.classes);
  const int target = targets[row];
  if (target == c.ignore_index) {
    const float zeros[kWidth] = {};
    for (int at = own; at < columns; at += kStep) store_elements<T, kWidth>(zeros, dx, at);
    if (thread == 0) row_loss[row] = row_correct[row] = 0;
    return;
  }
  for (int at = own; at < columns; at += kStep) copy_async<16>(x + at, from + at);
  commit_copies();
  const auto scale = static_cast<float>(*dloss);
  wait_copies<0>();
  __syncthreads();
  // Calls f(values, first column) for the first `count` columns, those of this thread.
  const auto sweep = [&](int count, const auto& f) {
    sweep_elements<kWidth>(count / kWidth, count, thread, kHeldBlock, [&]<int N>(int64_t at) {
      const auto pack = *reinterpret_cast<const Elements<T, N>*>(x + at);
      float value[N];
      for (int j = 0; j < N; ++j) value[j] = static_cast<float>(pack.v[j]);
      f(value, static_cast<int>(at));
    });
  };

  float top = -INFINITY, sum = 0, distances = 0;  // as in OnlineSoftmax
  sweep(classes, [&]<int N>(const float(&value)[N], int) {
    for (int j = 0; j < N; ++j) top = std::fmax(top, value[j]);
  });
  top = block_max(top);
  const float shift = top > -INFINITY ? top : 0;
  sweep(classes, [&]<int N>(const float(&value)[N], int) {
    for (int j = 0; j < N; ++j) {
      const float below = value[j] - shift;
      sum += quick_exp(below);
      distances -= below;
    }
  });
  sum = block_sum(sum);
  const auto smoothing = static_cast<float>(c.label_smoothing);
  const auto z_loss = static_cast<float>(c.z_loss);
  if (smoothing > 0) distances = block_sum(distances);
  const float aim = static_cast<float>(x[target]);
  bool correct = aim == top && sum == sum;  // a NaN among the logits makes the sum NaN
  if (correct) {                            // in all threads: is an earlier class as great?
    float equal = 0;
    sweep(target, [&]<int N>(const float(&value)[N], int) {
      for (int j = 0; j < N; ++j) equal = value[j] == aim ? 1 : equal;
    });
    correct = block_max(equal) == 0;
  }
  const float log_sum = std::log(sum), log_sum_exp = top + log_sum;
  if (thread == 0) {
    row_loss[row] = loss_of_row(log_sum, distances, top, aim, c.classes, smoothing, z_loss);
    row_correct[row] = correct ? 1 : 0;
  }

  const float pull = scale * (1 + 2 * z_loss * log_sum_exp);
  const float rest = scale * smoothing / static_cast<float>(classes);
  const float hit = pull * quick_exp(aim - log_sum_exp) - scale * (1 - smoothing) - rest;
  sweep(columns, [&]<int N>(float(&value)[N], int at) {
    for (int j = 0; j < N; ++j) value[j] = pull * quick_exp(value[j] - log_sum_exp) - rest;
    if (at <= target && target < at + N) {
      for (int j = 0; j < N; ++j) value[j] = at + j == target ? hit : value[j];
    }
    if (at + N > classes) {
      for (int j = 0; j < N; ++j) value[j] = at + j < classes ? value[j] : 0;
    }
    store_elements<T, N>(value, dx, at);
  });
}

// Kernels write the loss of each row, and whether its prediction is correct, to the workspace. With
// the attribute row_losses the losses go to output 3 instead.
struct RowResults {
  double *loss, *correct;
};

RowResults row_results(const CrossEntropyCall& c, const Bindings& b) {
  auto* workspace = static_cast<double*>(b.workspace);
  return {b.outputs.size() > 3 ? b.output<double>(3) : workspace, workspace + c.rows};
}

template <typename T>
void launch_losses(const CrossEntropyCall& c, const T* logits, const int32_t* targets,
                   MathOf<T>* log_sum_exp, RowResults rows, Stream& stream) {
  using M = MathOf<T>;
  DLTRAIN_LAUNCH_ROWS(cross_entropy_kernel, T, c.rows, c.classes, stream.native(), logits, targets,
                      log_sum_exp, rows.loss, rows.correct, static_cast<M*>(nullptr), c.rows,
                      c.columns, c.classes, c.first, c.ignore_index,
                      static_cast<M>(c.label_smoothing), static_cast<M>(c.z_loss));
}

template <typename T>
void launch_gradient(const CrossEntropyCall& c, const T* logits, const int32_t* targets,
                     const MathOf<T>* log_sum_exp, const double* dloss, T* dlogits,
                     Stream& stream) {
  using M = MathOf<T>;
  DLTRAIN_LAUNCH_ROWS(cross_entropy_backward_kernel, T, c.rows, c.classes, stream.native(), logits,
                      targets, log_sum_exp, dloss, dlogits, c.rows, c.columns, c.classes, c.first,
                      c.all_classes, c.ignore_index, static_cast<M>(c.label_smoothing),
                      static_cast<M>(c.z_loss));
}

// Queues losses and gradients of rows in shared memory; returns false if they are not for it.
template <typename T>
bool launch_held(const CrossEntropyCall& c, const T* logits, const int32_t* targets,
                 const double* dloss, T* dlogits, RowResults rows, Stream& stream) {
  const size_t bytes = static_cast<size_t>(c.columns) * sizeof(T);
  if (c.classes <= kWarpRow || !rows_in_packs<T>(c.columns, {logits, dlogits}) ||
      !allow_shared(held_cross_entropy_kernel<T>, bytes)) {
    return false;
  }
  DLTRAIN_LAUNCH_SHARED(held_cross_entropy_kernel<T>, static_cast<unsigned>(c.rows), kHeldBlock,
                        bytes, stream.native(), c, logits, targets, dloss, dlogits, rows.loss,
                        rows.correct);
  return true;
}

void launch_sums(const CrossEntropyCall& c, RowResults rows, double* loss_sum, double* correct,
                 Stream& stream) {
  DLTRAIN_LAUNCH(add_rows_kernel, 1u, kBlock, stream.native(), rows.loss, rows.correct, c.rows,
                 loss_sum, correct);
}

// (logits, targets, parts) → loss, log_sum_exp, correct.
std::unique_ptr<Kernel> make_joined(const KernelRequest& request) {
  const CrossEntropyCall c = cross_entropy_call(request);
  const int64_t ranks = c.rows == 0 ? 1 : request.inputs[2].shape[0] / c.rows;
  const auto run = [c, ranks](const Bindings& b, Stream& stream) {
    const RowResults rows = row_results(c, b);
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      DLTRAIN_LAUNCH(join_parts_kernel<M>, stride_grid(c.rows > 0 ? c.rows : 1, kBlock), kBlock,
                     stream.native(), b.input<M>(2), b.input<int32_t>(1), b.output<M>(1), rows.loss,
                     rows.correct, c.rows, ranks, c.all_classes, c.ignore_index, c.label_smoothing,
                     c.z_loss);
    });
    launch_sums(c, rows, b.output<double>(0), b.output<double>(2), stream);
  };
  return make_kernel(run, static_cast<size_t>(2 * c.rows) * sizeof(double));
}

}  // namespace

// (logits, targets) → parts.
std::unique_ptr<Kernel> make_cuda_cross_entropy_parts(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return make_kernel([c = cross_entropy_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      DLTRAIN_LAUNCH_ROWS(cross_entropy_kernel, T, c.rows, c.classes, stream.native(),
                          b.input<T>(0), b.input<int32_t>(1), static_cast<M*>(nullptr),
                          static_cast<double*>(nullptr), static_cast<double*>(nullptr),
                          b.output<M>(0), c.rows, c.columns, c.classes, c.first, c.ignore_index,
                          static_cast<M>(c.label_smoothing), static_cast<M>(c.z_loss));
    });
  });
}

// (logits, targets) → loss, log_sum_exp, correct.
std::unique_ptr<Kernel> make_cuda_cross_entropy(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  if (request.inputs.size() > 2) return make_joined(request);
  const CrossEntropyCall c = cross_entropy_call(request);
  const auto run = [c](const Bindings& b, Stream& stream) {
    const RowResults rows = row_results(c, b);
    if (c.rows > 0) {
      with_floating(c.dtype, [&]<typename T>(T) {
        launch_losses(c, b.input<T>(0), b.input<int32_t>(1), b.output<MathOf<T>>(1), rows, stream);
      });
    }
    launch_sums(c, rows, b.output<double>(0), b.output<double>(2), stream);
  };
  return make_kernel(run, static_cast<size_t>(2 * c.rows) * sizeof(double));
}

// (logits, targets, log_sum_exp, dloss) → dlogits.
std::unique_ptr<Kernel> make_cuda_cross_entropy_backward(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  return make_kernel([c = cross_entropy_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      launch_gradient(c, b.input<T>(0), b.input<int32_t>(1), b.input<MathOf<T>>(2),
                      b.input<double>(3), b.output<T>(0), stream);
    });
  });
}

// (logits, targets, dloss) → dlogits, loss, correct.
std::unique_ptr<Kernel> make_cuda_cross_entropy_gradient(const KernelRequest& request) {
  if (!is_floating(request.inputs[0].dtype)) return nullptr;
  const CrossEntropyCall c = cross_entropy_call(request);
  const auto run = [c](const Bindings& b, Stream& stream) {
    const RowResults rows = row_results(c, b);
    const auto* targets = b.input<int32_t>(1);
    const auto* dloss = b.input<double>(2);
    with_floating(c.dtype, [&]<typename T>(T) {
      const T* logits = b.input<T>(0);
      T* dlogits = b.output<T>(0);
      if (c.rows * c.columns == 0) return;
      if constexpr (!std::is_same_v<T, double>) {
        if (launch_held(c, logits, targets, dloss, dlogits, rows, stream)) return;
      }
      auto* log_sum_exp = reinterpret_cast<MathOf<T>*>(rows.correct + c.rows);
      launch_losses(c, logits, targets, log_sum_exp, rows, stream);
      launch_gradient(c, logits, targets, log_sum_exp, dloss, dlogits, stream);
    });
    launch_sums(c, rows, b.output<double>(1), b.output<double>(2), stream);
  };
  return make_kernel(run, static_cast<size_t>(3 * c.rows) * sizeof(double));
}

}  // namespace dltrain
