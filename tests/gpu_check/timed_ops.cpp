#include "gpu_check/timed_ops.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/fused.h"
#include "ops/step_state.h"

namespace dltrain {
namespace {

TensorSpec f32(Shape shape) {
  return {shape, DType::f32};
}
TensorSpec bf16(Shape shape) {
  return {shape, DType::bf16};
}
TensorSpec step_state() {
  return {Shape{sizeof(StepState)}, DType::u8};
}

// Sizes of the whole or, on machines without a GPU, of a part.
struct Scale {
  double factor;
  int64_t operator()(int64_t n, int64_t least = 16) const {
    return std::max(least, static_cast<int64_t>(static_cast<double>(n) * factor));
  }
};

const Attributes kPadded{{"padding", std::vector<int64_t>{1, 1}}};

std::vector<TimedOp> ceilings(const Scale& scaled) {
  const int64_t words = scaled(256 << 20), m = scaled(8192);
  std::vector<TimedOp> out{{"copy", "identity", {f32(Shape{words})}}};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const TensorSpec square{Shape{m, m}, dtype};
    out.push_back({fmt::format("product {}", dtype_name(dtype)), "matmul", {square, square}});
  }
  out.push_back({"product tf32", "matmul", out.back().inputs, {{"math", std::string("tf32")}}});
  return out;
}

std::vector<TimedOp> single_ops(const Scale& scaled) {
  const int64_t n = scaled(64 << 20), m = scaled(4096), rows = scaled(16384), images = scaled(256);
  const TensorSpec image = f32(Shape{images, 56, 56, 64}), low = bf16(Shape{images, 56, 56, 64});
  const TensorSpec hidden = bf16(Shape{rows, 768}), scale = f32(Shape{768});
  return {
      {"add", "add", {f32(Shape{n}), f32(Shape{n})}},
      {"gelu_backward", "gelu_backward", {f32(Shape{n}), f32(Shape{n})}},
      {"cast to bf16", "cast", {f32(Shape{n})}, {{"dtype", "bf16"}}},
      {"column sum",
       "reduce",
       {f32(Shape{rows, 4096})},
       {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}},
      {"row sum",
       "reduce",
       {f32(Shape{rows, 4096})},
       {{"kind", "sum"}, {"axes", std::vector<int64_t>{1}}}},
      {"dropout",
       "dropout",
       {f32(Shape{rows, 4096}), step_state()},
       {{"rate", 0.1}, {"stream", int64_t{7}}}},
      {"layer_norm bf16", "layer_norm", {hidden, scale, scale}, {{"epsilon", 1e-5}}},
      {"batch_norm", "batch_norm", {image, f32(Shape{64}), f32(Shape{64})}, {{"epsilon", 1e-5}}},
      {"embedding", "embedding", {{Shape{rows}, DType::i32}, f32(Shape{scaled(50257), 768})}, {}},
      {"gradient_norm", "gradient_norm", {step_state(), f32(Shape{n})}},
      {"adamw_update",
       "adamw_update",
       {step_state(), f32(Shape{n}), f32(Shape{n}), f32(Shape{n}), f32(Shape{n})},
       {{"count", int64_t{1}}}},
      {fmt::format("matmul {0}x{0}x{0}", m), "matmul", {f32(Shape{m, m}), f32(Shape{m, m})}},
      {"conv2d 3x3", "conv2d", {image, f32(Shape{64, 3, 3, 64})}, kPadded},
      {"conv2d 3x3 bf16", "conv2d", {low, bf16(Shape{64, 3, 3, 64})}, kPadded},
      {"conv2d_backward_weight 3x3",
       "conv2d_backward_weight",
       {image, image},
       {{"padding", std::vector<int64_t>{1, 1}},
        {"weight_shape", std::vector<int64_t>{64, 3, 3, 64}}}},
  };
}

std::vector<TimedOp> variants(const Scale& scaled) {
  const int64_t images = scaled(256), n = scaled(64 << 20), m = scaled(2048);
  const TensorSpec low = bf16(Shape{images, 56, 56, 64});
  std::vector<TimedOp> out;
  struct Heads {
    const char* name;
    int64_t samples, tokens, heads;
    bool causal;
    double dropout;
  };
  for (const Heads& h :
       {Heads{"GPT-2 124M", 16, 1024, 12, true, 0}, Heads{"BERT-large", 16, 512, 16, false, 0},
        Heads{"BERT-large, dropout 0.1", 16, 512, 16, false, 0.1}}) {
    const int64_t samples = scaled(h.samples, 1), tokens = scaled(h.tokens), d = h.heads * 64;
    const TensorSpec packed = bf16(Shape{samples, tokens, 3 * d}),
                     y = bf16(Shape{samples, tokens, d}),
                     sums = f32(Shape{samples, h.heads, tokens});
    const Attributes attributes{{"heads", h.heads},
                                {"kv_heads", h.heads},
                                {"causal", h.causal},
                                {"dropout", h.dropout},
                                {"stream", int64_t{7}}};
    TimedOp forward{fmt::format("attention {}", h.name), "attention", {packed}, attributes, true};
    TimedOp backward{fmt::format("attention_backward {}", h.name),
                     "attention_backward",
                     {y, y, sums, packed},
                     attributes,
                     true};
    for (TimedOp* op : {&forward, &backward}) {
      if (h.dropout > 0) op->inputs.push_back(step_state());
      out.push_back(*op);
    }
  }
  const auto fused = [&](const char* name, int inputs, const std::vector<FusedStep>& steps) {
    out.push_back({fmt::format("fused {}", name),
                   "fused_elementwise",
                   SpecList(static_cast<size_t>(inputs), bf16(Shape{n})),
                   {{"program", print_fused_program(steps)}},
                   true});
  };
  fused("residual", 2, {{"add", {0, 1}}});
  fused("gelu_tanh of a sum", 2, {{"add", {0, 1}}, {"gelu_tanh", {2}}});
  fused("gelu_tanh_backward", 2, {{"gelu_tanh_backward", {0, 1}}});
  out.push_back({"matmul", "matmul", {bf16(Shape{m, m}), bf16(Shape{m, m})}, {}, true});
  out.push_back({"conv2d 3x3", "conv2d", {low, bf16(Shape{64, 3, 3, 64})}, kPadded, true});
  return out;
}

// Products of GPT-2 124M on 16 sequences of 1024 tokens: the layers with each epilogue, and the
// logits and their gradients for several vocabularies and chunks of the loss. A row of 50257
// elements of 16 bits is not aligned to 16 bytes; 50304 is the next multiple of 64.
std::vector<TimedOp> gemm(const Scale& scaled) {
  const int64_t rows = scaled(16384), d = scaled(768);
  std::vector<TimedOp> out;
  const auto layer = [&](const char* name, int64_t k, int64_t n, const char* activation) {
    const TensorSpec x = bf16(Shape{rows, k}), w = bf16(Shape{k, n}), b = bf16(Shape{n});
    out.push_back({fmt::format("{} {}x{}", name, k, n), "matmul", {x, w}});
    out.push_back({fmt::format("{} {}x{}, bias {}", name, k, n, activation),
                   "matmul",
                   {x, w, b},
                   {{"activation", std::string(activation)}}});
    out.push_back({fmt::format("{} {}x{}, dx", name, k, n),
                   "matmul",
                   {bf16(Shape{rows, n}), w},
                   {{"transpose_b", true}}});
    out.push_back({fmt::format("{} {}x{}, dw", name, k, n),
                   "matmul",
                   {x, bf16(Shape{rows, n})},
                   {{"transpose_a", true}, {"output_dtype", std::string("f32")}}});
  };
  const TensorSpec hidden = bf16(Shape{rows, d}), wide = bf16(Shape{rows, 4 * d});
  out.push_back({"c_fc, bias gelu_tanh, x kept",
                 "matmul_gelu",
                 {hidden, bf16(Shape{4 * d, d}), bf16(Shape{4 * d})},
                 {{"transpose_b", true}}});
  out.push_back({"c_proj, dx gelu_tanh_backward",
                 "matmul_gelu_backward",
                 {hidden, bf16(Shape{d, 4 * d}), wide}});
  layer("c_attn", d, 3 * d, "");
  layer("c_fc", d, 4 * d, "gelu_tanh");
  layer("c_proj", 4 * d, d, "");
  for (const int64_t vocabulary : {50257, 50304}) {
    const int64_t v = scaled(vocabulary);
    for (const int64_t chunk : {4096, 16384}) {
      const int64_t r = scaled(chunk);
      const TensorSpec x = bf16(Shape{r, d}), w = bf16(Shape{v, d}), dy = bf16(Shape{r, v});
      const auto name = [&](const char* what) {
        return fmt::format("{} {}x{}", what, chunk, vocabulary);
      };
      out.push_back({name("logits"), "matmul", {x, w}, {{"transpose_b", true}}});
      out.push_back({name("logits dx"), "matmul", {dy, w}});
      out.push_back({name("logits dw"),
                     "matmul",
                     {dy, x},
                     {{"transpose_a", true}, {"output_dtype", std::string("f32")}}});
      out.push_back({name("softmax_cross_entropy_gradient"),
                     "softmax_cross_entropy_gradient",
                     {dy, {Shape{r}, DType::i32}, {Shape{1}, DType::f64}}});
    }
  }
  return out;
}

}  // namespace

std::vector<TimedOp> timed_ops(const std::string& set, double factor) {
  const Scale scaled{factor};
  if (set == "ceilings") return ceilings(scaled);
  if (set == "ops") return single_ops(scaled);
  if (set == "variants") return variants(scaled);
  if (set == "gemm") return gemm(scaled);
  fail(ExitCode::usage, "--time {}: ceilings, ops, variants or gemm", set);
}

}  // namespace dltrain
