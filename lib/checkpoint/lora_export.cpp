#include "checkpoint/lora_export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "nn/huggingface/folder.h"

namespace dltrain {
namespace {

// Returns the weight with the product of the adapter in it, in the order of its file.
// `m`: without a name but for dora.
std::vector<float> merged_weight(const OutputTensor& weight, bool in_first, const OutputTensor& a,
                                 const OutputTensor& b, const OutputTensor& m, double scale) {
  std::vector<float> values = weight.values();
  const std::vector<float> left = b.values(), right = a.values();
  const std::vector<float> lengths = m.name.empty() ? std::vector<float>() : m.values();
  const int64_t rank = a.shape[0], in = a.shape[1], out = b.shape[0];
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < out; ++row) {
    const auto value_at = [&](int64_t column) -> float& {
      return values[static_cast<size_t>(in_first ? column * out + row : row * in + column)];
    };
    double squares = 0;
    for (int64_t column = 0; column < in; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < rank; ++k) {
        sum += static_cast<double>(left[static_cast<size_t>(row * rank + k)]) *
               static_cast<double>(right[static_cast<size_t>(k * in + column)]);
      }
      const double value = static_cast<double>(value_at(column)) + scale * sum;
      squares += value * value;
      value_at(column) = static_cast<float>(value);
    }
    if (lengths.empty()) continue;
    const double factor = double{lengths[static_cast<size_t>(row)]} / std::sqrt(squares);
    for (int64_t column = 0; column < in; ++column) {
      value_at(column) = static_cast<float>(double{value_at(column)} * factor);
    }
  }
  return values;
}

// GPT-2's files have the weights of its layers as [in, out].
bool is_in_first(const IdentifiedModel& model) {
  return model.family->model_type == "gpt2";
}

bool is_learned(const std::string& name, const LoraConfig& lora) {
  return !adapted_module(name).empty() || selects_one_of(lora.also_train, ends_of(name));
}

// Returns the end of a module's path that also names the others of `chosen` that it fits, and none
// of `all` besides: "q_proj", or the whole path.
std::string shortest_name(const std::string& module, const std::set<std::string>& chosen,
                          const std::set<std::string>& all) {
  const std::vector<std::string> ends = ends_of(module);
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const bool unique = std::ranges::all_of(all, [&](const std::string& other) {
      return chosen.contains(other) || (other != *end && !other.ends_with("." + *end));
    });
    if (unique) return *end;
  }
  return module;
}

}  // namespace

std::vector<OutputTensor> merged_tensors(const std::vector<OutputTensor>& tensors,
                                         const IdentifiedModel& model, const LoraConfig& lora) {
  std::map<std::string, const OutputTensor*> adapters;
  std::set<std::string> missing;  // modules whose weight has not been found
  for (const OutputTensor& tensor : tensors) {
    const std::string_view module = adapted_module(tensor.name);
    if (module.empty()) continue;
    adapters.emplace(tensor.name, &tensor);
    missing.emplace(module);
  }
  std::vector<OutputTensor> out;
  for (const OutputTensor& tensor : tensors) {
    if (!adapted_module(tensor.name).empty()) continue;
    out.push_back(tensor);
    const std::string module(module_of_weight(tensor.name));
    if (missing.erase(module) == 0) continue;
    const auto part = [&](std::string_view suffix) {
      const auto at = adapters.find(module + std::string(suffix));
      return at == adapters.end() ? OutputTensor() : *at->second;
    };
    out.back().values = [tensor, a = part(kLoraA), b = part(kLoraB), m = part(kLoraMagnitude),
                         in_first = is_in_first(model), scale = lora.scale()] {
      return merged_weight(tensor, in_first, a, b, m, scale);
    };
  }
  if (!missing.empty()) {
    fail(ExitCode::usage,
         "{} shares its weight with another layer, which must not change: its adapter cannot be "
         "merged",
         *missing.begin());
  }
  return out;
}

std::vector<OutputTensor> learned_tensors(std::vector<OutputTensor> tensors,
                                          const IdentifiedModel& model, const LoraConfig& lora) {
  std::erase_if(tensors, [&](const OutputTensor& t) { return !is_learned(t.name, lora); });
  std::set<std::string, std::less<>> whole;
  for (const OutputTensor& tensor : tensors) whole.emplace(module_of_weight(tensor.name));
  const auto is_whole = [&](const OutputTensor& tensor) {
    const std::string_view module = adapted_module(tensor.name);
    return module.empty() || whole.contains(module);
  };
  // Not std::ranges: clang 14 cannot compile the views of g++ 12's library.
  const auto adapters = std::stable_partition(tensors.begin(), tensors.end(), is_whole);
  std::vector<OutputTensor> out = merged_tensors({tensors.begin(), adapters}, model, lora);
  out.insert(out.end(), adapters, tensors.end());
  return out;
}

nlohmann::ordered_json adapter_config(const std::vector<OutputTensor>& tensors,
                                      const IdentifiedModel& model, const ModelConfig& config) {
  const LoraConfig& lora = *config.lora;
  if (!config.init_from) {
    fail(ExitCode::usage,
         "adapters are of no use without their base, and this model had none (model.from, "
         "model.init_from); export with --merge");
  }
  std::set<std::string> all, adapted, saved, frozen;
  const auto exported = [&](std::string_view module) {
    const std::string weight = model.family->exported(std::string(module) + ".weight");
    return std::string(module_of_weight(weight));
  };
  for (const OutputTensor& tensor : tensors) {
    if (const std::string_view module = adapted_module(tensor.name); !module.empty()) {
      adapted.insert(exported(module));
      continue;
    }
    const std::string module = exported(tensor.name.substr(0, tensor.name.rfind('.')));
    all.insert(module);
    (is_learned(tensor.name, lora) ? saved : frozen).insert(module);
  }
  for (const std::string& module : saved) {
    adapted.erase(module);  // learned_tensors()
    // transformers has the experts of a layer in one tensor, under another name than in files.
    const bool renamed = module.find(".experts.") != std::string::npos ||
                         module.find(".block_sparse_moe.") != std::string::npos;
    const auto inside = all.lower_bound(module + ".");
    const bool in_part =
        frozen.contains(module) || (inside != all.end() && inside->starts_with(module + "."));
    const char* problem = in_part   ? "in part, and peft saves whole modules"
                          : renamed ? "whole, and peft cannot load this part of a mixture"
                          : module == exported(model.tied)
                              ? "whole, and is the weight of the head, which peft would not change"
                              : nullptr;
    if (problem == nullptr) continue;
    fail(ExitCode::usage, "{} learns {} (model.lora.also_train); export with --merge", module,
         problem);
  }
  if (adapted.empty()) {
    fail(ExitCode::usage,
         "all layers that have an adapter learn whole (model.lora.also_train), so peft would have "
         "none; export with --merge");
  }
  std::set<std::string> targets;
  for (const std::string& module : adapted) targets.insert(shortest_name(module, adapted, all));
  const bool from_folder = config.init_from && huggingface_family_of(*config.init_from) != nullptr;
  using Json = nlohmann::ordered_json;
  return {{"peft_type", "LORA"},
          {"task_type", model.family->model_type == "bert" ? Json(nullptr) : Json("CAUSAL_LM")},
          {"base_model_name_or_path", from_folder ? Json(*config.init_from) : Json(nullptr)},
          {"r", lora.rank},
          {"lora_alpha", lora.alpha.value_or(2.0 * static_cast<double>(lora.rank))},
          {"lora_dropout", lora.dropout},
          {"target_modules", targets},
          {"modules_to_save", saved.empty() ? Json(nullptr) : Json(saved)},
          {"fan_in_fan_out", is_in_first(model)},
          {"bias", "none"},
          {"use_rslora", lora.variant == LoraVariant::rslora},
          {"use_dora", lora.variant == LoraVariant::dora},
          {"init_lora_weights", true},
          {"inference_mode", true}};
}

}  // namespace dltrain
