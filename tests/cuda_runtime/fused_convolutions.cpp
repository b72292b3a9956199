// Convolutions with batch norms through the engine's own choice between two steps and one plan of
// cuDNN. The cuDNN of the tests is told how long its plans take, and computes what they stand for.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "catch.h"
#include "config/load.h"
#include "cuda/makers.h"
#include "cuda/vendor/cudnn_plan.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/makers.h"
#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/quiet_step.h"
#include "cuda_runtime/recorded_steps.h"
#include "ops/runner.h"
#include "reference/engine.h"
#include "temporary_folder.h"
#include "train/session.h"
#include "train/trainer.h"

using namespace dltrain;

namespace {

// The kernels of the engine's table that are looked at here, in its order.
const Engine& engine_with_cudnn() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> out{{"conv2d_moments", "cuDNN", make_cudnn_conv2d_moments},
                               {"conv2d_batch_norm", "cuDNN", make_cudnn_conv2d_batch_norm}};
    out.insert(out.end(), cuda_own_rows().begin(), cuda_own_rows().end());
    return out;
  }();
  static const Engine engine{.name = "cuda",
                             .kernels = rows.data(),
                             .kernel_count = rows.size(),
                             .device_count = cuda_device_count,
                             .problem = cuda_problem,
                             .open = [](int index) -> std::unique_ptr<Device> {
                               return std::make_unique<CudaDevice>(index);
                             }};
  return engine;
}

// Until the end of the test: choices in a folder of their own, and a cuDNN that computes 1 by 1
// convolutions of bf16 images of these sizes. Our launches take 1 ms each.
struct Setting {
  TemporaryFolder folder;

  Setting(int64_t rows, int64_t in, int64_t out, std::vector<fake_cuda::DnnPlan> plans,
          fake_cuda::Order order = fake_cuda::Order::eager) {
    ::setenv("DLTRAIN_CACHE_DIR", folder.path().c_str(), 1);
    fake_cuda::reset(order);
    fake_cuda::set_launch_time(1);
    fake_cuda::set_plans(std::move(plans));
    fake_cuda::set_plan_work([=](const auto& tensors) { compute(tensors, rows, in, out); });
  }
  ~Setting() {
    ::unsetenv("DLTRAIN_CACHE_DIR");
    fake_cuda::reset();
  }

  static void compute(const std::map<int64_t, void*>& tensors, int64_t rows, int64_t in,
                      int64_t out) {
    using namespace cudnn_ids;
    const auto view = [&](int64_t id, const Shape& shape) {
      HostTensor tensor({shape, DType::bf16});
      std::memcpy(tensor.data.data(), tensors.at(id), tensor.data.size());
      return tensor;
    };
    const auto channels = [&](int64_t id) { return static_cast<float*>(tensors.at(id)); };
    const HostTensor x = view(kX, {rows, in}), w = view(kW, {out, in});
    HostTensor y({Shape{rows, out}, DType::bf16}), residual;
    const bool norm = tensors.contains(kScale);
    if (tensors.contains(kResidual)) residual = view(kResidual, {rows, out});
    for (int64_t i = 0; i < rows * out; ++i) {
      const int64_t k = i % out;
      double sum = 0;
      for (int64_t c = 0; c < in; ++c) sum += x.get(i / out * in + c) * w.get(k * in + c);
      if (norm)
        sum = std::max(sum * channels(kScale)[k] + channels(kShift)[k] +
                           (residual.data.empty() ? 0 : residual.get(i)),
                       0.0);
      y.set(i, sum);
    }
    std::memcpy(tensors.at(kY), y.data.data(), y.data.size());
    if (!tensors.contains(kSum)) return;
    for (int64_t k = 0; k < out; ++k) {
      float sum = 0, squares = 0;
      for (int64_t i = k; i < rows * out; i += out) {
        const auto value = static_cast<float>(y.get(i));
        sum += value;
        squares += value * value;
      }
      channels(kSum)[k] = sum;
      channels(kSquares)[k] = squares;
    }
  }
};

struct Result {
  std::string variant;
  std::vector<HostTensor> outputs;
  int64_t runs;  // of plans, to choose and to compute
};

// One run of an op on 2 images of 8 by 8 places, 16 channels to 32.
constexpr int64_t kRows = 128, kIn = 16, kOut = 32;
Result run(Device& device, const std::string& op) {
  const bool norm = op == "conv2d_batch_norm";
  const DType dtype = DType::bf16;
  std::vector<HostTensor> in{random_tensor({Shape{2, 8, 8, kIn}, dtype}, "x"),
                             random_tensor({Shape{kOut, 1, 1, kIn}, dtype}, "w")};
  Attributes attributes;
  if (norm) {
    for (const char* name : {"gamma", "beta", "mean", "variance"}) {
      in.push_back(random_tensor({Shape{kOut}, DType::f32}, name));
    }
    for (int64_t k = 0; k < kOut; ++k) in[5].set(k, 1 + std::abs(in[5].get(k)));
    in.push_back(random_tensor({Shape{2, 8, 8, kOut}, dtype}, "residual"));
    attributes = {{"epsilon", 0.5}, {"activation", std::string("relu")}};
  }
  const SpecList inputs = specs_of(in), outputs = find_op(op)->infer(inputs, attributes);
  const int64_t before = fake_cuda::counts().convolutions;
  const FoundKernel found = find_kernel(
      engine_with_cudnn(),
      {.op = op, .attributes = attributes, .inputs = inputs, .outputs = outputs, .device = device});
  std::vector<Buffer> memory;
  const auto place = [&](size_t bytes) { return memory.emplace_back(device, bytes).data(); };
  const auto stream = device.make_stream();
  std::vector<void*> to, from;
  for (const HostTensor& tensor : in) {
    from.push_back(place(tensor.data.size()));
    device.copy(from.back(), tensor.data.data(), tensor.data.size(), *stream);
  }
  for (const TensorSpec& spec : outputs) to.push_back(place(spec.bytes()));
  void* workspace = place(found.kernel->workspace_bytes());
  found.kernel->bind({.inputs = from, .outputs = to, .workspace = workspace});
  found.kernel->run(*stream);
  Result out{std::string(found.row->variant), {}, 0};
  for (size_t i = 0; i < outputs.size(); ++i) {
    out.outputs.emplace_back(outputs[i]);
    device.copy(out.outputs[i].data.data(), to[i], outputs[i].bytes(), *stream);
  }
  stream->synchronize();
  out.runs = fake_cuda::counts().convolutions - before;
  return out;
}

// But for the rounding of y, and of what a norm reads, to 16 bits.
void check_same(const Result& found, const Result& expected) {
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    const HostTensor &a = found.outputs[i], &b = expected.outputs[i];
    double largest = 0, worst = 0;
    for (int64_t k = 0; k < b.elements(); ++k) {
      largest = std::max(largest, std::abs(b.get(k)));
      worst = std::max(worst, std::abs(a.get(k) - b.get(k)));
    }
    INFO("output " << i);
    CHECK(worst <= (i == 0 ? 0.02 : 1e-5) * largest);
  }
}

TEST_CASE("a plan of a convolution with its norm is taken where it is faster, with the results") {
  for (const std::string op : {"conv2d_moments", "conv2d_batch_norm"}) {
    INFO(op);
    // Two steps are several launches of ours. The first plan is slow, the second refuses.
    const Setting fast(kRows, kIn, kOut,
                       {{.milliseconds = 40}, {.milliseconds = -1}, {.milliseconds = 0.5}});
    const auto device = engine_with_cudnn().open(0);
    const Result plain = run(*device, op);
    CHECK(plain.variant == "two steps");
    CHECK(plain.runs == 0);
    device->set_autotune(Autotune::quick);
    const Result fused = run(*device, op);
    CHECK(fused.variant == "cuDNN");
    CHECK(fused.runs > 3);
    check_same(fused, plain);
    CHECK(run(*device, op).runs == 1);
    // Another process takes the choice from the disk.
    const auto later = engine_with_cudnn().open(0);
    later->set_autotune(Autotune::quick);
    CHECK(run(*later, op).runs == 1);
    // A cuDNN that does not propose it any more.
    fake_cuda::set_plans({{.milliseconds = 40}});
    CHECK(run(*later, op).variant == "two steps");
  }
}

TEST_CASE("two steps are kept where they are faster, and where cuDNN has no plan") {
  for (const std::string op : {"conv2d_moments", "conv2d_batch_norm"}) {
    INFO(op);
    const Setting slow(kRows, kIn, kOut, {{.milliseconds = 40}, {.milliseconds = 50}});
    const auto device = engine_with_cudnn().open(0);
    const Result plain = run(*device, op);
    device->set_autotune(Autotune::quick);
    const Result timed = run(*device, op);
    CHECK(timed.variant == "two steps");
    CHECK(timed.runs > 1);
    for (size_t i = 0; i < plain.outputs.size(); ++i) {
      CHECK(timed.outputs[i].data == plain.outputs[i].data);
    }
    CHECK(run(*device, op).runs == 0);
    fake_cuda::set_plans({});
    device->set_autotune(Autotune::full);
    CHECK(run(*device, op).variant == "two steps");
  }
}

RecordedSteps train_convnet(const std::vector<std::string>& extra, std::string* graph = nullptr) {
  std::vector<std::string> overrides{
      "model.layers=[{type: conv2d, out_channels: 8, kernel_size: 1, bias: false}, batch_norm, "
      "relu, "
      "flatten, {linear: 5}]",
      "data.train={type: synthetic, shape: [4, 4, 8], classes: 5, samples: 64}",
      "optimizer={type: sgd, learning_rate: 0.05}",
      "training={global_batch_size: 8, max_steps: 8}",
      "logging.logging_steps=1",
      "precision.compute=bf16",
      "device=cpu"};  // the place where the session takes the engine
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  SessionOptions options{
      .engines = {.cpu = &engine_with_cudnn(), .reference = &reference_engine()}};
  options.log = [&](std::string_view pass, const Graph& g) {
    if (graph != nullptr && pass == "fuse") *graph = print_graph(g);
  };
  Session session = open_session(experiment, options);
  start_session(session);
  RecordedSteps out;
  train(session, out.events(), {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return out;
}

TEST_CASE("training with fused plans has the losses of training without, and waits for nothing") {
  for (const auto& extra :
       {std::vector<std::string>{}, std::vector<std::string>{"training.micro_batch_size=4"},
        std::vector<std::string>{"memory.recompute=full"}}) {
    const int64_t rows = (extra.empty() || !extra[0].starts_with("training") ? 8 : 4) * 16;
    const Setting setting(rows, 8, 8, {{.milliseconds = 0.5}}, fake_cuda::Order::late);
    std::string graph;
    const RecordedSteps plain = train_convnet(extra, &graph);
    CHECK_THAT(graph, Catch::Matchers::Contains("conv2d_moments("));
    CHECK(fake_cuda::counts().convolutions == 0);
    std::vector<std::string> tuned = extra;
    tuned.push_back("autotune=quick");
    const RecordedSteps fused = train_convnet(tuned);
    CHECK(fake_cuda::counts().convolutions > 3);
    REQUIRE(fused.loss.size() == 8);
    for (size_t i = 0; i < fused.loss.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(fused.loss[i] == Approx(plain.loss[i]).epsilon(0.01));
    }
    // From the fourth on every segment is captured. The last one waits for its own results.
    for (size_t step = 4; step + 1 < fused.counts.size(); ++step) {
      INFO("step " << step);
      check_quiet(fused.counts[step - 1], fused.counts[step]);
    }
  }
}

}  // namespace
