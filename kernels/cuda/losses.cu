// elementwise_loss and weighted_cross_entropy with their gradients (lib/ops has the formulas), of
// f32 or f64; sums and dloss are f64. Blocks sum fixed parts, whose results are in the workspace
// until they are added in order, in double.
#include <string>
#include <utility>
#include <vector>

#include "cuda/device_table.h"
#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "shared/losses.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct ElementwiseLossCall {
  DType dtype;
  LossKind kind;
  int64_t count;
  double delta;
  int64_t positives;  // weights of positive targets, repeated over the elements; 0: all 1
};

struct WeightedCrossEntropyCall {
  DType dtype;
  int64_t rows, classes;
  bool labels;  // targets are i32, not distributions
  bool relative;
  double smoothing, scale;
};

constexpr int kBlock = kRowBlock;
constexpr int64_t kPart = 8192;  // elements per block

// Adds pairs of partial sums, in one block.
__global__ void add_pairs_kernel(const double* pairs, int64_t count, double scale, double* loss,
                                 double* correct) {
  double first = 0, second = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) {
    first += pairs[2 * i];
    second += pairs[2 * i + 1];
  }
  first = block_sum(first);
  second = block_sum(second);
  if (threadIdx.x != 0) return;
  *loss = scale * first;
  if (correct != nullptr) *correct = second;
}

template <LossKind kind, typename T>
__global__ void loss_kernel(ElementwiseLossCall c, const T* x, const T* t, const double* positive,
                            double* pairs) {
  const int64_t begin = blockIdx.x * kPart;
  const int64_t end = begin + kPart < c.count ? begin + kPart : c.count;
  double loss = 0, correct = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kBlock) {
    if (t[i] != t[i]) continue;  // not counted
    const T weight = c.positives == 0 ? T(1) : static_cast<T>(positive[i % c.positives]);
    loss += static_cast<double>(loss_value<kind>(x[i], t[i], static_cast<T>(c.delta), weight));
    correct += (x[i] > T(0)) == (t[i] > T(0.5)) ? 1 : 0;
  }
  loss = block_sum(loss);
  correct = block_sum(correct);
  if (threadIdx.x != 0) return;
  pairs[2 * blockIdx.x] = loss;
  pairs[2 * blockIdx.x + 1] = correct;
}

template <LossKind kind, typename T>
__global__ void loss_backward_kernel(ElementwiseLossCall c, const T* x, const T* t,
                                     const double* positive, const double* dloss, T* dx) {
  const T factor = static_cast<T>(*dloss);
  for (int64_t i = thread_index(); i < c.count; i += thread_count()) {
    const T weight = c.positives == 0 ? T(1) : static_cast<T>(positive[i % c.positives]);
    dx[i] = t[i] != t[i] ? T(0)
                         : factor * loss_slope<kind>(x[i], t[i], static_cast<T>(c.delta), weight);
  }
}

// Calls f with the kind as a constant, and a value of the element type.
template <typename F>
void with_loss(const ElementwiseLossCall& c, const F& f) {
  const auto typed = [&](auto kind) { c.dtype == DType::f64 ? f(kind, double{}) : f(kind, 0.0f); };
  switch (c.kind) {
    case LossKind::mse:
      return typed(std::integral_constant<LossKind, LossKind::mse>());
    case LossKind::l1:
      return typed(std::integral_constant<LossKind, LossKind::l1>());
    case LossKind::huber:
      return typed(std::integral_constant<LossKind, LossKind::huber>());
    case LossKind::smooth_l1:
      return typed(std::integral_constant<LossKind, LossKind::smooth_l1>());
    case LossKind::binary_cross_entropy:
      return typed(std::integral_constant<LossKind, LossKind::binary_cross_entropy>());
  }
}

// The targets of one row.
template <typename T>
struct Targets {
  const WeightedCrossEntropyCall& c;
  const T* distribution = nullptr;
  int64_t label = 0;
  bool counts = true;
  const double* weights;

  __device__ Targets(const WeightedCrossEntropyCall& call, const void* targets, const int32_t* mask,
                     const double* class_weights, int64_t row)
      : c(call), weights(class_weights) {
    if (c.labels) {
      label = static_cast<const int32_t*>(targets)[row];
      counts = label >= 0;
    } else {
      distribution = static_cast<const T*>(targets) + row * c.classes;
      counts = distribution[0] == distribution[0];
    }
    if (mask != nullptr && mask[row] < 0) counts = false;
  }
  __device__ T target(int64_t k) const {
    return distribution != nullptr ? distribution[k] : label == k ? T(1) : T(0);
  }
  __device__ T weighted(int64_t k) const {
    const T smooth = static_cast<T>(1 - c.smoothing) * target(k) +
                     static_cast<T>(c.smoothing) / static_cast<T>(c.classes);
    return weights == nullptr ? smooth : static_cast<T>(weights[k]) * smooth;
  }
};

template <typename T, int kThreads>
__global__ void weighted_kernel(WeightedCrossEntropyCall c, const T* logits, const void* targets,
                                const int32_t* mask, const double* weights, T* log_sum_exp,
                                double* pairs) {
  const int64_t row = own_row<kThreads>();
  if (row >= c.rows) return;  // uniform over a warp
  const T* x = logits + row * c.classes;
  const Targets<T> t(c, targets, mask, weights, row);
  T top = 0, most = 0;
  const int64_t best = first_greatest<kThreads>(
      c.classes, [&](int64_t k) { return x[k]; }, top);
  const int64_t wanted = first_greatest<kThreads>(
      c.classes, [&](int64_t k) { return t.target(k); }, most);
  T sum = 0;
  for (int64_t k = own_lane<kThreads>(); k < c.classes; k += kThreads) sum += std::exp(x[k] - top);
  const T offset = top + std::log(row_sum<kThreads>(sum));
  double loss = 0;
  for (int64_t k = own_lane<kThreads>(); k < c.classes && t.counts; k += kThreads) {
    // A class that does not count may have a logit of -infinity.
    const T weight = t.weighted(k);
    if (weight != T(0)) loss += static_cast<double>(weight * (offset - x[k]));
    const T p = t.target(k);
    if (c.relative && p > T(0)) loss += static_cast<double>(p * std::log(p));
  }
  loss = row_sum<kThreads>(loss);
  if (own_lane<kThreads>() != 0) return;
  log_sum_exp[row] = offset;
  pairs[2 * row] = loss;
  pairs[2 * row + 1] = t.counts && best == wanted ? 1 : 0;
}

template <typename T, int kThreads>
__global__ void weighted_backward_kernel(WeightedCrossEntropyCall c, const T* logits,
                                         const void* targets, const int32_t* mask,
                                         const double* weights, const T* log_sum_exp,
                                         const double* dloss, T* dlogits) {
  const int64_t row = own_row<kThreads>();
  if (row >= c.rows) return;
  const Targets<T> t(c, targets, mask, weights, row);
  T mass = 0;
  for (int64_t k = own_lane<kThreads>(); k < c.classes && t.counts; k += kThreads) {
    mass += t.weighted(k);
  }
  mass = row_sum<kThreads>(mass);
  const T factor = static_cast<T>(c.scale * *dloss);
  for (int64_t k = own_lane<kThreads>(); k < c.classes; k += kThreads) {
    const int64_t i = row * c.classes + k;
    const T softmax = std::exp(logits[i] - log_sum_exp[row]);
    dlogits[i] = t.counts ? factor * (softmax * mass - t.weighted(k)) : T(0);
  }
}

LossKind loss_kind(const std::string& name) {
  if (name == "mse") return LossKind::mse;
  if (name == "l1") return LossKind::l1;
  if (name == "huber") return LossKind::huber;
  if (name == "smooth_l1") return LossKind::smooth_l1;
  return LossKind::binary_cross_entropy;
}

ElementwiseLossCall elementwise_loss_call(const KernelRequest& request) {
  const auto positives = request.attributes.numbers("pos_weight").size();
  return {.dtype = request.inputs[0].dtype,
          .kind = loss_kind(request.attributes.text("kind")),
          .count = request.inputs[0].shape.elements(),
          .delta = request.attributes.number("delta", 1),
          .positives = static_cast<int64_t>(positives)};
}

WeightedCrossEntropyCall weighted_call(const KernelRequest& request) {
  const TensorSpec& logits = request.inputs[0];
  const int64_t classes = logits.shape[-1];
  return {.dtype = logits.dtype,
          .rows = logits.shape.elements() / classes,
          .classes = classes,
          .labels = request.inputs[1].dtype == DType::i32,
          .relative = request.attributes.boolean("relative"),
          .smoothing = request.attributes.number("label_smoothing", 0),
          .scale = request.attributes.number("scale", 1)};
}

// A kernel run(bindings, weights, stream) with a list of weights in device memory.
template <typename Run>
std::unique_ptr<Kernel> make_loss(const KernelRequest& request, std::string_view weights,
                                  int64_t workspace, const Run& run) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
  return make_prepared_kernel(
      [&device = request.device, values = request.attributes.numbers(weights)](const Bindings&) {
        return DeviceTable<double>(device, values);
      },
      [run](const DeviceTable<double>& table, const Bindings& b, Stream& stream) {
        run(b, table.data(), stream.native());
      },
      static_cast<size_t>(workspace) * sizeof(double));
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_elementwise_loss(const KernelRequest& request) {
  const ElementwiseLossCall c = elementwise_loss_call(request);
  const int64_t parts = divide_up(c.count, kPart);
  const auto run = [c, parts](const Bindings& b, const double* positive, CudaStream stream) {
    auto* sums = static_cast<double*>(b.workspace);
    if (parts > 0) {
      with_loss(c, [&]<LossKind kind, typename T>(std::integral_constant<LossKind, kind>, T) {
        DLTRAIN_LAUNCH((loss_kernel<kind, T>), static_cast<unsigned>(parts), kBlock, stream, c,
                       b.input<T>(0), b.input<T>(1), positive, sums);
      });
    }
    DLTRAIN_LAUNCH(add_pairs_kernel, 1u, kBlock, stream, sums, parts, 1.0, b.output<double>(0),
                   b.output<double>(1));
  };
  return make_loss(request, "pos_weight", 2 * parts, run);
}

std::unique_ptr<Kernel> make_cuda_elementwise_loss_backward(const KernelRequest& request) {
  const ElementwiseLossCall c = elementwise_loss_call(request);
  const auto run = [c](const Bindings& b, const double* positive, CudaStream stream) {
    if (c.count == 0) return;
    with_loss(c, [&]<LossKind kind, typename T>(std::integral_constant<LossKind, kind>, T) {
      DLTRAIN_LAUNCH((loss_backward_kernel<kind, T>), stride_grid(c.count, kBlock), kBlock, stream,
                     c, b.input<T>(0), b.input<T>(1), positive, b.input<double>(2), b.output<T>(0));
    });
  };
  return make_loss(request, "pos_weight", 0, run);
}

// (logits, targets, optional labels) → loss, log_sum_exp, correct.
std::unique_ptr<Kernel> make_cuda_weighted_cross_entropy(const KernelRequest& request) {
  const WeightedCrossEntropyCall c = weighted_call(request);
  const auto run = [c](const Bindings& b, const double* weights, CudaStream stream) {
    auto* sums = static_cast<double*>(b.workspace);
    if (c.rows > 0) {
      with_wide(c.dtype, [&]<typename T>(T) {
        DLTRAIN_LAUNCH_ROWS(weighted_kernel, T, c.rows, c.classes, stream, c, b.input<T>(0),
                            b.input<void>(1), b.input<int32_t>(2), weights, b.output<T>(1), sums);
      });
    }
    DLTRAIN_LAUNCH(add_pairs_kernel, 1u, kBlock, stream, sums, c.rows, c.scale, b.output<double>(0),
                   b.output<double>(2));
  };
  return make_loss(request, "class_weights", 2 * c.rows, run);
}

// (logits, targets, log_sum_exp, dloss, optional labels) → dlogits.
std::unique_ptr<Kernel> make_cuda_weighted_cross_entropy_backward(const KernelRequest& request) {
  const WeightedCrossEntropyCall c = weighted_call(request);
  const auto run = [c](const Bindings& b, const double* weights, CudaStream stream) {
    if (c.rows == 0) return;
    with_wide(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH_ROWS(weighted_backward_kernel, T, c.rows, c.classes, stream, c, b.input<T>(0),
                          b.input<void>(1), b.input<int32_t>(4), weights, b.input<T>(2),
                          b.input<double>(3), b.output<T>(0));
    });
  };
  return make_loss(request, "class_weights", 0, run);
}

}  // namespace dltrain
