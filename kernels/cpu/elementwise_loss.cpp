// elementwise_loss and its gradient. Losses are added in double over fixed chunks and in order, so
// that they never depend on the number of threads.
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/losses.h"

namespace dltrain {
namespace {

constexpr int64_t kChunk = 4096;

struct Sums {
  double loss = 0, correct = 0;
};

struct Arguments {
  const float *x = nullptr, *t = nullptr;
  float delta = 1;
  std::vector<float> positive;  // repeats along the elements
};

template <LossKind kind>
Sums add_up(const Arguments& a, int64_t begin, int64_t end) {
  Sums sums;
  const auto period = static_cast<int64_t>(a.positive.size());
  for (int64_t i = begin; i < end; ++i) {
    const float x = a.x[i], t = a.t[i];
    if (std::isnan(t)) continue;
    const float positive = a.positive[static_cast<size_t>(period == 1 ? 0 : i % period)];
    sums.loss += static_cast<double>(loss_value<kind>(x, t, a.delta, positive));
    sums.correct += (x > 0) == (t > 0.5f) ? 1 : 0;
  }
  return sums;
}

template <LossKind kind>
void differentiate(const Arguments& a, float dloss, float* dx, int64_t begin, int64_t end) {
  const auto period = static_cast<int64_t>(a.positive.size());
  for (int64_t i = begin; i < end; ++i) {
    const float t = a.t[i];
    const float positive = a.positive[static_cast<size_t>(period == 1 ? 0 : i % period)];
    dx[i] = std::isnan(t) ? 0.0f : dloss * loss_slope<kind>(a.x[i], t, a.delta, positive);
  }
}

struct Functions {
  std::string_view name;
  Sums (*add_up)(const Arguments&, int64_t, int64_t);
  void (*differentiate)(const Arguments&, float, float*, int64_t, int64_t);
};

template <LossKind kind>
constexpr Functions functions(std::string_view name) {
  return {name, add_up<kind>, differentiate<kind>};
}

constexpr Functions kFunctions[] = {
    functions<LossKind::mse>("mse"),
    functions<LossKind::l1>("l1"),
    functions<LossKind::huber>("huber"),
    functions<LossKind::smooth_l1>("smooth_l1"),
    functions<LossKind::binary_cross_entropy>("binary_cross_entropy"),
};

const Functions& functions_of(const KernelRequest& request) {
  const std::string kind = request.attributes.text("kind");
  for (const Functions& row : kFunctions) {
    if (row.name == kind) return row;
  }
  fail(ExitCode::internal, "elementwise_loss: kind \"{}\"", kind);
}

Arguments arguments_of(const KernelRequest& request) {
  Arguments out;
  out.delta = static_cast<float>(request.attributes.number("delta", 1));
  for (double p : request.attributes.numbers("pos_weight", {1.0})) {
    out.positive.push_back(static_cast<float>(p));
  }
  return out;
}

class ElementwiseLoss final : public Kernel {
 public:
  explicit ElementwiseLoss(const KernelRequest& request)
      : arguments_(arguments_of(request)),
        function_(functions_of(request).add_up),
        count_(request.inputs[0].shape.elements()) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(ceil_div(count_, kChunk)) * sizeof(Sums);
  }
  void bind(const Bindings& bindings) override {
    arguments_.x = input<const float>(bindings, 0);
    arguments_.t = input<const float>(bindings, 1);
    loss_ = output<double>(bindings, 0);
    correct_ = bindings.outputs.size() > 1 ? output<double>(bindings, 1) : nullptr;
    sums_ = static_cast<Sums*>(bindings.workspace);
  }
  void run(Stream&) override {
    const int64_t chunks = ceil_div(count_, kChunk);
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        sums_[c] = function_(arguments_, c * kChunk, std::min(count_, (c + 1) * kChunk));
      }
    });
    Sums total;
    for (int64_t c = 0; c < chunks; ++c) {
      total.loss += sums_[c].loss;
      total.correct += sums_[c].correct;
    }
    *loss_ = total.loss;
    if (correct_ != nullptr) *correct_ = total.correct;
  }

 private:
  Arguments arguments_;
  Sums (*function_)(const Arguments&, int64_t, int64_t);
  int64_t count_;
  double *loss_ = nullptr, *correct_ = nullptr;
  Sums* sums_ = nullptr;
};

class ElementwiseLossBackward final : public Kernel {
 public:
  explicit ElementwiseLossBackward(const KernelRequest& request)
      : arguments_(arguments_of(request)),
        function_(functions_of(request).differentiate),
        count_(request.inputs[0].shape.elements()) {}

  void bind(const Bindings& bindings) override {
    arguments_.x = input<const float>(bindings, 0);
    arguments_.t = input<const float>(bindings, 1);
    dloss_ = input<const double>(bindings, 2);
    dx_ = output<float>(bindings, 0);
  }
  void run(Stream&) override {
    const auto dloss = static_cast<float>(*dloss_);
    parallel_for(count_, kChunk, [&](int64_t begin, int64_t end) {
      function_(arguments_, dloss, dx_, begin, end);
    });
  }

 private:
  Arguments arguments_;
  void (*function_)(const Arguments&, float, float*, int64_t, int64_t);
  int64_t count_;
  const double* dloss_ = nullptr;
  float* dx_ = nullptr;
};

}  // namespace

MadeKernel make_elementwise_loss(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  return std::make_unique<ElementwiseLoss>(request);
}

MadeKernel make_elementwise_loss_backward(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  return std::make_unique<ElementwiseLossBackward>(request);
}

}  // namespace dltrain
