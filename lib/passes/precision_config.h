// The configuration section `precision`: number formats, by layer.
#pragma once

#include <optional>
#include <string>

#include "config/fields.h"
#include "graph/graph.h"
#include "tensor/dtype.h"

namespace dltrain {

// The layer of the nodes that a loss emits.
inline constexpr std::string_view kLossLayer = "loss";

// The arithmetic of products of f32 operands: TF32 rounds these to 10 bits of fraction.
enum class ProductMath : uint8_t { f32, tf32 };

enum class Fp8Recipe : uint8_t { delayed, current, blockwise, mxfp8 };

// FP8 operands of linear layers (passes/fp8.h).
struct Fp8Config : ConfigObject {
  Fp8Recipe recipe = Fp8Recipe::current;
  std::vector<std::string> except;  // patterns of layers
  int64_t history = 1024;           // steps, of delayed

  void describe(Fields& f);
  // Returns the elements along the sum that have a scale of their own; 0: a tensor has one scale.
  int64_t block_size() const {
    return recipe == Fp8Recipe::blockwise ? 128 : recipe == Fp8Recipe::mxfp8 ? 32 : 0;
  }
  bool has_blocks() const { return block_size() > 0; }
};

struct PrecisionConfig : ConfigObject {
  DType compute = DType::f32;
  DType parameters = DType::f32;
  DType residual = DType::f32;
  ProductMath matmul = ProductMath::f32;
  std::optional<Fp8Config> fp8;
  TextPairs overrides;                     // pattern of layers → f32, tf32, bf16 or fp16
  std::optional<double> init_scale;        // of the loss, with fp16: 65536 when absent
  std::optional<int64_t> growth_interval;  // steps, with fp16: 2000 when absent

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
  bool scales_loss() const { return compute == DType::f16; }
  bool low_residual() const { return residual != DType::f32; }
  bool narrow_parameters() const { return parameters == DType::bf16; }

  // The 16-bit dtype that `compute` or an override names; f32: none. There is at most one.
  DType low() const;
  // Return how the layer of this path computes: the last override that matches decides.
  bool computes_low(const std::string& layer) const;
  bool computes_tf32(const std::string& layer) const;
  // Returns true if any layer may have TF32 products.
  bool any_tf32() const;
  // Throws ConfigError for a pattern that matches no layer of the graph.
  void check_layers(const Graph& graph) const;

 private:
  std::string named(const std::string& layer) const;  // "bf16", "tf32", …
};

}  // namespace dltrain
