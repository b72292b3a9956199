#include "nn/huggingface/folder.h"

#include "base/file.h"
#include "base/json.h"
#include "config/paths.h"
#include "config/suggest.h"
#include "nn/lora.h"
#include "nn/model_files.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxConfig = 16 << 20;
constexpr const char* kConfig = "config.json";

ConfigNode path_node(const SourceLocation& location, const fs::path& path) {
  return ConfigNode::make_scalar(fs::absolute(path).lexically_normal().string(), location,
                                 ConfigNode::Style::quoted);
}

// If `key` is given, returns the keys of the architecture whose default is `$key`, which the
// folder's values must not replace.
std::vector<std::string> keys_that_follow(std::string_view key, const std::string& architecture,
                                          const ConfigNode& map) {
  std::vector<std::string> out;
  if (map.find(key) == nullptr) return out;
  for (const EmbeddedFile& file : model_files()) {
    if (file.name != architecture) continue;
    for (const auto& parameter : summarize(file).parameters) {
      const bool follows =
          parameter.initial.is_scalar() && parameter.initial.text == fmt::format("${}", key);
      if (follows) out.push_back(parameter.name.text);
    }
  }
  return out;
}

}  // namespace

nlohmann::json read_json_file(const fs::path& path) {
  if (!is_file(path)) return nullptr;
  auto json = try_parse_json(read_file(path, kMaxConfig, ExitCode::usage));
  return json.is_object() ? json : nullptr;
}

nlohmann::json read_config_json(const fs::path& folder) {
  return read_json_file(folder / kConfig);
}

const HuggingFaceFamily* huggingface_family_of(const fs::path& weights) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(weights, ignored) ? weights : weights.parent_path();
  const nlohmann::json json = read_config_json(folder);
  if (!json.contains("model_type")) {
    const bool timm = json.contains("architecture") && json.contains("num_classes");
    return timm ? find_huggingface_family(kTimm) : nullptr;
  }
  const auto& type = json["model_type"];
  return type.is_string() ? find_huggingface_family(type.get<std::string>()) : nullptr;
}

HuggingFaceConfig read_huggingface_config(const std::string& location, const std::string& text,
                                          const std::string& type, const SourceLocation& at) {
  ConfigJson config(location, text);
  HuggingFaceConfig out;
  out.model.type = type;
  out.model.arguments = ConfigNode::make_map(at);
  std::string model_type = config.text("model_type", "");
  // timm's config.json has no model_type, but the name of a function that makes the model.
  if (model_type.empty() && config.has("architecture")) model_type = kTimm;
  const HuggingFaceFamily* family = find_huggingface_family(model_type);
  if (family == nullptr) {
    std::string known;
    for (const HuggingFaceFamily& row : huggingface_families()) {
      known += (known.empty() ? "" : ", ") + std::string(row.model_type);
    }
    out.errors.push_back(
        model_type.empty()
            ? fmt::format("has no model_type; known: {}", known)
            : fmt::format("the model_type '{}' is not supported; known: {}", model_type, known));
    return out;
  }
  family->read(config, out.model);
  // These keys of every model have no effect with their default value.
  for (const char* key :
       {"is_decoder", "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"}) {
    config.only(key, false);
  }
  config.only("pruned_heads", nlohmann::json::object());
  config.ignore({"transformers.js_config"});  // for browsers
  config.refuse_unknown();
  out.errors = config.errors();
  return out;
}

std::vector<std::string> class_names_of(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  return read_huggingface_config(file.string(), read_file(file, kMaxConfig, ExitCode::usage), "",
                                 {})
      .model.class_names;
}

bool rewrite_huggingface_model(ConfigNode& map, Diagnostics& diagnostics) {
  const ConfigNode from = *map.find("from");
  const size_t before = diagnostics.reported();
  if (!from.is_scalar()) {
    diagnostics.add(from.location, "expected a folder, got {}", describe_found(from));
    return false;
  }
  for (const char* key : {"layers", "blocks", "init_from"}) {
    const ConfigNode* other = map.find(key);
    if (other == nullptr || other->is_null()) continue;
    diagnostics.add(other->location,
                    "model has both from and {0}; keep one ({0}: null, or from: null, removes that "
                    "of another file)",
                    key);
  }
  if (diagnostics.reported() != before) return false;
  const fs::path folder = beside_configuration(
      from.location, from.text, [](const fs::path& path) { return is_file(path / kConfig); });
  const fs::path file = folder / kConfig;
  if (!is_file(file)) {
    std::error_code ignored;
    const bool there = fs::exists(folder, ignored);
    diagnostics.add(from.location, "{}",
                    there ? folder.string() + " has no config.json" +
                                (is_file(folder / kAdapterConfig)
                                     ? "; it has adapters of peft: name the model's folder, and "
                                       "this one as model.lora.from"
                                     : "")
                          : "model.from: " + no_such_path(from.location, from.text));
    return false;
  }
  const ConfigNode* type = map.find("type");
  HuggingFaceConfig reading;
  try {
    reading = read_huggingface_config(
        file.string(), read_file(file, kMaxConfig, ExitCode::usage),
        type != nullptr && type->is_scalar() ? type->text : std::string(), from.location);
  } catch (const Error& error) {
    diagnostics.add(from.location, error.what());
    return false;
  }
  for (const std::string& message : reading.errors) {
    diagnostics.add(from.location, "{}: {}", file.string(), message);
  }
  if (diagnostics.reported() != before) return false;
  map.erase("from");
  HuggingFaceModel& model = reading.model;
  if (type == nullptr) model.set_text("type", model.type);
  if (model.vocab_size > 0) model.set_integer("vocab_size", model.vocab_size);
  model.set("init_from", path_node(from.location, folder));
  const std::vector<std::string> following = keys_that_follow("dropout", model.type, map);
  for (size_t i = 0; i < model.arguments.keys.size(); ++i) {
    const ConfigNode::Key& key = model.arguments.keys[i];
    if (!contains(following, key.text) && map.find(key.text) == nullptr) {
      map.set(key, model.arguments.items[i]);
    }
  }
  return true;
}

}  // namespace dltrain
