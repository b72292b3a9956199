// elementwise_loss and its gradient. Losses are added in double over fixed chunks and in order, so
// that they do not depend on the number of threads.
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/losses.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kChunk = 4096;

struct Arguments {
  const float *x = nullptr, *t = nullptr;
  float delta = 1;
  std::span<const float> positive;  // repeated over the elements
};

template <LossKind kind>
LossSums add_up(const Arguments& a, int64_t begin, int64_t end) {
  LossSums sums;
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
  LossSums (*add_up)(const Arguments&, int64_t, int64_t);
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
  return out;
}

std::vector<float> positive_weights(const KernelRequest& request) {
  const std::vector<double> weights = request.attributes.numbers("pos_weight", {1.0});
  return {weights.begin(), weights.end()};
}

}  // namespace

std::unique_ptr<Kernel> make_elementwise_loss(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t count = request.inputs[0].shape.elements(), chunks = ceil_div(count, kChunk);
  const auto run = [call = arguments_of(request), positive = positive_weights(request),
                    function = functions_of(request).add_up, count,
                    chunks](const Bindings& b, Stream&) {
    auto arguments = call;
    arguments.positive = positive;
    arguments.x = b.input<float>(0);
    arguments.t = b.input<float>(1);
    auto* sums = static_cast<LossSums*>(b.workspace);
    parallel_each(chunks, 1, [&](int64_t c) {
      sums[c] = function(arguments, c * kChunk, std::min(count, (c + 1) * kChunk));
    });
    const LossSums total = total_of(sums, chunks);
    *b.output<double>(0) = total.loss;
    if (b.outputs.size() > 1) *b.output<double>(1) = total.correct;
  };
  return make_kernel(run, static_cast<size_t>(chunks) * sizeof(LossSums));
}

std::unique_ptr<Kernel> make_elementwise_loss_backward(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  return make_kernel([call = arguments_of(request), positive = positive_weights(request),
                      function = functions_of(request).differentiate,
                      count = request.inputs[0].shape.elements()](const Bindings& b, Stream&) {
    auto arguments = call;
    arguments.positive = positive;
    arguments.x = b.input<float>(0);
    arguments.t = b.input<float>(1);
    const auto dloss = static_cast<float>(*b.input<double>(2));
    parallel_for(count, kChunk, [&](int64_t begin, int64_t end) {
      function(arguments, dloss, b.output<float>(0), begin, end);
    });
  });
}

}  // namespace dltrain
