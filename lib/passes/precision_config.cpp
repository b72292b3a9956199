#include "passes/precision_config.h"

#include <algorithm>
#include <cmath>

#include "config/name_patterns.h"

namespace dltrain {

void PrecisionConfig::describe(Fields& f) {
  f.choice("compute", compute,
           {{"f32", DType::f32, "single precision"},
            {"bf16", DType::bf16, "bfloat16, the range of f32 with 8 bits of precision"},
            {"fp16", DType::f16, "IEEE half precision, with dynamic loss scaling"}},
           {.doc = "Element type of matrix products and of the activations between them; "
                   "parameters, sums, statistics and the loss stay f32",
            .known_as = {"dtype", "mixed_precision"}});
  f.choice("parameters", parameters,
           {{"f32", DType::f32,
             "f32 master weights; matrix products read copies that are rounded after "
             "every step"},
            {"bf16", DType::bf16,
             "with compute: bf16, no f32 master weights for parameters that only matrix "
             "products read; updates are rounded stochastically"}},
           {.doc = "Element type of parameters. bf16 saves 4 bytes each and keeps fewer digits of "
                   "small updates (docs/design.md)",
            .known_as = {"param_dtype", "parameter_dtype", "weights"}});
  f.choice("residual", residual,
           {{"f32", DType::f32, "what embeddings make, and the sums along a transformer, are f32"},
            {"bf16", DType::bf16, "with compute: bf16, these are bf16 too"}},
           {.doc = "Element type of the residual stream of models that begin with embeddings. bf16 "
                   "halves its memory and traffic and keeps 8 bits of each sum",
            .known_as = {"residual_dtype"}});
  f.choice(
      "matmul", matmul,
      {{"f32", ProductMath::f32, "products of f32 operands are those of f32"},
       {"tf32", ProductMath::tf32,
        "their operands are rounded to 10 bits of fraction, sums are f32: several times as "
        "fast on GPUs since Ampere; exact, but slower than f32, on the CPU"}},
      {.doc = "Arithmetic of f32 products: matrix products, convolutions, attention, recurrent "
              "networks. No effect where layers compute in 16 bits (docs/equality.md)",
       .known_as = {"allow_tf32", "tf32", "float32_matmul_precision"}});
  f.section(
      "fp8", fp8,
      {.doc = "With compute: bf16, round the operands of linear layers' products to 8 bits in "
              "training, forward and backward; not those of the last one",
       .known_as = {"float8", "fp8_recipe"}});
  f.text_map(
      "overrides", overrides,
      {.doc = "Layers that compute in another format than `compute` and `matmul` say: "
              "patterns of their paths with f32, tf32, bf16 or fp16, such as {lm_head: f32}. "
              "`*` matches any characters; of several patterns the last decides",
       .known_as = {"exceptions", "layers"}});
  f.number("init_scale", init_scale,
           {.doc = "fp16: initial scale of the loss, a power of two (default 65536). A step whose "
                   "gradient overflows is skipped and halves it",
            .min = 1,
            .max = 16777216,
            .known_as = {"loss_scale", "initial_scale"}});
  f.integer("growth_interval", growth_interval,
            {.doc = "fp16: finite steps after which the scale doubles (default 2000)",
             .min = 1,
             .max = 1e9,
             .known_as = {"loss_scale_window", "scale_window"}});
}

void Fp8Config::describe(Fields& f) {
  f.choice("recipe", recipe,
           {{"current", Fp8Recipe::current,
             "a tensor has the scale that its largest element needs; E4M3, gradients E5M2"},
            {"delayed", Fp8Recipe::delayed,
             "that of the largest element of the last steps, so that it is known beforehand"},
            {"blockwise", Fp8Recipe::blockwise,
             "E4M3 with a scale for 128 elements along the sum, of weights for 128 x 128 "
             "(DeepSeek-V3)"},
            {"mxfp8", Fp8Recipe::mxfp8, "E4M3 with a scale for 32 elements (OCP Microscaling)"}},
           {.doc = "Formats and scales; scales are powers of two", .known_as = {"scaling"}});
  f.texts("except", except,
          {.doc = "Patterns of linear layers whose products stay bf16, such as [\"blocks.0.*\"]",
           .scalar_ok = true,
           .known_as = {"exclude", "skip", "filter_fqns"}});
  f.integer("history", history,
            {.doc = "delayed: steps whose largest elements count",
             .min = 1,
             .max = 65536,
             .known_as = {"amax_history_len", "window"}});
}

void PrecisionConfig::validate(Diagnostics& diagnostics) const {
  if (narrow_parameters() && compute != DType::bf16) {
    diagnostics.add(*this, "parameters", "parameters: bf16 needs compute: bf16");
  }
  if (low_residual() && compute != DType::bf16) {
    diagnostics.add(*this, "residual", "residual: bf16 needs compute: bf16");
  }
  if (fp8 && compute != DType::bf16) {
    diagnostics.add(*this, "fp8", "fp8 needs compute: bf16, in which the other ops compute");
  }
  if (init_scale && std::exp2(std::round(std::log2(*init_scale))) != *init_scale) {
    diagnostics.add(*this, "init_scale", "{} is not a power of two", *init_scale);
  }
  for (const auto& [pattern, format] : overrides) {
    if (format == "f32" || format == "tf32") continue;
    if (format != "bf16" && format != "fp16") {
      diagnostics.add(*this, "overrides", "{}: '{}' is not a format; give f32, tf32, bf16 or fp16",
                      pattern, format);
    } else if (format == "fp16" && compute != DType::f16) {
      diagnostics.add(*this, "overrides", "{}: fp16 needs compute: fp16, which scales the loss",
                      pattern);
    } else if (format == "bf16" && compute == DType::f16) {
      diagnostics.add(*this, "overrides", "{}: a run has one 16-bit format, here compute: fp16",
                      pattern);
    }
  }
  if (scales_loss()) return;
  if (init_scale) diagnostics.add(*this, "init_scale", "init_scale needs compute: fp16");
  if (growth_interval)
    diagnostics.add(*this, "growth_interval", "growth_interval needs compute: fp16");
}

std::string PrecisionConfig::named(const std::string& layer) const {
  for (size_t i = overrides.size(); i-- > 0;) {
    if (matches_pattern(overrides[i].first, layer)) return overrides[i].second;
  }
  if (compute != DType::f32) return "low";
  return matmul == ProductMath::tf32 ? "tf32" : "f32";
}

DType PrecisionConfig::low() const {
  const bool bf16 =
      std::ranges::any_of(overrides, [](const auto& entry) { return entry.second == "bf16"; });
  return compute == DType::f32 && bf16 ? DType::bf16 : compute;
}

bool PrecisionConfig::computes_low(const std::string& layer) const {
  const std::string format = named(layer);
  return format != "f32" && format != "tf32";
}

bool PrecisionConfig::computes_tf32(const std::string& layer) const {
  const std::string format = named(layer);
  return format == "tf32" || (matmul == ProductMath::tf32 && format != "f32");
}

bool PrecisionConfig::any_tf32() const {
  return matmul == ProductMath::tf32 ||
         std::ranges::any_of(overrides, [](const auto& entry) { return entry.second == "tf32"; });
}

void PrecisionConfig::check_layers(const Graph& graph) const {
  if (overrides.empty()) return;
  std::vector<std::string> layers, patterns;
  for (const Node& node : graph.nodes) {
    if (!node.layer.empty() && node.layer != kLossLayer &&
        std::ranges::find(layers, node.layer) == layers.end()) {
      layers.push_back(node.layer);
    }
  }
  for (const auto& entry : overrides) {
    // Some checks train without the teacher.
    if (!entry.first.starts_with("teacher")) patterns.push_back(entry.first);
  }
  Diagnostics diagnostics;
  check_patterns(diagnostics, *this, "overrides", patterns, layers, "layer");
  diagnostics.throw_if_any();
}

}  // namespace dltrain
