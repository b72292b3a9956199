// The time of kernels on a GPU, from their bytes and FLOP:
//
//   max(bytes / achieved bandwidth, FLOP / achieved FLOP rate) / efficiency of the kind of kernel
//     + launch
//
// The calls of a step are captured, so a launch costs the beginning and the end of a kernel on the
// GPU and nothing on the host. Nothing overlaps.
#pragma once

#include <string_view>

#include "compile/gpu.h"
#include "graph/graph.h"

namespace dltrain {

enum class KernelKind : uint8_t {
  matmul,
  gelu_matmul,       // ends with GELU or its derivative, and writes or reads x too
  unaligned_matmul,  // an operand or the result has rows that are no multiple of 16 bytes
  convolution,
  attention,  // forward, heads of up to 64 channels
  attention_backward,
  wide_attention,  // heads of more than 64 channels
  wide_attention_backward,
  grouped_matmul,  // rows of 16 bits that are multiples of 16 bytes: tensor cores
  elementwise,
  row,     // norms and cross-entropy: rows that are read at once
  column,  // sums over rows: gradients of biases and norms
  gather,  // rows by index
  plain_grouped_matmul,
  update,  // of all parameters
};

struct KernelCost {
  std::string_view limit;  // "memory", "compute" or "launch"
  double seconds = 0, bytes = 0, flops = 0;
};

// `tf32`: for products of f32 (ops/rules.h).
KernelCost kernel_cost(const Gpu& gpu, KernelKind kind, DType dtype, double bytes, double flops,
                       int launches = 1, bool tf32 = false);

// Returns the cost of a node's call. `adds`: to its output.
KernelCost call_cost(const Gpu& gpu, const Graph& graph, const Node& node, bool adds);

// Returns the kind of a node's kernel; of a product that of one with aligned rows.
KernelKind kernel_kind(const Node& node);

// Returns the node's op, and why its kernel is a slow one: "matmul, rows not of 16 bytes".
std::string call_name(const Graph& graph, const Node& node);

}  // namespace dltrain
