// The cost model against published steps of other programs, and its formula.
#include "compile/cost_model.h"

#include "catch.h"
#include "compile/gpu.h"
#include "graph/builder.h"

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

TEST_CASE("a kernel takes the time of its bytes or of its arithmetic, and its launch") {
  Gpu gpu;
  gpu.bytes_per_second = 1e9;
  gpu.flops_bf16 = 1e12;
  gpu.flops_f32 = 1e10;
  gpu.launch_seconds = 1e-3;
  const auto cost = [&](KernelKind kind, DType dtype, double bytes, double flops) {
    return kernel_cost(gpu, kind, dtype, bytes, flops, 2);
  };
  const KernelCost copy = cost(KernelKind::elementwise, DType::bf16, 95e6, 0);
  CHECK(copy.limit == "memory");
  CHECK(copy.seconds == Approx(0.1 + 2e-3));
  const KernelCost product = cost(KernelKind::matmul, DType::bf16, 1e6, 68e9);
  CHECK(product.limit == "compute");
  CHECK(product.seconds == Approx(0.1 + 2e-3));
  CHECK(cost(KernelKind::matmul, DType::f32, 1e6, 68e8).seconds == Approx(1 + 2e-3));
  CHECK(cost(KernelKind::row, DType::bf16, 1e3, 1e3).limit == "launch");
  // Rows that are no multiple of 16 bytes.
  CHECK(cost(KernelKind::unaligned_matmul, DType::bf16, 1e6, 34e9).seconds == Approx(0.1 + 2e-3));
}

TEST_CASE("calls cost what the CUDA kernels read and write") {
  Graph graph;
  GraphBuilder b(graph);
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    return b.add_value(name, {Shape{rows, columns}, DType::bf16}, Role::input);
  };
  const ValueId x = matrix("x", 4096, 768), aligned = matrix("w", 50264, 768),
                odd = matrix("v", 50257, 768);
  const auto cost = [&](std::string_view op, std::vector<ValueId> inputs,
                        const Attributes& attributes, bool adds = false) {
    b.emit(op, std::move(inputs), attributes);
    return call_cost(find_gpus("h100").front(), graph, graph.nodes.back(), adds);
  };
  const Attributes linear{{"transpose_b", true}};
  const KernelCost logits = cost("matmul", {x, aligned}, linear);
  CHECK(logits.limit == "compute");
  CHECK(logits.flops == 2.0 * 4096 * 50264 * 768);
  CHECK(cost("matmul", {x, odd}, linear).seconds > 1.9 * logits.seconds);
  CHECK(call_name(graph, graph.nodes.back()) == "matmul, rows not of 16 bytes");
  CHECK(cost("matmul", {x, aligned}, linear, /*adds=*/true).bytes ==
        logits.bytes + 2.0 * 4096 * 50264);
  const ValueId wide = b.add_value("f", {Shape{4096, 768}, DType::f32}, Role::input),
                table = b.add_value("t", {Shape{50264, 768}, DType::f32}, Role::input);
  Attributes rounded = linear;
  rounded.set("math", std::string("tf32"));  // half the rate of bf16 on an H100, 6.6 times f32's
  const double exact = cost("matmul", {wide, table}, linear).seconds;
  CHECK(cost("matmul", {wide, table}, rounded).seconds < exact / 6);
  CHECK(cost("reshape", {x}, {{"shape", std::vector<int64_t>{768, 4096}}}).seconds == 0);
  for (const char* op :
       {"recurrent", "recurrent_backward", "recurrent_network", "recurrent_network_backward"}) {
    Node node;
    node.op = find_op(op);
    CHECK(kernel_kind(node) == KernelKind::matmul);
  }
  const ValueId gamma = b.add_value("gamma", {Shape{768}, DType::f32}, Role::parameter);
  const double image = 2.0 * 4096 * 768, vector = 4.0 * 768;
  CHECK(cost("batch_norm", {x, gamma, gamma}, {}).bytes == 3 * image + 4 * vector);
}

TEST_CASE("GPUs are found by name and alias") {
  CHECK(find_gpus("h100").front().name == "h100-80g");
  CHECK(find_gpus("4090").front().name == "rtx4090");
  CHECK(find_gpus("all").size() == 7);
  CHECK(find_gpus("t4").front().flops(DType::bf16) == 0);
  CHECK(find_gpus("t4").front().flops(DType::f32, true) == 0);
  CHECK(find_gpus("a100").front().flops(DType::f32, true) == Approx(137.5e12));
  CHECK_THROWS_WITH(find_gpus(""), Catch::Matchers::Contains("there is no such GPU"));
}

}  // namespace
}  // namespace dltrain
