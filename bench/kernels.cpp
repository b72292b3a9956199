// bench_kernels: how long each kernel of the CPU engine takes in the training step of a small
// network, and how far that is from the machine's best matrix product.
//
//   bench_kernels mlp|lenet|cnn28 [seconds]
//
// The ops of one step are run in order over and over, as a plan replays them (operands are where
// the ops before left them, in cache or not). Printed for each op: the least time in µs, GFLOP/s,
// and that as a share of the best oneDNN matrix product (128×512×784) measured between the steps.
// The last lines sum the least times and give the least time of a whole step. OMP_NUM_THREADS sets
// the threads.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "cpu/engine.h"
#include "ops/kernel.h"
#include "ops/op.h"
#include "ops/step_state.h"

using namespace dltrain;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Tensor {
  TensorSpec spec;
  std::byte* data;
};

struct TimedOp {
  std::string label, variant;
  std::unique_ptr<Kernel> kernel;
  BoundCall call = {};
  double flops = 0;
  double least = 1e9;
};

// A step as a list of ops over tensors of their own.
class Step {
 public:
  Step()
      : device_(cpu_engine().open(0)),
        stream_(device_->make_stream()),
        arena_(*device_, size_t{512} << 20) {
    state_ = tensor({Shape{sizeof(StepState)}, DType::u8});
    auto* s = reinterpret_cast<StepState*>(state_->data);
    *s = {.in = {.seed = 1,
                 .step = 0,
                 .sample_offset = 0,
                 .learning_rate = 1e-3,
                 .inverse_valid = 1.0 / 128,
                 .max_grad_norm = 0},
          .out = {.grad_norm = 0, .gradient_factor = 1, .updates = 1, .finite = 1}};
  }

  Tensor* tensor(const TensorSpec& spec) {
    tensors_.push_back({spec, carve(spec.bytes())});
    return &tensors_.back();
  }
  // Values like those of activations and weights, never denormal.
  Tensor* filled(const Shape& shape) {
    Tensor* t = tensor({shape, DType::f32});
    auto* x = reinterpret_cast<float*>(t->data);
    uint32_t bits = 12345;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      bits = bits * 1664525u + 1013904223u;
      x[i] = (static_cast<float>(bits >> 8) / 16777216.0f - 0.5f) * 0.1f;
    }
    return t;
  }

  std::vector<Tensor*> add(const std::string& op, std::vector<Tensor*> inputs,
                           Attributes attributes = {}) {
    const OpDef* def = find_op(op);
    check_internal(def != nullptr, "no op {}", op);
    SpecList in;
    std::vector<void*> from, to;
    for (Tensor* t : inputs) {
      in.push_back(t->spec);
      from.push_back(t->data);
    }
    const SpecList out = def->output_specs(in, attributes);
    const std::vector<int> aliases = def->output_aliases(in, attributes, out.size());
    std::vector<Tensor*> outputs;
    for (size_t i = 0; i < out.size(); ++i) {
      outputs.push_back(aliases[i] < 0 ? tensor(out[i]) : inputs[static_cast<size_t>(aliases[i])]);
      to.push_back(outputs.back()->data);
    }
    FoundKernel found = find_kernel(
        cpu_engine(),
        {.op = op, .attributes = attributes, .inputs = in, .outputs = out, .device = *device_});
    TimedOp timed{.label = op + " " + to_string(in.back()) + " -> " + to_string(out[0]),
                  .variant = std::string(found.row->variant),
                  .kernel = std::move(found.kernel),
                  .flops = op_cost(*def, in, out, attributes).flops};
    timed.call = BoundCall(*timed.kernel, from, to, carve(timed.kernel->workspace_bytes()));
    ops_.push_back(std::move(timed));
    return outputs;
  }

  Tensor* add1(const std::string& op, std::vector<Tensor*> inputs, Attributes attributes = {}) {
    return add(op, std::move(inputs), std::move(attributes)).front();
  }

  // A parameter and its momentum.
  Tensor* parameter(const Shape& shape) {
    parameters_.push_back(filled(shape));
    return parameters_.back();
  }
  void gradient(Tensor* g) { gradients_.push_back(g); }
  Tensor* state() { return state_; }

  // gradient_norm and sgd_update with momentum; gradients in any order of equal shapes.
  void update() {
    std::vector<Tensor*> norm{state_}, all{state_};
    norm.insert(norm.end(), gradients_.begin(), gradients_.end());
    add("gradient_norm", norm);
    std::vector<Tensor*> ordered, moments;
    for (Tensor* p : parameters_) {
      const auto g = std::find_if(gradients_.begin(), gradients_.end(),
                                  [&](Tensor* t) { return t->spec == p->spec; });
      check_internal(g != gradients_.end(), "no gradient for {}", to_string(p->spec));
      ordered.push_back(*g);
      gradients_.erase(g);
      moments.push_back(tensor(p->spec));
    }
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    all.insert(all.end(), ordered.begin(), ordered.end());
    all.insert(all.end(), moments.begin(), moments.end());
    add("sgd_update", all,
        {{"count", static_cast<int64_t>(parameters_.size())},
         {"momentum", 0.9},
         {"weight_decay", std::vector<double>{5e-4}}});
  }

  double run() {
    const auto start = Clock::now();
    auto before = start;
    for (TimedOp& op : ops_) {
      op.call.run(*stream_);
      const auto now = Clock::now();
      op.least = std::min(op.least, std::chrono::duration<double>(now - before).count());
      before = now;
    }
    return seconds_since(start);
  }
  const std::vector<TimedOp>& ops() const { return ops_; }

 private:
  // Everything lies in one block on huge pages, as in a plan's arena.
  std::byte* carve(size_t bytes) {
    std::byte* out = arena_.data() + used_;
    used_ += (bytes + 255) / 256 * 256;
    check_internal(used_ <= arena_.bytes(), "the arena is full");
    return out;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Buffer arena_;
  size_t used_ = 0;
  std::deque<Tensor> tensors_;
  std::vector<TimedOp> ops_;
  std::vector<Tensor*> parameters_, gradients_;
  Tensor* state_ = nullptr;
};

struct Linear {
  Tensor *x, *w, *y;
  bool relu;
};

Linear linear(Step& s, Tensor* x, int64_t out, bool relu) {
  Tensor* w = s.parameter(Shape{out, x->spec.shape[-1]});
  Tensor* b = s.parameter(Shape{out});
  Attributes attributes{{"transpose_b", true}};
  if (relu) attributes.set("activation", std::string("relu"));
  return {x, w, s.add1("matmul", {x, w, b}, attributes), relu};
}

Tensor* linear_backward(Step& s, const Linear& l, Tensor* dy, bool input_wanted) {
  if (l.relu) dy = s.add1("relu_backward", {l.y, dy});
  s.gradient(s.add1("matmul", {dy, l.x}, {{"transpose_a", true}}));
  s.gradient(s.add1("reduce", {dy}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}));
  return input_wanted ? s.add1("matmul", {dy, l.w}) : nullptr;
}

struct Convolved {
  Tensor *x, *w, *y, *pooled, *position;
  Attributes attributes;
};

// Convolution, ReLU, then max pooling by 2 where asked.
Convolved convolution(Step& s, Tensor* x, int64_t out, int64_t kernel, int64_t padding, bool pool) {
  Convolved c{x,       s.parameter(Shape{out, kernel, kernel, x->spec.shape[-1]}), nullptr, nullptr,
              nullptr, {{"padding", std::vector<int64_t>{padding, padding}}}};
  Tensor* bias = s.parameter(Shape{out});
  Attributes attributes = c.attributes;
  if (!pool) attributes.set("activation", std::string("relu"));
  c.y = s.add1("conv2d", {x, c.w, bias}, attributes);
  c.pooled = c.y;
  if (pool) {
    const auto outputs = s.add("max_pool2d", {c.y}, {{"kernel", std::vector<int64_t>{2, 2}}});
    c.position = outputs[1];
    c.pooled = s.add1("relu", {outputs[0]});
  }
  return c;
}

std::vector<int64_t> as_list(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

Tensor* convolution_backward(Step& s, Convolved c, Tensor* dy, bool input_wanted) {
  dy = s.add1("relu_backward", {c.pooled, dy});
  if (c.position != nullptr) {
    dy =
        s.add1("max_pool2d_backward", {dy, c.position},
               {{"kernel", std::vector<int64_t>{2, 2}}, {"input_shape", as_list(c.y->spec.shape)}});
  }
  Attributes attributes = c.attributes;
  attributes.set("weight_shape", as_list(c.w->spec.shape));
  s.gradient(s.add1("conv2d_backward_weight", {dy, c.x}, attributes));
  s.gradient(s.add1("reduce", {dy}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1, 2}}}));
  if (!input_wanted) return nullptr;
  attributes = c.attributes;
  attributes.set("input_shape", as_list(c.x->spec.shape));
  return s.add1("conv2d_backward_input", {dy, c.w}, attributes);
}

Tensor* reshaped(Step& s, Tensor* x, const Shape& shape) {
  Tensor* view = s.add1("reshape", {x}, {{"shape", as_list(shape)}});
  // The view shares memory; a tensor of the new shape stands for it in what follows.
  (void)view;
  return s.filled(shape);
}

Tensor* loss(Step& s, Tensor* logits) {
  Tensor* targets = s.tensor({Shape{logits->spec.shape[0]}, DType::i32});
  const auto outputs = s.add("softmax_cross_entropy", {logits, targets});
  Tensor* seed = s.add1("loss_seed", {s.state()});
  return s.add1("softmax_cross_entropy_backward", {logits, targets, outputs[1], seed});
}

void build_mlp(Step& s) {
  Tensor* x = s.filled(Shape{128, 784});
  const Linear l1 = linear(s, x, 512, true), l2 = linear(s, l1.y, 512, true),
               l3 = linear(s, l2.y, 10, false);
  Tensor* dy = loss(s, l3.y);
  dy = linear_backward(s, l3, dy, true);
  dy = linear_backward(s, l2, dy, true);
  linear_backward(s, l1, dy, false);
  s.update();
}

void build_lenet(Step& s) {
  const Convolved c1 = convolution(s, s.filled(Shape{64, 28, 28, 1}), 6, 5, 2, true);
  const Convolved c2 = convolution(s, c1.pooled, 16, 5, 0, true);
  const Linear l1 = linear(s, reshaped(s, c2.pooled, Shape{64, 400}), 120, true),
               l2 = linear(s, l1.y, 84, true), l3 = linear(s, l2.y, 10, false);
  Tensor* dy = loss(s, l3.y);
  dy = linear_backward(s, l3, dy, true);
  dy = linear_backward(s, l2, dy, true);
  dy = linear_backward(s, l1, dy, true);
  dy = convolution_backward(s, c2, reshaped(s, dy, Shape{64, 5, 5, 16}), true);
  convolution_backward(s, c1, dy, false);
  s.update();
}

void build_cnn28(Step& s) {
  const Convolved c1 = convolution(s, s.filled(Shape{64, 28, 28, 1}), 32, 3, 0, false);
  const Convolved c2 = convolution(s, c1.pooled, 64, 3, 0, true);
  const Linear l1 = linear(s, reshaped(s, c2.pooled, Shape{64, 9216}), 128, true),
               l2 = linear(s, l1.y, 10, false);
  Tensor* dy = loss(s, l2.y);
  dy = linear_backward(s, l2, dy, true);
  dy = linear_backward(s, l1, dy, true);
  dy = convolution_backward(s, c2, reshaped(s, dy, Shape{64, 12, 12, 64}), true);
  convolution_backward(s, c1, dy, false);
  s.update();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const double budget = argc > 2 ? std::atof(argv[2]) : 5;
  Step step, gemm;
  if (name == "mlp") {
    build_mlp(step);
  } else if (name == "lenet") {
    build_lenet(step);
  } else if (name == "cnn28") {
    build_cnn28(step);
  } else {
    fmt::print(stderr, "usage: bench_kernels mlp|lenet|cnn28 [seconds]\n");
    return 2;
  }
  gemm.add("matmul", {gemm.filled(Shape{128, 784}), gemm.filled(Shape{784, 512})});
  double least = 1e9;
  const auto start = Clock::now();
  while (seconds_since(start) < budget) {
    least = std::min(least, step.run());
    for (int i = 0; i < 4; ++i) gemm.run();
  }
  const double peak = gemm.ops()[0].flops / gemm.ops()[0].least / 1e9;
  double sum = 0, flops = 0;
  fmt::print("{:>9} {:>8} {:>6}  {:8} {}\n", "us", "GFLOP/s", "of GEMM", "kernel", "op");
  for (const TimedOp& op : step.ops()) {
    const double rate = op.flops / op.least / 1e9;
    fmt::print("{:9.1f} {:8.1f} {:6.0f}%  {:8} {}\n", op.least * 1e6, rate, 100 * rate / peak,
               op.variant, op.label);
    sum += op.least;
    flops += op.flops;
  }
  fmt::print(
      "sum of least times {:.3f} ms, least step {:.3f} ms, {:.0f} GFLOP/s of {:.0f} = {:.0f} %\n",
      sum * 1e3, least * 1e3, flops / least / 1e9, peak, 100 * flops / least / 1e9 / peak);
  return 0;
}
