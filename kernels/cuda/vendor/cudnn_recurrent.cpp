// recurrent_network and its backward by cuDNN. In every run weights are copied into cuDNN's layout
// in the workspace, and gradients out of it: a few copies of adjacent matrices. For the direction
// from the last token to the first, copies reverse the order of tokens. Everything is queued on the
// stream without waiting, so it can be captured.
//
// cuDNN computes the op's formulas: biases of inputs and state, the reset gate of a GRU after the
// product. kept_bytes() at the end chooses between cuDNN and the engine's own kernels.
#include <array>
#include <deque>

#include <fmt/format.h>

#include "base/error.h"
#include "cuda/elementwise.h"
#include "cuda/makers.h"
#include "cuda/strided_copy.h"
#include "cuda/tables.h"
#include "cuda/vendor/autotune.h"
#include "cuda/vendor/cudnn_descriptor.h"
#include "cuda/vendor/cudnn_rnn.h"
#include "cuda/vendor/device.h"
#include "cuda/vendor/requests.h"
#include "ops/kernel_refused.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "shared/kernel_part.h"
#include "shared/recurrent_parts.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

// The problem of a request whose x is input `x` and whose weights follow after `weights`.
RnnProblem read_problem(const KernelRequest& r, size_t x, size_t weights) {
  const Shape &in = r.inputs[x].shape, &w_hh = r.inputs[weights + 1].shape;
  return {.kind = recurrent_kind(r.attributes),
          .dtype = r.inputs[x].dtype,
          .tf32 = rounds_to_tf32(r.attributes),
          .bias = !is_absent(r.inputs[weights + 2]),
          .samples = in[0],
          .tokens = in[1],
          .inputs = in[2],
          .hidden = w_hh[1]};
}

// Shared by forward and backward: cuDNN's memory for weights, and tokens in reverse order.
class CudnnRecurrent : public Kernel {
 public:
  CudnnRecurrent(CudaDevice& device, CudnnRnn rnn, const CudnnRnn::Sizes& sizes, bool reverse)
      : device_(device),
        rnn_(std::move(rnn)),
        sizes_(sizes),
        reverse_(reverse),
        weights_at_(scratch_.add(sizes.weights)),
        work_at_(scratch_.add(sizes.workspace)) {}

  size_t workspace_bytes() const override { return scratch_.total(); }

 protected:
  using Operands = std::array<void*, 4>;  // in the order of Piece::Operand

  size_t add_tokens(int64_t width) {
    if (!reverse_) return 0;
    const RnnProblem& p = rnn_.problem();
    return scratch_.add(p.samples * p.tokens * width, p.dtype);
  }

  // The places of the op's weights in cuDNN's memory for them.
  struct Pieces final : PreparedBindings {
    explicit Pieces(std::vector<CudnnRnn::Piece> of) : list(std::move(of)) {}
    std::vector<CudnnRnn::Piece> list;
  };
  std::unique_ptr<PreparedBindings> prepare(const Bindings& b) const override {
    return std::make_unique<Pieces>(rnn_.pieces(device_.dnn(), sizes_.weights, weights(b)));
  }
  static const std::vector<CudnnRnn::Piece>& pieces(const Bindings& b) {
    return static_cast<const Pieces*>(b.prepared)->list;
  }

  cudnnHandle_t begin(const Bindings& b, const Operands& weights_from, Stream& stream) const {
    cudnnHandle_t handle = device_.dnn();
    check_cudnn(cudnnSetStream(handle, native_stream(stream)), "choosing a stream");
    const size_t element = dtype_size(rnn_.problem().dtype);
    for (const CudnnRnn::Piece& piece : pieces(b)) {
      const auto* from = static_cast<const std::byte*>(weights_from[piece.operand]);
      device_.copy(weights(b) + piece.offset, from + static_cast<size_t>(piece.begin) * element,
                   static_cast<size_t>(piece.count) * element, stream);
    }
    return handle;
  }

  // Returns the address of a tensor in cuDNN's token order: the tensor itself, or a reversed copy
  // at `at` of the workspace.
  const void* in_order(const Bindings& b, const void* from, int64_t width, size_t at,
                       Stream& stream) const {
    if (!reverse_) return from;
    reverse_tokens(from, workspace(b) + at, width, stream);
    return workspace(b) + at;
  }
  void* in_order(const Bindings& b, void* to, size_t at) const {
    return reverse_ ? workspace(b) + at : to;
  }
  void put_back(const Bindings& b, void* to, int64_t width, size_t at, Stream& stream) const {
    if (reverse_) reverse_tokens(workspace(b) + at, to, width, stream);
  }

  static std::byte* workspace(const Bindings& b) { return static_cast<std::byte*>(b.workspace); }
  std::byte* weights(const Bindings& b) const { return workspace(b) + weights_at_; }
  void* work(const Bindings& b) const {
    return sizes_.workspace > 0 ? workspace(b) + work_at_ : nullptr;
  }

  CudaDevice& device_;
  CudnnRnn rnn_;
  CudnnRnn::Sizes sizes_;
  bool reverse_;
  WorkspaceParts scratch_;
  size_t weights_at_, work_at_;

 private:
  void reverse_tokens(const void* from, void* to, int64_t width, Stream& stream) const {
    const RnnProblem& p = rnn_.problem();
    const StridedCopy copy{.element_bytes = static_cast<int>(dtype_size(p.dtype)),
                           .rank = 3,
                           .extent = {p.samples, p.tokens, width},
                           .x_stride = {p.tokens * width, -width, 1},
                           .y_stride = {p.tokens * width, width, 1},
                           .x_start = (p.tokens - 1) * width};
    launch_strided_copy(simplified(copy), from, to, stream.native());
  }
};

class CudnnRecurrentForward final : public CudnnRecurrent {
 public:
  CudnnRecurrentForward(CudaDevice& device, CudnnRnn rnn, const CudnnRnn::Sizes& sizes,
                        bool reverse, bool trains)
      : CudnnRecurrent(device, std::move(rnn), sizes, reverse),
        trains_(trains),
        x_at_(add_tokens(rnn_.problem().inputs)),
        y_at_(add_tokens(rnn_.problem().hidden)) {}

  void run(const Bindings& b, Stream& stream) const override {
    const RnnProblem& p = rnn_.problem();
    const void *h0 = b.inputs[5], *c0 = b.inputs[6];
    void *y = b.outputs[0], *cell = p.kind == RecurrentKind::lstm ? b.outputs[1] : nullptr;
    void* kept = trains_ && sizes_.reserve > 0 ? b.outputs.back() : nullptr;
    cudnnHandle_t handle = begin(b, {b.inputs[1], b.inputs[2], b.inputs[3], b.inputs[4]}, stream);
    const void* x = in_order(b, b.inputs[0], p.inputs, x_at_, stream);
    // No lengths on the device: since 8.9.1 cuDNN uses those of the descriptors.
    check_cudnn(
        cudnnRNNForward(handle, rnn_.rnn(),
                        trains_ ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, nullptr,
                        rnn_.x(), x, rnn_.y(), in_order(b, y, y_at_), rnn_.state(), h0, nullptr,
                        rnn_.state(), c0, cell, sizes_.weights, weights(b), sizes_.workspace,
                        work(b), kept != nullptr ? sizes_.reserve : 0, kept),
        "recurrent_network");
    put_back(b, y, p.hidden, y_at_, stream);
  }

 private:
  bool trains_;
  size_t x_at_, y_at_;
};

class CudnnRecurrentBackward final : public CudnnRecurrent {
 public:
  CudnnRecurrentBackward(CudaDevice& device, CudnnRnn rnn, const CudnnRnn::Sizes& sizes,
                         bool reverse, DType sums)
      : CudnnRecurrent(device, std::move(rnn), sizes, reverse),
        sums_(sums),
        gradients_at_(scratch_.add(sizes.weights)),
        x_at_(add_tokens(rnn_.problem().inputs)),
        dx_at_(add_tokens(rnn_.problem().inputs)),
        y_at_(add_tokens(rnn_.problem().hidden)),
        dy_at_(add_tokens(rnn_.problem().hidden)) {}

  void run(const Bindings& b, Stream& stream) const override {
    const RnnProblem& p = rnn_.problem();
    const void *h0 = b.inputs[7], *c0 = b.inputs[8];
    void *kept = b.inputs[9], *dx = b.outputs[0];
    Operands results{b.outputs[1], b.outputs[2], nullptr, nullptr};
    if (p.bias) {
      results[CudnnRnn::Piece::b_ih] = b.outputs[3];
      results[CudnnRnn::Piece::b_hh] = b.outputs[4];
    }
    cudnnHandle_t handle = begin(b, {b.inputs[3], b.inputs[4], b.inputs[5], b.inputs[6]}, stream);
    std::byte* gradients = workspace(b) + gradients_at_;
    device_.zero(gradients, sizes_.weights, stream);  // cuDNN adds to them
    const void *x = in_order(b, b.inputs[1], p.inputs, x_at_, stream),
               *y = in_order(b, b.inputs[2], p.hidden, y_at_, stream),
               *dy = in_order(b, b.inputs[0], p.hidden, dy_at_, stream);
    // The order matters: the weight gradient reads data that the data gradient writes to `kept`.
    check_cudnn(cudnnRNNBackwardData_v8(
                    handle, rnn_.rnn(), nullptr, rnn_.y(), y, dy, rnn_.x(), in_order(b, dx, dx_at_),
                    rnn_.state(), h0, nullptr, nullptr, rnn_.state(), c0, nullptr, nullptr,
                    sizes_.weights, weights(b), sizes_.workspace, work(b), sizes_.reserve, kept),
                "recurrent_network_backward, the inputs' gradient");
    check_cudnn(
        cudnnRNNBackwardWeights_v8(handle, rnn_.rnn(), CUDNN_WGRAD_MODE_ADD, nullptr, rnn_.x(), x,
                                   rnn_.state(), h0, rnn_.y(), y, sizes_.weights, gradients,
                                   sizes_.workspace, work(b), sizes_.reserve, kept),
        "recurrent_network_backward, the weights' gradient");
    put_back(b, dx, p.inputs, dx_at_, stream);
    for (const CudnnRnn::Piece& piece : pieces(b)) {
      auto* to = static_cast<std::byte*>(results[piece.operand]) +
                 static_cast<size_t>(piece.begin) * dtype_size(sums_);
      const std::byte* from = gradients + piece.offset;
      if (p.dtype == sums_) {
        device_.copy(to, from, static_cast<size_t>(piece.count) * dtype_size(sums_), stream);
      } else {
        launch_cast(p.dtype, sums_, from, to, piece.count, stream.native());
      }
    }
  }

 private:
  DType sums_;
  size_t gradients_at_, x_at_, dx_at_, y_at_, dy_at_;
};

std::optional<CudnnRnn> describe(const RnnProblem& p) {
  const bool served = p.dtype == DType::f32 || is_low_precision(p.dtype);
  if (!served || p.samples * p.tokens == 0) return {};
  return CudnnRnn::describe(p);
}

// Forward and backward of one implementation, with TimingTensors as data.
class Trial {
 public:
  Trial(const KernelRequest& r, KernelMaker forward, KernelMaker backward, int64_t kept) {
    Attributes attributes = r.attributes;
    attributes.set("kept_bytes", kept);
    SpecList in(r.inputs.begin(), r.inputs.end());
    SpecList out = find_op("recurrent_network")->output_specs(in, attributes);
    forward_ = prepare(r, "recurrent_network", forward, attributes, in, out, forward_call_);
    const TensorSpec y = out[0], last = kept > 0 ? out.back() : absent_spec();
    SpecList back{y, in[0], y, in[1], in[2], in[3], in[4], in[5], in[6], last};
    out = find_op("recurrent_network_backward")->output_specs(back, attributes);
    backward_ =
        prepare(r, "recurrent_network_backward", backward, attributes, back, out, backward_call_);
  }
  bool made() const { return forward_ != nullptr && backward_ != nullptr; }
  void run(Stream& stream) {
    forward_call_.run(stream);
    backward_call_.run(stream);
  }

 private:
  std::unique_ptr<Kernel> prepare(const KernelRequest& r, std::string_view op, KernelMaker make,
                                  const Attributes& attributes, SpecSpan inputs, SpecSpan outputs,
                                  BoundCall& call) {
    auto kernel = make({.op = op,
                        .attributes = attributes,
                        .inputs = inputs,
                        .outputs = outputs,
                        .device = r.device});
    if (kernel == nullptr) return nullptr;
    CudaDevice& device = cuda_device(r);
    buffers_.emplace_back(r.device, kernel->workspace_bytes());
    call = BoundCall(*kernel, tensors_.emplace_back(device, inputs).next(),
                     tensors_.emplace_back(device, outputs).next(), buffers_.back().data());
    return kernel;
  }

  std::vector<Buffer> buffers_;
  std::deque<TimingTensors> tensors_;
  std::unique_ptr<Kernel> forward_, backward_;
  BoundCall forward_call_, backward_call_;
};

constexpr const char *kCudnn = "cuDNN", *kComposed = "composed";

// Creates and runs one implementation. Returns false if it fails, which the library may do only
// now.
bool tried(std::optional<Trial>& trial, const KernelRequest& r, bool cudnn, int64_t reserve,
           Stream& stream) {
  try {
    if (!trial && cudnn) {
      trial.emplace(r, make_cudnn_recurrent, make_cudnn_recurrent_backward, reserve);
    } else if (!trial) {
      trial.emplace(r, of_parts<cuda_engine, make_recurrent_of_parts>,
                    of_parts<cuda_engine, make_recurrent_backward_of_parts>, parts_kept_bytes(r));
    }
    if (!trial->made()) return false;
    trial->run(stream);
  } catch (const Error& error) {
    if (error.code() == ExitCode::rank) throw;  // another rank has failed
    return false;
  }
  return true;
}

// Returns the faster implementation for forward and backward together; empty without time for
// tuning.
std::string faster(CudaDevice& device, const KernelRequest& r, int64_t reserve) {
  size_t made = 2;
  std::optional<Trial> trial;
  const auto best = fastest(device, 2, [&](size_t i, Stream& stream) {
    if (made != i) trial.reset();
    made = i;
    return tried(trial, r, i == 0, reserve, stream);
  });
  return !best ? "" : *best == 0 ? kCudnn : kComposed;
}

// Runs cuDNN's implementation. Done before a graph relies on it, since an error that occurs only at
// run time would abort the first step.
void try_run(CudaDevice& device, const KernelRequest& r, int64_t reserve) {
  try {
    const auto stream = device.make_stream();
    Trial trial(r, make_cudnn_recurrent, make_cudnn_recurrent_backward, reserve);
    if (trial.made()) trial.run(*stream);
    stream->synchronize();
  } catch (const Error& error) {
    throw KernelRefused(ExitCode::device, error.what());
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cudnn_recurrent(const KernelRequest& r) {
  const RnnProblem problem = read_problem(r, 0, 1);
  auto rnn = describe(problem);
  if (!rnn) return nullptr;
  CudaDevice& device = cuda_device(r);
  const int64_t kept = r.attributes.integer("kept_bytes");
  const auto sizes =
      rnn->sizes(device.dnn(), kept > 0 ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE);
  // kept_bytes of another kernel does not match.
  if (kept > 0 && sizes.reserve != static_cast<size_t>(kept)) return nullptr;
  return std::make_unique<CudnnRecurrentForward>(device, std::move(*rnn), sizes,
                                                 r.attributes.boolean("reverse"), kept > 0);
}

std::unique_ptr<Kernel> make_cudnn_recurrent_backward(const KernelRequest& r) {
  const RnnProblem problem = read_problem(r, 1, 3);
  auto rnn = describe(problem);
  if (!rnn) return nullptr;
  CudaDevice& device = cuda_device(r);
  const auto sizes = rnn->sizes(device.dnn(), CUDNN_FWD_MODE_TRAINING);
  if (sizes.reserve != static_cast<size_t>(r.attributes.integer("kept_bytes"))) return nullptr;
  return std::make_unique<CudnnRecurrentBackward>(
      device, std::move(*rnn), sizes, r.attributes.boolean("reverse"), r.outputs[1].dtype);
}

std::optional<int64_t> cudnn_recurrent_kept_bytes(const KernelRequest& r) {
  const RnnProblem p = read_problem(r, 0, 1);
  const auto rnn = describe(p);
  if (!rnn) return {};
  CudaDevice& device = cuda_device(r);
  const auto reserve =
      static_cast<int64_t>(rnn->sizes(device.dnn(), CUDNN_FWD_MODE_TRAINING).reserve);
  const std::string key = fmt::format(
      "recurrent {} {}, {} of {}x{} to {}, bias {}, reverse {}, state {}",
      r.attributes.text("kind"), p.tf32 ? "tf32" : dtype_name(p.dtype), p.samples, p.tokens,
      p.inputs, p.hidden, p.bias, r.attributes.boolean("reverse"), !is_absent(r.inputs[5]));
  std::string choice;
  if (device.tuning().mode != Autotune::off) {
    choice = tuned_choice(device, key, [&] { return faster(device, r, reserve); });
  } else {
    const auto [made, is_new] = device.tuning().made.try_emplace(key + ", tried", kComposed);
    if (is_new) {
      try_run(device, r, reserve);
      made->second = kCudnn;
    }
    choice = made->second;
  }
  if (choice == kComposed) return {};
  return reserve;
}

}  // namespace dltrain
