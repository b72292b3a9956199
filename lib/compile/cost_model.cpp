#include "compile/cost_model.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

struct Efficiency {
  KernelKind kind;
  double share;  // of the achieved rates of the GPU
};

// Fixed before the kernels were optimised, and not fitted to goals.
constexpr std::array kEfficiencies{
    // cuBLAS in bf16 on an H100 publishes 716 TFLOP/s at 8192³ (P. Shankhdhar, "Outperforming
    // cuBLAS on H100", 2024), 0.9 of 790. Products of transformers have a short inner axis (768 to
    // 1,600) or few tiles. 0.68 gives llm.c's kernels for GPT-2 124M 8 % more than its published
    // throughput on eight GPUs, and those for 1.5B 3 % less (tests/compile/cost_model.cpp).
    Efficiency{KernelKind::matmul, 0.68},
    // On an H100 these run at 0.7 to 0.84 of the rate of the plain product (docs/gpu/README.md).
    Efficiency{KernelKind::gelu_matmul, 0.53},
    // Rows that are no multiple of 16 bytes are read in smaller pieces and without TMA, by kernels
    // of earlier GPUs (NVIDIA, "Matrix Multiplication Background User's Guide"): half of that rate,
    // an estimate.
    Efficiency{KernelKind::unaligned_matmul, 0.34},
    // cuDNN, NHWC: most convolutions of ResNet-50 are limited by memory. An estimate from NVIDIA's
    // ResNet-50 v1.5 on an A100 (DeepLearningExamples, PyTorch, mixed precision: about 2,770
    // images/s), whose norms are kernels of their own as well.
    Efficiency{KernelKind::convolution, 0.70},
    // FlashAttention-3 (Shah and others 2024), figures 5 and 6, sequences of 1k, heads of 64:
    // about 320 TFLOP/s forward, 260 backward; of 128: 420 and 350. The deterministic backward of
    // cuDNN, which llm.c uses too, is estimated to be a tenth slower.
    Efficiency{KernelKind::attention, 0.40},
    Efficiency{KernelKind::attention_backward, 0.30},
    Efficiency{KernelKind::wide_attention, 0.53},
    Efficiency{KernelKind::wide_attention_backward, 0.40},
    // Bandwidth of well-written kernels of these kinds in llm.c's profile (discussion 481 and
    // dev/cuda): residual and gelu near a copy; norms, the classifier and AdamW a tenth below;
    // bias gradients a quarter.
    Efficiency{KernelKind::elementwise, 0.95},
    Efficiency{KernelKind::row, 0.90},
    Efficiency{KernelKind::column, 0.75},
    Efficiency{KernelKind::gather, 0.60},
    Efficiency{KernelKind::update, 0.90},
    // The engine's own kernel. With tensor cores by mma.sync, which reaches about 62 % of the rate
    // of wgmma on Hopper (Luo and others 2024, arXiv:2402.13499), half of that: an estimate.
    Efficiency{KernelKind::grouped_matmul, 0.30},
    // Without, and with four results a thread: a share of the f32 rate, an estimate.
    Efficiency{KernelKind::plain_grouped_matmul, 0.15},
};

// The kernels of kernels/cuda and its vendors for an op. The first `reread` inputs are read twice.
struct OpKernels {
  std::string_view op;
  KernelKind kind;
  int launches = 1;
  size_t reread = 0;
};
constexpr std::array kOpKernels{
    OpKernels{"matmul", KernelKind::matmul},
    OpKernels{"fp8_matmul", KernelKind::matmul},
    OpKernels{"matmul_gelu", KernelKind::gelu_matmul},
    OpKernels{"matmul_gelu_backward", KernelKind::gelu_matmul},
    OpKernels{"grouped_matmul", KernelKind::grouped_matmul},
    OpKernels{"grouped_matmul_backward_weight", KernelKind::grouped_matmul},
    OpKernels{"dispatch_tokens", KernelKind::gather},
    OpKernels{"combine_experts", KernelKind::gather},
    OpKernels{"top_k_routing", KernelKind::row, 2},
    OpKernels{"conv2d", KernelKind::convolution},
    OpKernels{"conv2d_backward_input", KernelKind::convolution},
    OpKernels{"conv2d_backward_weight", KernelKind::convolution, 2},
    OpKernels{"attention", KernelKind::attention},
    OpKernels{"attention_backward", KernelKind::attention_backward, 3},
    OpKernels{"recurrent", KernelKind::matmul},
    OpKernels{"recurrent_backward", KernelKind::matmul},
    OpKernels{"recurrent_network", KernelKind::matmul},
    OpKernels{"recurrent_network_backward", KernelKind::matmul},
    OpKernels{"layer_norm", KernelKind::row},
    OpKernels{"layer_norm_backward", KernelKind::row, 2},
    OpKernels{"rms_norm", KernelKind::row},
    OpKernels{"rms_norm_backward", KernelKind::row, 2},
    OpKernels{"batch_norm", KernelKind::column, 3, 1},
    OpKernels{"batch_norm_backward", KernelKind::column, 3, 2},
    OpKernels{"softmax_cross_entropy", KernelKind::row, 2},
    OpKernels{"cross_entropy_parts", KernelKind::row},
    OpKernels{"softmax_cross_entropy_backward", KernelKind::row},
    OpKernels{"softmax_cross_entropy_gradient", KernelKind::row, 2},
    OpKernels{"reduce", KernelKind::column, 2},
    OpKernels{"embedding", KernelKind::gather},
    OpKernels{"embedding_backward", KernelKind::gather, 5},
    OpKernels{"gradient_norm", KernelKind::update, 2},
    OpKernels{"reshape", KernelKind::elementwise, 0},
};

OpKernels kernels_of(const Node& node) {
  const auto row = std::ranges::find(kOpKernels, node.op->name, &OpKernels::op);
  if (row != kOpKernels.end()) return *row;
  return {node.op->name, node.op->has_effect ? KernelKind::update : KernelKind::elementwise};
}

bool has_aligned_rows(const TensorSpec& spec) {
  const int64_t last = spec.shape.rank() == 0 ? 1 : spec.shape[-1];
  return static_cast<size_t>(last) * dtype_size(spec.dtype) % 16 == 0;
}

KernelKind kind_of(const OpKernels& kernels, SpecSpan in, SpecSpan out, const Attributes& a) {
  const bool grouped = kernels.kind == KernelKind::grouped_matmul;
  if (grouped || kernels.op == "matmul" || kernels.op == "fp8_matmul") {
    const bool aligned =
        has_aligned_rows(in[0]) && has_aligned_rows(in[1]) && has_aligned_rows(out[0]);
    if (!grouped) return aligned ? KernelKind::matmul : KernelKind::unaligned_matmul;
    return aligned && dtype_size(in[0].dtype) == 2 ? KernelKind::grouped_matmul
                                                   : KernelKind::plain_grouped_matmul;
  }
  const bool backward = kernels.op == "attention_backward";
  if (kernels.op != "attention" && !backward) return kernels.kind;
  const int64_t width = attention_sizes(kernels.op, in.subspan(backward ? 3 : 0), a).head_dim;
  if (width <= 64) return kernels.kind;
  return backward ? KernelKind::wide_attention_backward : KernelKind::wide_attention;
}

}  // namespace

KernelCost kernel_cost(const Gpu& gpu, KernelKind kind, DType dtype, double bytes, double flops,
                       int launches, bool tf32) {
  const double efficiency = std::ranges::find(kEfficiencies, kind, &Efficiency::kind)->share;
  const bool product = kind < KernelKind::elementwise;
  const double rate = product ? gpu.flops(dtype, tf32) : gpu.flops_f32;
  const double memory = bytes / gpu.bytes_per_second / efficiency;
  const double compute = flops > 0 ? flops / rate / efficiency : 0;
  const double launch = launches * gpu.launch_seconds;
  const double work = std::max(memory, compute);
  return {.limit = launch > work      ? "launch"
                   : compute > memory ? "compute"
                                      : "memory",
          .seconds = work + launch,
          .bytes = bytes,
          .flops = flops};
}

KernelCost call_cost(const Gpu& gpu, const Graph& graph, const Node& node, bool adds) {
  const SpecList in = graph.input_specs(node), out = graph.output_specs(node);
  OpKernels kernels = kernels_of(node);
  if (kernels.launches == 0) return {.limit = "launch"};
  const Cost cost = op_cost(*node.op, in, out, node.attributes);
  double bytes = cost.bytes;
  for (size_t i = 0; i < kernels.reread; ++i) bytes += static_cast<double>(in[i].bytes());
  if (adds) bytes += static_cast<double>(out[0].bytes());
  // Rows of logits that no shared memory holds are read twice.
  constexpr size_t kHeldRow = 227 << 10;
  if (kernels.op == "softmax_cross_entropy_gradient" &&
      static_cast<size_t>(in[0].shape[-1]) * dtype_size(in[0].dtype) > kHeldRow) {
    bytes += static_cast<double>(in[0].bytes());
  }
  // A network runs two kernels for each token (kernels/cuda/recurrent.cpp).
  if (kernels.op.starts_with("recurrent")) {
    kernels.launches = 2 * static_cast<int>(in[0].shape[1]);
  }
  // The engine's own kernels, of experts and of attention, have no tensor cores in f32.
  const KernelKind kind = kind_of(kernels, in, out, node.attributes);
  const bool tf32 = rounds_to_tf32(node.attributes) && kind <= KernelKind::convolution;
  return kernel_cost(gpu, kind, in[0].dtype, bytes, cost.flops, kernels.launches, tf32);
}

KernelKind kernel_kind(const Node& node) {
  return kernels_of(node).kind;
}

std::string call_name(const Graph& graph, const Node& node) {
  const KernelKind kind =
      kind_of(kernels_of(node), graph.input_specs(node), graph.output_specs(node), node.attributes);
  return std::string(node.op->name) +
         (kind == KernelKind::unaligned_matmul ? ", rows not of 16 bytes" : "");
}

}  // namespace dltrain
