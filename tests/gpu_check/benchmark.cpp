#include "gpu_check/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "gpu_check/timed_ops.h"
#include "ops/kernel.h"
#include "ops/runner.h"
#include "ops/step_state.h"
#include "shared/recurrent_parts.h"

namespace dltrain {
namespace {

// Random contents: zeros hide errors, and run faster on real hardware.
void fill(Device& device, Stream& stream, const TensorSpec& spec, std::byte* to) {
  std::vector<std::byte> content(spec.bytes());
  if (is_floating(spec.dtype)) {
    const HostTensor block = random_tensor({Shape{1 << 20}, spec.dtype}, to_string(spec));
    for (size_t at = 0; at < content.size(); at += block.data.size()) {
      std::memcpy(content.data() + at, block.data.data(),
                  std::min(block.data.size(), content.size() - at));
    }
  } else if (spec.dtype == DType::u8) {
    StepState state{};
    state.in = {.seed = 1,
                .step = 3,
                .sample_offset = 2,
                .learning_rate = 1e-3,
                .inverse_valid = 1,
                .max_grad_norm = 1};
    state.out = {.grad_norm = 1, .gradient_factor = 1, .updates = 4, .finite = 1};
    std::memcpy(content.data(), &state, sizeof state);
  }
  device.copy(to, content.data(), content.size(), stream);
  stream.synchronize();
}

// The median over `samples` of the mean of `repeats` runs between two waits, in milliseconds.
double median_time(Stream& stream, int samples, int repeats, const std::function<void()>& once) {
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) once();
    stream.synchronize();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    times.push_back(spent.count() / repeats);
  }
  std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
  return times[static_cast<size_t>(samples / 2)];
}

// By `row`, or by the first that takes the op. False: the row does not take it.
bool time_op(const TimedOp& timed, const KernelRow* row, const Engine& engine, Device& device,
             Stream& stream, double sample_ms, Timing& timing) {
  const OpDef& op = *find_op(timed.op);
  const SpecList outputs = op.output_specs(timed.inputs, timed.attributes);
  const KernelRequest request{.op = timed.op,
                              .attributes = timed.attributes,
                              .inputs = timed.inputs,
                              .outputs = outputs,
                              .device = device};
  FoundKernel found = row == nullptr ? find_kernel(engine, request)
                                     : FoundKernel{.kernel = row->make(request), .row = row};
  if (found.kernel == nullptr) return false;
  timing.variant = found.row->variant;
  const std::vector<int> aliases =
      op.output_aliases(timed.inputs, timed.attributes, outputs.size());
  std::vector<Buffer> memory;
  std::vector<void*> in, out;
  for (const TensorSpec& spec : timed.inputs) {
    memory.emplace_back(device, spec.bytes());
    fill(device, stream, spec, memory.back().data());
    in.push_back(memory.back().data());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (aliases[i] < 0) memory.emplace_back(device, outputs[i].bytes());
    out.push_back(aliases[i] < 0 ? memory.back().data() : in[static_cast<size_t>(aliases[i])]);
  }
  const Buffer workspace(device, std::max<size_t>(found.kernel->workspace_bytes(), 1));
  const BoundCall call(*found.kernel, in, out, workspace.data());

  const auto once = [&] { call.run(stream); };
  once();  // set-up of the vendor's library
  stream.synchronize();
  const int repeats = std::clamp(
      static_cast<int>(sample_ms / std::max(median_time(stream, 1, 1, once), 0.01)), 1, 200);
  timing.milliseconds = median_time(stream, 7, repeats, once);
  const Cost cost = op_cost(op, timed.inputs, outputs, timed.attributes);
  timing.gigabytes_per_second = cost.bytes / timing.milliseconds * 1e-6;
  timing.teraflops = cost.flops / timing.milliseconds * 1e-9;
  return true;
}

// Forward and backward of an LSTM layer by every row that the engine has for it: cuDNN beside the
// engine's own kernels.
class TimedNetwork {
 public:
  TimedNetwork(const Engine& engine, Device& device, DType dtype, double factor)
      : engine_(engine), device_(device), stream_(device.make_stream()) {
    const auto scaled = [&](int64_t n) {
      return std::max<int64_t>(4, static_cast<int64_t>(static_cast<double>(n) * factor));
    };
    const int64_t samples = scaled(64), tokens = scaled(128), hidden = scaled(1024);
    name_ = fmt::format("lstm {}x{}x{} {}", samples, tokens, hidden, dtype_name(dtype));
    const TensorSpec w{Shape{4 * hidden, hidden}, dtype}, b{Shape{4 * hidden}, dtype};
    inputs_ = {{Shape{samples, tokens, hidden}, dtype}, w, w, b, b, absent_spec(), absent_spec()};
  }

  void time(const std::function<void(const Timing&)>& show) {
    for (size_t i = 0; i < engine_.kernel_count; ++i) {
      const KernelRow& row = engine_.kernels[i];
      if (row.op != kForward || row.variant == "through f32") continue;
      try {
        time_row(row, show);
      } catch (const Error& why) {
        show({.op = name_, .variant = std::string(row.variant), .fault = why.what()});
      }
    }
  }

 private:
  static constexpr std::string_view kForward = "recurrent_network",
                                    kBackward = "recurrent_network_backward";

  void time_row(const KernelRow& row, const std::function<void(const Timing&)>& show) {
    memory_.clear();
    Attributes attributes{{"kind", "lstm"}, {"reverse", false}, {"kept_bytes", int64_t{0}}};
    SpecList outputs = find_op(kForward)->output_specs(inputs_, attributes);
    const KernelRequest request{.op = kForward,
                                .attributes = attributes,
                                .inputs = inputs_,
                                .outputs = outputs,
                                .device = device_};
    const auto kept = row.kept_bytes != nullptr ? row.kept_bytes(request)
                                                : std::optional(parts_kept_bytes(request));
    if (!kept) return;
    attributes.set("kept_bytes", *kept);
    outputs = find_op(kForward)->output_specs(inputs_, attributes);
    const TensorSpec y = outputs[0];
    const SpecList back{y,          inputs_[0], y,          inputs_[1], inputs_[2],
                        inputs_[3], inputs_[4], inputs_[5], inputs_[6], outputs.back()};
    const SpecList gradients = find_op(kBackward)->output_specs(back, attributes);
    std::vector<void*> x = allocate(inputs_, true), made = allocate(outputs, false);
    std::vector<void*> from{
        allocate({y}, true)[0], x[0], made[0], x[1], x[2], x[3], x[4], x[5], x[6], made.back()};
    const auto forward = make(row, kForward, attributes, inputs_, outputs);
    const auto backward = make(row, kBackward, attributes, back, gradients);
    if (forward == nullptr || backward == nullptr) return;
    const BoundCall forward_call(*forward, x, made, workspace_of(*forward));
    const BoundCall backward_call(*backward, from, allocate(gradients, false),
                                  workspace_of(*backward));
    const auto once = [&] {
      forward_call.run(*stream_);
      backward_call.run(*stream_);
    };
    once();
    stream_->synchronize();
    Timing timing{.op = name_, .variant = std::string(row.variant)};
    timing.milliseconds = median_time(*stream_, 7, 3, once);
    for (const auto& [op, in, out] :
         {std::tuple(kForward, inputs_, outputs), std::tuple(kBackward, back, gradients)}) {
      const Cost cost = op_cost(*find_op(op), in, out, attributes);
      timing.gigabytes_per_second += cost.bytes / timing.milliseconds * 1e-6;
      timing.teraflops += cost.flops / timing.milliseconds * 1e-9;
    }
    show(timing);
  }

  std::vector<void*> allocate(const SpecList& specs, bool filled) {
    std::vector<void*> out;
    for (const TensorSpec& spec : specs) {
      memory_.emplace_back(device_, spec.bytes());
      if (filled && is_floating(spec.dtype)) {
        fill(device_, *stream_, spec, memory_.back().data());
      }
      out.push_back(memory_.back().data());
    }
    return out;
  }

  // By the row of this variant.
  std::unique_ptr<Kernel> make(const KernelRow& like, std::string_view op,
                               const Attributes& attributes, SpecSpan inputs, SpecSpan outputs) {
    for (size_t i = 0; i < engine_.kernel_count; ++i) {
      const KernelRow& row = engine_.kernels[i];
      if (row.op != op || row.variant != like.variant) continue;
      auto kernel = row.make({.op = op,
                              .attributes = attributes,
                              .inputs = inputs,
                              .outputs = outputs,
                              .device = device_});
      if (kernel != nullptr) return kernel;
    }
    return nullptr;
  }
  void* workspace_of(const Kernel& kernel) {
    memory_.emplace_back(device_, std::max<size_t>(kernel.workspace_bytes(), 1));
    return memory_.back().data();
  }

  const Engine& engine_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::string name_;
  SpecList inputs_;
  std::vector<Buffer> memory_;
};

}  // namespace

bool time_ops(const Engine& engine, Device& device, const std::string& set, double factor,
              const std::function<void(const Timing&)>& show) {
  const auto stream = device.make_stream();
  bool passed = true;
  const auto guarded = [&](Timing timing, const std::function<bool(Timing&)>& measure) {
    try {
      if (!measure(timing)) return;
    } catch (const Error& error) {
      timing.fault = error.what();
      passed = false;
    }
    if (timing.milliseconds > 0 || !timing.fault.empty()) show(timing);
  };
  for (const TimedOp& timed : timed_ops(set, factor)) {
    const auto by = [&](const KernelRow* row) {
      guarded({.op = timed.name}, [&](Timing& timing) {
        if (row != nullptr) timing.variant = row->variant;
        return time_op(timed, row, engine, device, *stream, factor < 1 ? 1 : 20, timing);
      });
    };
    if (!timed.every_row) by(nullptr);
    for (size_t i = 0; timed.every_row && i < engine.kernel_count; ++i) {
      const KernelRow& row = engine.kernels[i];
      if (row.op == timed.op && row.variant != "through f32") by(&row);
    }
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (set != "variants") break;
    guarded({.op = "lstm"}, [&](Timing&) {
      TimedNetwork(engine, device, dtype, factor).time(show);
      return false;
    });
  }
  return passed;
}

}  // namespace dltrain
