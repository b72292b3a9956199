// model.lora: low-rank adapters beside linear layers whose weights are frozen (Hu et al. 2022). A
// layer y = x·Wᵀ + b with an adapter computes
//   y = x·Wᵀ + b + s·(drop(x)·Aᵀ)·Bᵀ,   A [rank, in], B [out, rank],
// where s = alpha/rank, or alpha/√rank for rslora (Kalajdzievski 2023). A begins uniform within
// 1/√in as in peft, B with zeros, so the first step computes what the base computes, to the bit.
//
// dora (Liu et al. 2024) also learns the length m [out] of each row of the weight:
//   y = (m/‖W + s·B·A‖)·(x·Wᵀ + s·x·Aᵀ·Bᵀ) + b,   m first ‖W‖,
// with the norms of rows as constants in the backward (ops/row_norms.cpp). m is set from the weight
// when a run begins (checkpoint/weights.h). nn/adapters.cpp emits them.
//
// The base may be kept in codes (QLoRA, Dettmers et al. 2023): the weights that have adapters and
// that only products read. passes/frozen_base.h expands them for each product.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields.h"
#include "config/tree.h"
#include "tensor/weight_codes.h"

namespace dltrain {

enum class LoraVariant : uint8_t { lora, rslora, dora };
enum class LoraBase : uint8_t { f32, bf16, int8, nf4 };
enum class LoraSave : uint8_t { all, adapters };

struct LoraConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "rank";
  int64_t rank = 16;
  std::optional<double> alpha;  // absent: twice the rank
  double dropout = 0;
  std::vector<std::string> match;       // empty: all linear layers but the head
  std::vector<std::string> also_train;  // parameters of the base that learn too
  LoraVariant variant = LoraVariant::lora;
  LoraBase base = LoraBase::f32;
  std::optional<bool> double_quantization;  // of nf4; absent: yes
  std::optional<LoraSave> save;             // absent: adapters for int8 and nf4, else all
  std::optional<std::string> init_from;     // a folder of peft

  double scale() const;  // s
  // Returns the format in which the weights with adapters are kept.
  WeightCodes codes() const;
  // Returns whether checkpoints have the frozen parameters. Otherwise these are loaded or
  // initialised again wherever a checkpoint is used.
  bool saves_base() const;
  // Returns whether passes/frozen_base.h has anything to do.
  bool changes_base() const { return base != LoraBase::f32 || !saves_base(); }

  // Replaces {from: FOLDER} by the keys of its adapter_config.json and {init_from: FOLDER}.
  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// The names of the parameters of an adapter, as peft has them: "<module>.lora_A.weight".
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";
inline constexpr std::string_view kLoraMagnitude = ".lora_magnitude_vector";
inline constexpr std::array kAdapterSuffixes{kLoraA, kLoraB, kLoraMagnitude};

// Returns what precedes one of these suffixes; "" for the name of another parameter.
std::string_view adapted_module(std::string_view parameter);

// Returns the name of the module of a weight, "h.0.attn.c_attn" of "h.0.attn.c_attn.weight", and
// "a.in_proj" of "a.in_proj_weight"; "" for other parameters.
std::string_view module_of_weight(std::string_view parameter);

// Returns a dotted path and its ends: "attn.c_attn", "c_attn". As in peft, patterns may name any.
std::vector<std::string> ends_of(std::string_view path);
// Returns whether `patterns` (config/name_patterns.h) select something that has these names.
bool selects_one_of(const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names);

// In files of peft, kPeftModules precedes the names of transformers, which for GPT-2 begin with
// kGpt2Modules.
inline constexpr std::string_view kPeftModules = "base_model.model.";
inline constexpr std::string_view kGpt2Modules = "transformer.";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterStem = "adapter_model";  // of its safetensors file

}  // namespace dltrain
