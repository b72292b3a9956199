// A plug-in with a layer, a loss and their ops:
//
//   snake     y = x + sin²(αx) / α with a learnt α > 0 for each channel, for data with periods
//             (Ziyin, Hartwig and Ueda 2020)
//   quantile  the pinball loss, whose minimum is the quantile q of the targets, not their mean
//
// The kernels compute in f32 and f64; in bf16 and f16 dltrain runs the ops in f32.
#include <algorithm>
#include <cmath>

#include "nn/plugin.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifdef SNAKE_CUDA
#include "snake_cuda.h"
#endif

namespace {

using namespace dltrain;

// The ops. A signature names shapes and dtypes: x has any number of axes, and C channels in the
// last. The gradient of an op is another op; it returns one value for each input.
std::vector<ValueId> snake_gradient(const GradientRequest& r) {
  return r.emitter.emit("snake_backward", {r.inputs[0], r.inputs[1], r.output_gradients[0]});
}

std::vector<ValueId> quantile_gradient(const GradientRequest& r) {
  return {r.emitter.emit1("quantile_loss_backward",
                          {r.inputs[0], r.inputs[1], r.output_gradients[0]}, r.attributes),
          kNoValue};
}

constinit const OpDef kOps[] = {
    {.name = "snake",
     .doc = "x + sin²(αx) / α",
     .signature = "x[*,C] alpha[C] -> y[*,C]",
     .gradient = snake_gradient,
     .cost = cost_an_element<10>},
    {.name = "snake_backward",
     .doc = "dx, dalpha of snake",
     .signature = "x[*,C] alpha[C] dy[*,C] -> dx[*,C] dalpha[C]",
     .cost = cost_an_element<20>},
    {.name = "quantile_loss",
     .doc = "sum of max(q·d, (q − 1)·d), d = target − x",
     .signature = "x[*] targets[*]:sum -> loss[1]:f64",
     .gradient = quantile_gradient,
     .cost = cost_an_element<4>},
    {.name = "quantile_loss_backward",
     .doc = "dx of quantile_loss",
     .signature = "x[*] targets[*]:sum dloss[1]:f64 -> dx[*]",
     .cost = cost_an_element<2>},
};

// Kernels: a maker reads shapes and attributes, and returns a function of the addresses.
template <typename T>
std::unique_ptr<Kernel> snake_kernel(const KernelRequest& request) {
  const int64_t count = request.inputs[0].shape.elements(), channels = request.inputs[0].shape[-1];
  return make_kernel([=](const Bindings& call, Stream&) {
    const T *x = call.input<T>(0), *alpha = call.input<T>(1);
    T* y = call.output<T>(0);
    for (int64_t i = 0; i < count; ++i) {
      const T a = alpha[i % channels], sine = std::sin(a * x[i]);
      y[i] = x[i] + sine * sine / a;
    }
  });
}

// dy/dx = 1 + sin(2αx);  dy/dα = (x·sin(2αx) − sin²(αx) / α) / α
template <typename T>
std::unique_ptr<Kernel> snake_backward_kernel(const KernelRequest& request) {
  const int64_t count = request.inputs[0].shape.elements(), channels = request.inputs[0].shape[-1];
  return make_kernel([=](const Bindings& call, Stream&) {
    const T *x = call.input<T>(0), *alpha = call.input<T>(1), *dy = call.input<T>(2);
    T *dx = call.output<T>(0), *dalpha = call.output<T>(1);
    std::fill(dalpha, dalpha + channels, T(0));
    for (int64_t i = 0; i < count; ++i) {
      const T a = alpha[i % channels], sine = std::sin(a * x[i]), slope = std::sin(2 * a * x[i]);
      dx[i] = dy[i] * (1 + slope);
      dalpha[i % channels] += dy[i] * (x[i] * slope - sine * sine / a) / a;
    }
  });
}

// A target that is NaN does not count: padding of the last batch, or a cell without a value.
template <typename T>
std::unique_ptr<Kernel> quantile_kernel(const KernelRequest& request) {
  return make_kernel([count = request.inputs[0].shape.elements(),
                      q = request.attributes.number("quantile")](const Bindings& call, Stream&) {
    const T *x = call.input<T>(0), *targets = call.input<T>(1);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double d = double(targets[i]) - double(x[i]);
      if (!std::isnan(targets[i])) sum += std::max(q * d, (q - 1) * d);
    }
    *call.output<double>(0) = sum;
  });
}

template <typename T>
std::unique_ptr<Kernel> quantile_backward_kernel(const KernelRequest& request) {
  return make_kernel([count = request.inputs[0].shape.elements(),
                      q = request.attributes.number("quantile")](const Bindings& call, Stream&) {
    const T *x = call.input<T>(0), *targets = call.input<T>(1);
    const double dloss = *call.input<double>(2);
    for (int64_t i = 0; i < count; ++i) {
      const double slope = targets[i] > x[i] ? -q : 1 - q;
      call.output<T>(0)[i] = std::isnan(targets[i]) ? T(0) : T(slope * dloss);
    }
  });
}

// Returns nullptr for dtypes that the kernels do not compute in.
template <KernelMaker kF32, KernelMaker kF64>
std::unique_ptr<Kernel> by_dtype(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  return dtype == DType::f32 ? kF32(request) : dtype == DType::f64 ? kF64(request) : nullptr;
}

constinit const KernelRow kKernels[] = {
    {"snake", "loop", by_dtype<snake_kernel<float>, snake_kernel<double>>},
    {"snake_backward", "loop",
     by_dtype<snake_backward_kernel<float>, snake_backward_kernel<double>>},
    {"quantile_loss", "loop", by_dtype<quantile_kernel<float>, quantile_kernel<double>>},
    {"quantile_loss_backward", "loop",
     by_dtype<quantile_backward_kernel<float>, quantile_backward_kernel<double>>},
};

#ifdef SNAKE_CUDA
// A kernel on a GPU only queues work on the stream. run(sizes, bindings, stream) does, in f32.
struct Sizes {
  int64_t count, channels;
  double quantile;
};
using CudaRun = int (*)(const Sizes& sizes, const Bindings& call, void* stream);

template <CudaRun kRun>
std::unique_ptr<Kernel> cuda_kernel(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (x.dtype != DType::f32) return nullptr;
  const Sizes sizes{x.shape.elements(), x.shape[-1], request.attributes.number("quantile", 0)};
  return make_kernel([sizes, op = std::string(request.op)](const Bindings& call, Stream& stream) {
    const int error = kRun(sizes, call, stream.native());
    if (error != 0) fail(ExitCode::device, "{} failed to start: CUDA error {}", op, error);
  });
}

int run_snake(const Sizes& sizes, const Bindings& call, void* stream) {
  return launch_snake(sizes.count, sizes.channels, call.input<float>(0), call.input<float>(1),
                      call.output<float>(0), stream);
}
int run_snake_backward(const Sizes& sizes, const Bindings& call, void* stream) {
  return launch_snake_backward(sizes.count, sizes.channels, call.input<float>(0),
                               call.input<float>(1), call.input<float>(2), call.output<float>(0),
                               call.output<float>(1), stream);
}
int run_quantile(const Sizes& sizes, const Bindings& call, void* stream) {
  return launch_quantile(sizes.count, sizes.quantile, call.input<float>(0), call.input<float>(1),
                         call.output<double>(0), stream);
}
int run_quantile_backward(const Sizes& sizes, const Bindings& call, void* stream) {
  return launch_quantile_backward(sizes.count, sizes.quantile, call.input<float>(0),
                                  call.input<float>(1), call.input<double>(2),
                                  call.output<float>(0), stream);
}

constinit const KernelRow kCudaKernels[] = {
    {"snake", "loop", cuda_kernel<run_snake>},
    {"snake_backward", "loop", cuda_kernel<run_snake_backward>},
    {"quantile_loss", "loop", cuda_kernel<run_quantile>},
    {"quantile_loss_backward", "loop", cuda_kernel<run_quantile_backward>},
};
#endif

// The layer: keys, a parameter, and the op.
struct Snake final : Layer {
  double alpha = 1;

  void describe(Fields& f) override {
    f.number("alpha", alpha, {.doc = "Initial value of every channel's α", .above = 0});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const Initializer initial{Initializer::constant, alpha};
    return c.builder().emit1("snake", {x, c.parameter("alpha", {c.shape(x)[-1]}, initial)});
  }
};

// The loss: its op gives a sum, which dltrain divides by the number of targets that count.
struct Quantile final : Loss {
  double quantile = 0.5;

  void describe(Fields& f) override {
    f.number("quantile", quantile,
             {.doc = "The quantile of the targets that the model learns", .above = 0, .below = 1});
  }
  LossOutput emit(LayerContext& c, ValueId output, ValueId targets,
                  const TargetInfo&) const override {
    return {c.builder().emit1("quantile_loss", {output, targets}, {{"quantile", quantile}}), {}};
  }
  TensorSpec targets(const TensorSpec& output, const TargetInfo& info) const override {
    expect_target_sample(kind, info, like_output(output));
    return like_output(output);
  }
  int64_t classes(const TensorSpec&) const override { return 0; }
  TargetKind target_kind(const TargetInfo&) const override { return TargetKind::numbers; }
};

const Plugin& snake_plugin() {
  static const Plugin plugin{
      .ops = kOps,
      .cpu_kernels = kKernels,
#ifdef SNAKE_CUDA
      .cuda_kernels = kCudaKernels,
#endif
      .reference_kernels = kKernels,
      .layers = {{"snake", "x + sin²(αx) / α with a learnt α for each channel", make_kind_of<Snake>,
                  "alpha"}},
      .losses = {{"quantile", "pinball loss", make_kind_of<Quantile>}}};
  return plugin;
}

}  // namespace

DLTRAIN_PLUGIN(snake_plugin)
