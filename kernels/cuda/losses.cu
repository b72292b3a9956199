// Losses. Sums are taken by blocks over fixed parts and then added in order, in double.
#include "cuda/losses.h"
#include "cuda/row_sweep.cuh"

namespace dltrain {
namespace {

constexpr int kBlock = kRowBlock;
constexpr int64_t kPart = 8192;  // elements a block

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
  if (row >= c.rows) return;  // a whole warp, or never
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
    loss += static_cast<double>(t.weighted(k) * (offset - x[k]));
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

template <typename F>
void with_number(DType dtype, const F& f) {
  dtype == DType::f64 ? f(double{}) : f(float{});
}

}  // namespace

int64_t elementwise_loss_workspace(const ElementwiseLossCall& call) {
  return 2 * divide_up(call.count, kPart);
}

void launch_elementwise_loss(const ElementwiseLossCall& c, const void* x, const void* t,
                             const double* positive, double* loss, double* correct,
                             double* workspace, CudaStream stream) {
  const int64_t parts = divide_up(c.count, kPart);
  if (parts > 0) {
    with_loss(c, [&]<LossKind kind, typename T>(std::integral_constant<LossKind, kind>, T) {
      DLTRAIN_LAUNCH((loss_kernel<kind, T>), static_cast<unsigned>(parts), kBlock, stream, c,
                     static_cast<const T*>(x), static_cast<const T*>(t), positive, workspace);
    });
  }
  DLTRAIN_LAUNCH(add_pairs_kernel, 1u, kBlock, stream, workspace, parts, 1.0, loss, correct);
}

void launch_elementwise_loss_backward(const ElementwiseLossCall& c, const void* x, const void* t,
                                      const double* positive, const double* dloss, void* dx,
                                      CudaStream stream) {
  if (c.count == 0) return;
  with_loss(c, [&]<LossKind kind, typename T>(std::integral_constant<LossKind, kind>, T) {
    DLTRAIN_LAUNCH((loss_backward_kernel<kind, T>), stride_grid(c.count, kBlock), kBlock, stream, c,
                   static_cast<const T*>(x), static_cast<const T*>(t), positive, dloss,
                   static_cast<T*>(dx));
  });
}

void launch_weighted_cross_entropy(const WeightedCrossEntropyCall& c, const void* logits,
                                   const void* targets, const int32_t* mask, const double* weights,
                                   double* loss, void* log_sum_exp, double* correct,
                                   double* workspace, CudaStream stream) {
  if (c.rows > 0) {
    with_number(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH_ROWS(weighted_kernel, T, c.rows, c.classes, stream, c,
                          static_cast<const T*>(logits), targets, mask, weights,
                          static_cast<T*>(log_sum_exp), workspace);
    });
  }
  DLTRAIN_LAUNCH(add_pairs_kernel, 1u, kBlock, stream, workspace, c.rows, c.scale, loss, correct);
}

void launch_weighted_cross_entropy_backward(const WeightedCrossEntropyCall& c, const void* logits,
                                            const void* targets, const int32_t* mask,
                                            const double* weights, const void* log_sum_exp,
                                            const double* dloss, void* dlogits, CudaStream stream) {
  if (c.rows == 0) return;
  with_number(c.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH_ROWS(weighted_backward_kernel, T, c.rows, c.classes, stream, c,
                        static_cast<const T*>(logits), targets, mask, weights,
                        static_cast<const T*>(log_sum_exp), dloss, static_cast<T*>(dlogits));
  });
}

}  // namespace dltrain
