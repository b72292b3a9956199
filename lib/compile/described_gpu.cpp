#include "compile/described_gpu.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/kernel.h"
#include "ops/op.h"

namespace dltrain {
namespace {

[[noreturn]] void never() {
  fail(ExitCode::internal, "internal error: a described GPU was used");
}

class DescribedEvent final : public Event {
 public:
  void record(Stream&) override { never(); }
  void make_wait(Stream&) override { never(); }
  void synchronize() override { never(); }
};

class DescribedDevice final : public Device {
 public:
  explicit DescribedDevice(const Gpu& gpu)
      : properties_{.backend = "cuda",
                    .name = gpu.name + " (described)",
                    .architecture = "",
                    .libraries = "",
                    .total_memory = static_cast<uint64_t>(gpu.memory_bytes),
                    .free_memory = static_cast<uint64_t>(gpu.memory_bytes),
                    .processors = static_cast<int>(gpu.multiprocessors),
                    .has_fp8 = gpu.flops_fp8 > 0,
                    .fp8_block = static_cast<int>(gpu.fp8_block)} {}
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t, Memory) override { never(); }
  void free(void*, Memory) override { never(); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DescribedEvent>(); }
  void copy(void*, const void*, size_t, Stream&) override { never(); }
  void zero(void*, size_t, Stream&) override { never(); }
  std::unique_ptr<CapturedGraph> capture(Stream&, const std::function<void()>&) override {
    never();
  }

 private:
  DeviceProperties properties_;
};

class DescribedKernel final : public Kernel {
 public:
  explicit DescribedKernel(size_t workspace) : workspace_(workspace) {}
  size_t workspace_bytes() const override { return workspace_; }
  void run(const Bindings&, Stream&) const override { never(); }

 private:
  size_t workspace_;
};

// The limits of kernels/cuda/vendor; the backward of attention adds up its gradients in f32.
std::unique_ptr<Kernel> make_described(const KernelRequest& request) {
  size_t workspace = 0;
  if (request.op == "matmul" || request.op == "fp8_matmul") workspace = size_t{32} << 20;
  if (request.op.starts_with("conv2d")) workspace = size_t{256} << 20;
  if (request.op == "attention_backward") {
    workspace = sizeof(float) * static_cast<size_t>(request.outputs[0].shape.elements());
  }
  return std::make_unique<DescribedKernel>(workspace);
}

// Returns whether the tables of kernels/cuda have a kernel of the op that accumulates.
bool described_accumulates(const OpDef& op) {
  constexpr std::array kAdding{"matmul",
                               "fp8_matmul",
                               "conv2d_backward_input",
                               "conv2d_backward_weight",
                               "broadcast",
                               "reduce",
                               "embedding_backward",
                               "confusion_matrix",
                               "top_k_correct",
                               "regression_sums",
                               "binary_counts",
                               "source_sums",
                               "grouped_matmul_backward_weight"};
  return op.elementwise || std::ranges::find(kAdding, op.name) != kAdding.end();
}

}  // namespace

const Engine& described_engine() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> out;
    for (const OpDef& op : all_ops()) {
      out.push_back({op.name, "described", make_described, described_accumulates(op)});
    }
    for (const OpDef* op : added_ops()) out.push_back({op->name, "described", make_described});
    return out;
  }();
  static const Engine engine{.name = "cuda", .kernels = rows.data(), .kernel_count = rows.size()};
  return engine;
}

std::unique_ptr<Device> make_described_device(const Gpu& gpu) {
  return std::make_unique<DescribedDevice>(gpu);
}

}  // namespace dltrain
