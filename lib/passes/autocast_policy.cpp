// The table of autocast policies. An op that is not listed computes in f32.
#include "passes/autocast.h"

namespace dltrain {
namespace {

struct Row {
  std::string_view op;
  CastPolicy policy;
};

constexpr Row kTable[] = {
    {"matmul", CastPolicy::low},
    {"conv2d", CastPolicy::low},
    {"conv2d_backward_input", CastPolicy::low},  // the forward of a transposed convolution
    {"attention", CastPolicy::low},              // softmax and sums within it are f32
    {"recurrent", CastPolicy::low},              // the cells and sums of a step are f32
    {"recurrent_network", CastPolicy::low},      // likewise
    // Their result is rounded anyway, and kernels compute in f32.
    {"relu", CastPolicy::follow},
    {"gelu", CastPolicy::follow},
    {"gelu_tanh", CastPolicy::follow},
    {"silu", CastPolicy::follow},
    {"tanh", CastPolicy::follow},
    {"sigmoid", CastPolicy::follow},
    {"leaky_relu", CastPolicy::follow},
    {"elu", CastPolicy::follow},
    {"selu", CastPolicy::follow},
    {"softplus", CastPolicy::follow},
    {"mish", CastPolicy::follow},
    {"hardswish", CastPolicy::follow},
    {"hardsigmoid", CastPolicy::follow},
    {"hardtanh", CastPolicy::follow},
    {"softsign", CastPolicy::follow},
    {"quick_gelu", CastPolicy::follow},
    {"affine", CastPolicy::follow},
    {"identity", CastPolicy::follow},
    {"add", CastPolicy::follow},
    {"sub", CastPolicy::follow},
    {"mul", CastPolicy::follow},
    {"broadcast", CastPolicy::follow},
    {"reshape", CastPolicy::follow},
    {"concat", CastPolicy::follow},
    {"slice", CastPolicy::follow},
    {"pad", CastPolicy::follow},
    {"transpose", CastPolicy::follow},
    {"max_pool2d", CastPolicy::follow},
    {"adaptive_max_pool2d", CastPolicy::follow},
    {"avg_pool2d", CastPolicy::follow},
    {"upsample2d", CastPolicy::follow},
    {"dropout", CastPolicy::follow},
    {"dropout2d", CastPolicy::follow},
    {"rotary", CastPolicy::follow},
    {"sinusoidal_positions", CastPolicy::follow},
    // Scales, shifts and statistics are f32, and so are sums.
    {"batch_norm", CastPolicy::follow_first},
    {"batch_norm_inference", CastPolicy::follow_first},
    {"layer_norm", CastPolicy::follow_first},
    {"rms_norm", CastPolicy::follow_first},
    {"group_norm", CastPolicy::follow_first},
    {"reduce", CastPolicy::follow_first},
    {"softmax_cross_entropy",
     CastPolicy::follow_first},  // sums are f32; logits need not be widened
    // Small differences of large numbers, or results that grow quickly.
    {"exp", CastPolicy::f32},
    {"log", CastPolicy::f32},
    {"sqrt", CastPolicy::f32},
    {"square", CastPolicy::f32},
    {"div", CastPolicy::f32},
    {"embedding", CastPolicy::f32},  // a step reads few rows of the table: a copy is not worthwhile
    {"softmax", CastPolicy::f32},
    {"log_softmax", CastPolicy::f32},
    {"cast", CastPolicy::f32},
};

}  // namespace

CastPolicy cast_policy(std::string_view op) {
  for (const Row& row : kTable) {
    if (row.op == op) return row.policy;
  }
  return CastPolicy::f32;
}

}  // namespace dltrain
