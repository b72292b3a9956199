// The cost model against published steps of other programs, and its formula.
#include "compile/cost_model.h"

#include "base/error.h"
#include "catch.h"
#include "compile/gpu.h"
#include "temporary_folder.h"

namespace dltrain {
namespace {

struct PublishedCall {
  KernelKind kind;
  double count, bytes, flops;
  int launches = 1;
};

// The kernels that llm.c (train_gpt2.cu, bf16, cuDNN, gelu in epilogues, no recomputation) runs in
// a step of GPT-2: `layers` of width `c`, b sequences of t tokens, vocabulary padded to v.
std::vector<PublishedCall> llm_c_step(double layers, double c, double b, double t, double v) {
  const double rows = b * t, x = 2 * rows * c;  // x: bytes of one activation of width c
  const double heads = c / 64, parameters = layers * 12 * c * c + v * c;
  const double scores = b * heads * t * t / 2;
  using enum KernelKind;
  const auto product = [&](double count, double m, double n, double k) {
    return PublishedCall{matmul, count, 2 * (m * k + k * n + m * n), 2 * m * n * k};
  };
  std::vector<PublishedCall> calls{
      {gather, 1, 2 * x, 0},        // encoder_forward
      {gather, 1, 2 * x, 0, 4},     // wte and wpe backward
      {row, 2 * layers, 4 * x, 0},  // fused_residual_forward5: residual, norm, both written
      {attention, layers, 4 * x, 4 * 64 * scores},
      {attention_backward, layers, 8 * x, 10 * 64 * scores, 3},
      {row, 2 * layers + 1, 4 * x, 0},     // layernorm_backward adds to the residual's gradient
      {row, 1, 3 * 2 * rows * v, 0},       // fused_classifier: reads twice, writes the gradient
      {update, 1, 28 * parameters, 0},     // AdamW: gradient, moments, master copy, parameter
      {update, 1, 2 * 2 * parameters, 0},  // gradients set to zero, their norm
  };
  for (double width : {3.0, 1.0, 4.0, 1.0}) {  // outputs of the products of a layer, in units of c
    calls.push_back({column, layers, width * x, 0, 2});  // gradients of biases
  }
  for (const auto& [n, k] : {std::pair(3 * c, c), {c, c}, {4 * c, c}, {c, 4 * c}}) {
    calls.push_back(product(layers, rows, n, k));  // forward
    calls.push_back(product(layers, rows, k, n));  // gradient of the input
    calls.push_back(product(layers, n, k, rows));  // of the weight
  }
  for (int i = 0; i < 3; ++i) calls.push_back(product(1, rows, v, c));  // logits, their gradients
  return calls;
}

// `steps`: micro-steps of an update.
double tokens_per_second(std::vector<PublishedCall> step, double tokens, double steps = 1) {
  const Gpu h100 = find_gpus("h100").front();
  double seconds = 0;
  for (const PublishedCall& call : step) {
    const double runs = call.kind == KernelKind::update ? call.count / steps : call.count;
    seconds +=
        runs *
        kernel_cost(h100, call.kind, DType::bf16, call.bytes, call.flops, call.launches).seconds;
  }
  return tokens / seconds;
}

// GPT-2 124M: 10 billion tokens in 45 minutes on eight H100 (llm.c, discussion 481, repeated by
// github.com/KellerJordan/modded-nanogpt), 468k tokens/s on each. GPT-2 1.5B: 24 hours on eight
// H100 (discussion 677), 47k to 48k on each, with accumulation over 4 micro-steps.
TEST_CASE("the model gives llm.c's kernels their published throughput") {
  CHECK(tokens_per_second(llm_c_step(12, 768, 64, 1024, 50304), 64 * 1024) ==
        Approx(468e3).epsilon(0.10));
  CHECK(tokens_per_second(llm_c_step(48, 1600, 16, 1024, 50304), 16 * 1024, 4) ==
        Approx(47.5e3).epsilon(0.10));
}

}  // namespace
}  // namespace dltrain
