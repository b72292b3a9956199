#include "nn/lora.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "config/name_patterns.h"
#include "config/paths.h"
#include "config/scalar.h"
#include "nn/huggingface/config_json.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxAdapterConfig = 16 << 20;

// Returns the name in dltrain of a module of transformers.
std::string own_name(const std::string& module) {
  return module.substr(module.starts_with(kGpt2Modules) ? kGpt2Modules.size() : 0);
}

// Sets the keys that an adapter_config.json gives, unless the section has them, and reports what
// would compute something else.
void read_adapter_config(ConfigJson& json, ConfigNode& map) {
  const auto set = [&](const char* key, std::string text) {
    if (map.find(key) != nullptr) return;
    map.set({key, map.location}, ConfigNode::make_scalar(std::move(text), map.location));
  };
  const auto set_list = [&](const char* key, const std::vector<std::string>& texts) {
    if (texts.empty() || map.find(key) != nullptr) return;
    ConfigNode list;
    list.kind = ConfigNode::Kind::list;
    list.location = map.location;
    for (const std::string& text : texts) {
      list.items.push_back(ConfigNode::make_scalar(text, map.location, ConfigNode::Style::quoted));
    }
    map.set({key, map.location}, std::move(list));
  };
  json.only("peft_type", "LORA");
  set("rank", std::to_string(json.integer("r", 8)));
  set("alpha", number_text(json.number("lora_alpha", 8)));
  set("dropout", number_text(json.number("lora_dropout", 0)));
  const bool dora = json.boolean("use_dora", false), rslora = json.boolean("use_rslora", false);
  if (dora && rslora) json.add_error("use_dora with use_rslora is not supported");
  set("variant", dora ? "dora" : rslora ? "rslora" : "lora");
  std::vector<std::string> modules, trained;
  for (const std::string& name : json.texts("target_modules")) modules.push_back(own_name(name));
  // In peft, too, "norm" also means "input_layernorm".
  for (const std::string& name : json.texts("modules_to_save")) {
    trained.push_back("*" + own_name(name) + ".*");
  }
  if (modules.empty()) json.add_error("target_modules must be a list of names");
  set_list("match", modules);
  set_list("also_train", trained);
  json.only("bias", "none");
  for (const char* key : {"lora_bias", "use_qalora", "use_bdlora"}) json.only(key, false);
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    json.only(key, nlohmann::json::object());
  }
  for (const char* key :
       {"layers_to_transform", "exclude_modules", "target_parameters", "trainable_token_indices",
        "layer_replication", "alora_invocation_tokens"}) {
    json.only(key, nlohmann::json::array());  // or null
  }
}

// Reports adapters that belong to a base whose weights were changed when they were made.
void refuse_changed_base(const std::string& text, ConfigJson& json) {
  const auto raw = try_parse_json(text);
  const auto start = raw.find("init_lora_weights");
  if (start == raw.end() || !start->is_string()) return;
  const auto name = start->get<std::string>();
  for (const char* changes : {"pissa", "olora", "corda", "loftq"}) {
    if (!name.starts_with(changes)) continue;
    json.add_error(
        fmt::format("init_lora_weights '{}' changes the weights of the model, which is "
                    "not supported; convert the adapters to plain LoRA with peft",
                    name));
  }
}

}  // namespace

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha.value_or(2 * r) / (variant == LoraVariant::rslora ? std::sqrt(r) : r);
}

WeightCodes LoraConfig::codes() const {
  if (base == LoraBase::int8) return {.format = WeightFormat::int8};
  if (base != LoraBase::nf4) return {};
  return {.format = WeightFormat::nf4, .double_quantization = double_quantization.value_or(true)};
}

bool LoraConfig::saves_base() const {
  const bool coded = base == LoraBase::int8 || base == LoraBase::nf4;
  return save.value_or(coded ? LoraSave::adapters : LoraSave::all) == LoraSave::all;
}

bool LoraConfig::rewrite(ConfigNode& map, Diagnostics& diagnostics) {
  const ConfigNode* from = map.find("from");
  if (from == nullptr) return true;
  if (from->is_null()) {
    map.erase("from");
    return true;
  }
  if (!from->is_scalar() || map.find("init_from") != nullptr) {
    diagnostics.add(from->location, from->is_scalar() ? "lora has both from and init_from; keep one"
                                                      : "expected a folder");
    return false;
  }
  const SourceLocation location = from->location;
  const fs::path folder = beside_configuration(
      location, from->text, [](const fs::path& path) { return is_file(path / kAdapterConfig); });
  const fs::path file = folder / kAdapterConfig;
  if (!is_file(file)) {
    diagnostics.add(location, "{} has no {}", folder.string(), kAdapterConfig);
    return false;
  }
  map.erase("from");
  try {
    const std::string text = read_file(file, kMaxAdapterConfig, ExitCode::usage);
    ConfigJson json(file.string(), text);
    read_adapter_config(json, map);
    refuse_changed_base(text, json);
    for (const std::string& message : json.errors()) {
      diagnostics.add(location, "{}: {}", file.string(), message);
    }
    if (!json.errors().empty()) return false;
  } catch (const Error& error) {
    diagnostics.add(location, error.what());
    return false;
  }
  map.set({"init_from", location},
          ConfigNode::make_scalar(fs::absolute(folder).lexically_normal().string(), location,
                                  ConfigNode::Style::quoted));
  return true;
}

void LoraConfig::describe(Fields& f) {
  f.integer("rank", rank,
            {.doc = "Rows of A and columns of B; `lora: 8` means rank 8",
             .min = 1,
             .max = 65536,
             .known_as = {"r", "lora_r"}});
  f.number("alpha", alpha,
           {.doc = "What adapters add is multiplied by alpha / rank; default: twice the rank",
            .above = 0,
            .known_as = {"lora_alpha"}});
  f.number("dropout", dropout,
           {.doc = "Probability of setting an element of an adapter's input to zero in training",
            .min = 0,
            .below = 1,
            .known_as = {"lora_dropout"}});
  f.texts("match", match,
          {.doc = "Patterns of the linear layers that get an adapter, for their paths "
                  "(\"h.0.attn.*\"), the ends of these (q_proj, as target_modules of peft), or the "
                  "names of their weights; default: all but the head",
           .scalar_ok = true,
           .known_as = {"target_modules", "lora_target_modules", "targets"}});
  f.texts("also_train", also_train,
          {.doc = "Patterns of parameters of the base that are trained too, such as a new head, "
                  "for their names or the ends of these (\"classifier.*\")",
           .scalar_ok = true,
           .known_as = {"modules_to_save", "train"}});
  f.choice("variant", variant,
           {{"lora", LoraVariant::lora, "Hu et al. 2022"},
            {"rslora", LoraVariant::rslora, "alpha / √rank (Kalajdzievski 2023)"},
            {"dora", LoraVariant::dora,
             "the length of each row of the weight is learned too (Liu et al. 2024)"}},
           {.doc = "How the adapter changes its layer", .known_as = {"type", "method"}});
  f.choice("base", base,
           {{"f32", LoraBase::f32, "as without adapters"},
            {"bf16", LoraBase::bf16,
             "with precision.compute: bf16, no f32 values of frozen parameters that only matrix "
             "products read: 2 bytes each instead of 6"},
            {"int8", LoraBase::int8,
             "the weights that have adapters in 8 bits, with a scale for each row; other frozen "
             "parameters as with bf16, or f32 if precision.compute is f32"},
            {"nf4", LoraBase::nf4,
             "likewise in 4 bits, with a scale for each 64 elements (QLoRA, Dettmers et al. "
             "2023)"}},
           {.doc = "Element type in which frozen parameters are kept",
            .known_as = {"base_dtype", "quantization", "load_in_4bit", "load_in_8bit",
                         "bnb_4bit_quant_type"}});
  f.boolean("double_quantization", double_quantization,
            {.doc = "With base: nf4, keep its scales in 8 bits too: 0.127 bits a weight instead of "
                    "0.5; default: true",
             .known_as = {"bnb_4bit_use_double_quant", "double_quant"}});
  f.choice("save", save,
           {{"all", LoraSave::all, "the whole model"},
            {"adapters", LoraSave::adapters,
             "what learns; the frozen base is taken from model.init_from, or its initial values, "
             "again: the folder must stay as it is, which its hash proves"}},
           {.doc = "What checkpoints have; default: all, with base: int8 or nf4 adapters"});
  f.rewritten("from", {.type = "path", .schema = R"({"type": "string"})"},
              {.doc = "Folder of peft (adapter_config.json and adapter_model.safetensors) with the "
                      "adapters' first values and these keys; keys beside it replace its own",
               .is_path = true,
               .known_as = {"adapter", "adapter_name_or_path", "lora_model_dir"}});
  f.text("init_from", init_from,
         {.doc = "Folder or file of peft's adapter_model.safetensors with the first values of the "
                 "adapters",
          .is_path = true});
}

void LoraConfig::validate(Diagnostics& diagnostics) const {
  const bool coded = codes().format != WeightFormat::wide;
  if (double_quantization && base != LoraBase::nf4) {
    diagnostics.add(*this, "double_quantization", "only base: nf4 has scales to quantise");
  }
  if (coded && save == LoraSave::all) {
    diagnostics.add(*this, "save",
                    "checkpoints hold no codes; leave save out, and export --merge writes the "
                    "whole model");
  }
  if (variant == LoraVariant::dora && base != LoraBase::f32) {
    diagnostics.add(*this, "base", "dora reads the f32 weights; take base: f32");
  }
}

std::string_view adapted_module(std::string_view parameter) {
  for (const std::string_view suffix : kAdapterSuffixes) {
    if (parameter.ends_with(suffix)) return parameter.substr(0, parameter.size() - suffix.size());
  }
  return {};
}

std::string_view module_of_weight(std::string_view parameter) {
  constexpr std::string_view kWeight = "weight";
  if (!parameter.ends_with(kWeight)) return {};
  parameter.remove_suffix(kWeight.size());
  if (!parameter.ends_with('.') && !parameter.ends_with('_')) return {};
  parameter.remove_suffix(1);
  return parameter;
}

std::vector<std::string> ends_of(std::string_view path) {
  std::vector<std::string> out{std::string(path)};
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    out.emplace_back(path.substr(dot + 1));
  }
  return out;
}

bool selects_one_of(const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (size_t i = patterns.size(); i-- > 0;) {
    const std::string_view pattern = patterns[i];
    const bool excluded = pattern.starts_with('!');
    const auto fits = [&](const std::string& name) {
      return matches_pattern(pattern.substr(excluded ? 1 : 0), name);
    };
    if (std::ranges::any_of(names, fits)) return !excluded;
  }
  return false;
}

}  // namespace dltrain
