// Softmax-cross-entropy over logits [rows, classes] with i32 targets [rows] and its gradient
// (lib/ops/softmax_cross_entropy.cpp has the formulas): one warp per row for few classes, one block
// per row for vocabularies. Results of rows are in the workspace until one block adds them in a
// fixed order, in double. log_sum_exp has the accumulation dtype of the logits; sums and dloss are
// f64. dlogits may be logits.
#include <cmath>

#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "ops/rules.h"
#include "shared/bound_kernel.h"

namespace dltrain {
namespace {

// The kernel compares class indices as T, which is exact up to 2²⁴ in f32.
constexpr int64_t kMostClasses = int64_t{1} << 24;

struct CrossEntropyCall {
  DType dtype;
  int64_t rows, columns, classes, ignore_index;  // the first `classes` columns count
  double label_smoothing, z_loss;
};

bool cross_entropy_served(const KernelRequest& request) {
  const TensorSpec& logits = request.inputs[0];
  return is_floating(logits.dtype) && logits.shape[-1] <= kMostClasses;
}

CrossEntropyCall cross_entropy_call(const KernelRequest& request) {
  return {.dtype = request.inputs[0].dtype,
          .rows = request.inputs[1].shape.elements(),
          .columns = request.inputs[0].shape[-1],
          .classes = cross_entropy_classes(request.inputs[0], request.attributes),
          .ignore_index = request.attributes.integer("ignore_index", -100),
          .label_smoothing = request.attributes.number("label_smoothing", 0),
          .z_loss = request.attributes.number("z_loss", 0)};
}

constexpr int kBlock = kRowBlock;

template <typename T, int kThreads>
__global__ void cross_entropy_kernel(const T* logits, const int32_t* targets,
                                     MathOf<T>* log_sum_exp, double* row_loss, double* row_correct,
                                     int64_t rows, int64_t columns, int64_t classes,
                                     int64_t ignore_index, MathOf<T> smoothing, MathOf<T> z_loss) {
  using M = MathOf<T>;
  const int64_t row = thread_index() / kThreads;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  if (row >= rows) return;  // uniform over a warp
  const T* x = logits + row * columns;

  M greatest = -static_cast<M>(INFINITY);
  int64_t where = classes;  // first index of this thread's maximum
  for (int64_t k = lane; k < classes; k += kThreads) {
    const M value = static_cast<M>(x[k]);
    if (value > greatest || value != value || where == classes) {
      greatest = value;
      where = k;
    }
  }
  const M top = row_max<kThreads>(greatest);
  // The first class with the maximum: the maximum of the negated indices.
  const M first =
      row_max<kThreads>(greatest == top ? -static_cast<M>(where) : -static_cast<M>(classes));
  M exponentials = 0, distances = 0;  // Σ exp(x − top), Σ (top − x)
  for (int64_t k = lane; k < classes; k += kThreads) {
    exponentials += std::exp(static_cast<M>(x[k]) - top);
    distances += top - static_cast<M>(x[k]);
  }
  const M log_sum = std::log(row_sum<kThreads>(exponentials));
  distances = row_sum<kThreads>(distances);
  if (lane != 0) return;

  const int64_t target = targets[row];
  const bool counted = target != ignore_index;
  // −log softmax at the target, and its mean over all classes.
  const M missed = counted ? log_sum + (top - static_cast<M>(x[target])) : M(0);
  const M spread = log_sum + distances / static_cast<M>(classes);
  log_sum_exp[row] = top + log_sum;
  // Avoid 0 · spread, since a logit of −∞ makes spread infinite.
  M loss = smoothing > M(0) ? (M(1) - smoothing) * missed + smoothing * spread : missed;
  if (z_loss > M(0)) loss += z_loss * log_sum_exp[row] * log_sum_exp[row];
  row_loss[row] = counted ? static_cast<double>(loss) : 0.0;
  row_correct[row] = counted && -first == static_cast<M>(target) ? 1.0 : 0.0;
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
                                              int64_t classes, int64_t ignore_index,
                                              MathOf<T> smoothing,
                                              MathOf<T> z_loss, bool packs) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;
  const T* const in[1] = {logits + row * columns};
  const int64_t target = targets[row];
  const M log_sum = log_sum_exp[row], pull = M(1) + M(2) * z_loss * log_sum;
  const M scale = static_cast<M>(*dloss), rest = smoothing / static_cast<M>(classes);
  sweep_row<kThreads>(in, dlogits + row * columns, columns, packs, [&](int64_t c, const M* x) {
    const M wanted = (c == target ? M(1) - smoothing : M(0)) + rest;
    const M gradient = scale * (pull * std::exp(x[0] - log_sum) - wanted);
    return target == ignore_index || c >= classes ? M(0) : gradient;
  });
}

template <typename T>
void forward_typed(const CrossEntropyCall& c, const void* logits, const int32_t* targets,
                   void* log_sum_exp, double* workspace, CudaStream stream) {
  const T* x = static_cast<const T*>(logits);
  using M = MathOf<T>;
  M* lse = static_cast<M*>(log_sum_exp);
  const M smoothing = static_cast<M>(c.label_smoothing), z_loss = static_cast<M>(c.z_loss);
  if (c.classes <= 1024) {
    const auto grid = static_cast<unsigned>(divide_up(c.rows, kBlock / kWarp));
    DLTRAIN_LAUNCH((cross_entropy_kernel<T, kWarp>), grid, kBlock, stream, x, targets, lse,
                   workspace, workspace + c.rows, c.rows, c.columns, c.classes, c.ignore_index,
                   smoothing, z_loss);
  } else {
    DLTRAIN_LAUNCH((cross_entropy_kernel<T, kBlock>), static_cast<unsigned>(c.rows), kBlock, stream,
                   x, targets, lse, workspace, workspace + c.rows, c.rows, c.columns, c.classes,
                   c.ignore_index, smoothing, z_loss);
  }
}

template <typename T>
void backward_typed(const CrossEntropyCall& c, const void* logits, const int32_t* targets,
                    const void* log_sum_exp, const double* dloss, void* dlogits,
                    CudaStream stream) {
  DLTRAIN_LAUNCH_ROWS(
      cross_entropy_backward_kernel, T, c.rows, c.columns, stream, static_cast<const T*>(logits),
      targets, static_cast<const MathOf<T>*>(log_sum_exp), dloss, static_cast<T*>(dlogits), c.rows,
      c.columns, c.classes, c.ignore_index, static_cast<MathOf<T>>(c.label_smoothing),
      static_cast<MathOf<T>>(c.z_loss), rows_in_packs<T>(c.columns, {logits, dlogits}));
}

}  // namespace

// (logits, targets) → loss, log_sum_exp, correct.
std::unique_ptr<Kernel> make_cuda_cross_entropy(const KernelRequest& request) {
  if (!cross_entropy_served(request)) return nullptr;
  const CrossEntropyCall c = cross_entropy_call(request);
  const auto run = [c](const Bindings& b, Stream& stream) {
    auto* rows = static_cast<double*>(b.workspace);
    if (c.rows > 0) {
      with_floating(c.dtype, [&]<typename T>(T) {
        forward_typed<T>(c, b.inputs[0], b.input<int32_t>(1), b.outputs[1], rows, stream.native());
      });
    }
    DLTRAIN_LAUNCH(add_rows_kernel, 1u, kBlock, stream.native(), rows, rows + c.rows, c.rows,
                   b.output<double>(0), b.output<double>(2));
  };
  return make_kernel(run, static_cast<size_t>(2 * c.rows) * sizeof(double));
}

// (logits, targets, log_sum_exp, dloss) → dlogits.
std::unique_ptr<Kernel> make_cuda_cross_entropy_backward(const KernelRequest& request) {
  if (!cross_entropy_served(request)) return nullptr;
  return make_kernel([c = cross_entropy_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      backward_typed<T>(c, b.inputs[0], b.input<int32_t>(1), b.inputs[2], b.input<double>(3),
                        b.outputs[0], stream.native());
    });
  });
}

}  // namespace dltrain
