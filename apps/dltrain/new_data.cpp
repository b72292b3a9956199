#include "dltrain/new_data.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/diagnostics.h"
#include "config/paths.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "config/yaml.h"
#include "data/image_folder.h"
#include "data/line_reader.h"
#include "data/packed_images.h"
#include "data/text_files.h"
#include "dltrain/commands.h"
#include "nn/huggingface/folder.h"
#include "nn/huggingface/image_input.h"
#include "tensor/safetensors_set.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const Names kTexts{"text", "jsonl", "tokens"};  // of one stream or of pairs

void put(ConfigNode& map, const char* key, std::string text,
         ConfigNode::Style style = ConfigNode::Style::plain) {
  map.set({key, map.location}, ConfigNode::make_scalar(std::move(text), map.location, style));
}

void put_path(ConfigNode& map, const char* key, const fs::path& path) {
  put(map, key, fs::absolute(path).lexically_normal().string(), ConfigNode::Style::quoted);
}

std::string text_of_key(const ConfigNode& map, const char* key) {
  const ConfigNode* value = map.find(key);
  return value != nullptr && value->is_scalar() ? value->text : std::string();
}

bool is_from_command_line(const ConfigNode& map, std::string_view key) {
  return std::any_of(map.keys.begin(), map.keys.end(), [&](const ConfigNode::Key& found) {
    return found.text == key && found.location.is_override();
  });
}

// Refuses a value of the command line at or below a key that `instead` replaces. `parse_special` is
// kept.
void refuse_replaced(const ConfigNode& value, const char* key, const std::string& instead) {
  if (!value.is_map() && value.location.is_override()) {
    fail_at(value.location, "data.{} has no effect, because {} is used", key, instead);
  }
  for (size_t i = 0; i < value.keys.size(); ++i) {
    if (value.keys[i].text != "parse_special") refuse_replaced(value.items[i], key, instead);
  }
}

ConfigNode& map_in(ConfigNode& tree, const char* key) {
  ConfigNode* found = tree.find(key);
  if (found == nullptr || !found->is_map()) {
    tree.set({key, tree.location}, ConfigNode::make_map(tree.location));
    found = tree.find(key);
  }
  return *found;
}

// The keys of the split that is evaluated: those of `eval`, or else of `train`, over those of both.
ConfigNode evaluated_split(const ConfigNode& data) {
  static const Names kOfBoth{"train",      "eval",       "eval_fraction",
                             "eval_split", "split_seed", "workers"};
  ConfigNode split = ConfigNode::make_map(data.location), set = split;
  for (size_t i = 0; i < data.keys.size(); ++i) {
    const ConfigNode::Key& key = data.keys[i];
    if (contains(kOfBoth, key.text)) continue;
    (is_from_command_line(data, key.text) ? set : split).set(key, data.items[i]);
  }
  for (const char* part : {"eval", "train"}) {
    const ConfigNode* own = data.find(part);
    if (own == nullptr || !own->is_map()) continue;
    merge_into(split, *own);
    break;
  }
  merge_into(split, std::move(set));
  return split;
}

// Follows the same links as image_folder.
bool holds_image(const fs::path& folder) {
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, kFollow), end; entry != end; ++entry) {
    if (entry->is_symlink() && entry.depth() > 0) entry.disable_recursion_pending();
    if (is_image_name(entry->path())) return true;
  }
  return false;
}

// Returns true for a file that `dltrain data prepare` wrote.
bool is_packed(const fs::path& path) {
  char magic[sizeof packed::kMagic] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::equal(std::begin(magic), std::end(magic), packed::kMagic);
}

// Returns true if all sub-folders have names of classes.
bool has_class_folders(const fs::path& folder, const Names& classes) {
  bool any = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || name.starts_with(".")) continue;
    if (!contains(classes, name)) return false;
    any = true;
  }
  return any;
}

// Returns true if the first record of a file of JSON Lines has the key.
bool has_records_with(const fs::path& path, const std::string& key) {
  try {
    LineReader lines(path);
    while (const auto line = lines.next()) {
      if (line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const auto record = try_parse_json(*line);
      return record.is_object() && record.contains(key);
    }
  } catch (const Error&) {
    // Not such a file.
  }
  return false;
}

// A model of prompts with completions, or of chats, also reads documents: removes these keys if the
// file has no such records. One of sources with targets does not.
void choose_records(ConfigNode& split, const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string source = text_of_key(split, "source");
  const bool tokens = name.ends_with(".bin");
  for (const char* key : {"prompt", "messages"}) {
    const std::string record = text_of_key(split, key);
    if (record.empty() || is_from_command_line(split, key)) continue;
    if (!tokens && has_records_with(path, record)) continue;
    for (const char* other : {"prompt", "completion", "messages", "chat_format"})
      split.erase(other);
    put(split, "field", "text");
  }
  if (!source.empty() && (tokens || name.ends_with(".txt"))) {
    fail(ExitCode::usage,
         "{}: the model was trained on sources with targets; give JSON Lines with the keys '{}' "
         "and '{}'",
         path.string(), source, text_of_key(split, "target"));
  }
}

// The kind of dataset that reads `path` for a model that was trained on `trained`.
std::string kind_for(const fs::path& path, const std::string& trained, const ConfigNode& split) {
  static const Names kImages{"image_folder", "packed_images", "cifar10", "cifar100", "idx"};
  const std::string name = path.filename().string();
  if (contains(kImages, trained)) {
    if (fs::is_directory(path)) return holds_image(path) ? "image_folder" : trained;
    if (name.ends_with(".images") || is_packed(path)) return "packed_images";
    if (trained != "image_folder" && trained != "packed_images") return trained;
    fail(ExitCode::data,
         "{}: the model was trained on images: give a folder of images (for eval with a sub-folder "
         "for each class) or a file of `dltrain data prepare`",
         path.string());
  }
  if (!contains(kTexts, trained)) return trained;
  for (const char* key : {"prompt", "messages", "source"}) {
    if (!text_of_key(split, key).empty()) return "jsonl";
  }
  if (name.ends_with(".bin")) return "tokens";
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") ? "jsonl" : "text";
}

// Keeps the keys that both kinds have and that affect the input of the model.
ConfigNode as_kind(const ConfigNode& split, const std::string& trained, const std::string& kind) {
  if (kind == trained) return split;
  static const Names kKept{"scale",         "normalize",       "transforms",    "workers",
                           "tokenizer",     "mlm_probability", "mask_token_id", "sequence_length",
                           "document_mask", "end_token_id",    "prompt",        "completion",
                           "messages",      "chat_format"};
  ConfigNode out = ConfigNode::make_map(split.location);
  put(out, "type", kind);
  for (size_t i = 0; i < split.keys.size(); ++i) {
    if (contains(kKept, split.keys[i].text) && !split.items[i].is_null())
      out.set(split.keys[i], split.items[i]);
  }
  if (trained == "idx" && kind == "image_folder") put(out, "color", "gray");
  return out;
}

// Puts a new .npy file into the split of a run that was trained on .npy files.
void put_array(ConfigNode& split, const fs::path& path, bool needs_targets) {
  ConfigNode inputs = *split.find("inputs");
  const size_t count = inputs.is_map() ? inputs.items.size() : 1;
  if (count != 1 || path.extension() != ".npy") {
    fail(ExitCode::usage,
         "{}: the model was trained on .npy files for {} input{}; give {} in a configuration: "
         "exp.yaml --checkpoint RUN",
         path.string(), count, count == 1 ? "" : "s", count == 1 ? "other data" : "new ones");
  }
  if (!is_from_command_line(split, "targets")) {
    if (needs_targets) {
      fail(ExitCode::usage,
           "{} has inputs only; give the file of their targets too: -s data.targets=FILE.npy",
           path.string());
    }
    put(split, "targets", "none");
  }
  (inputs.is_map() ? inputs.items[0] : inputs) =
      ConfigNode::make_scalar(fs::absolute(path).lexically_normal().string(), split.location);
  split.set({"inputs", split.location}, std::move(inputs));
}

bool has_arrays(const ConfigNode& split) {
  const ConfigNode* inputs = split.find("inputs");
  const ConfigNode* first =
      inputs != nullptr && inputs->is_map() && !inputs->items.empty() ? &inputs->items[0] : inputs;
  return first != nullptr && first->is_scalar() && first->text.ends_with(".npy");
}

}  // namespace

void use_new_data(ConfigNode& tree, const NewData& data) {
  ConfigNode& section = map_in(tree, "data");
  ConfigNode split = evaluated_split(section);
  const std::string trained = text_of_key(split, "type");
  if (const ConfigNode* path = split.find("path")) {
    refuse_replaced(*path, "path", data.path.string());
  }
  fs::path first = data.path;  // of the files of a pattern
  if (!fs::exists(first) && (contains(kTexts, trained) || trained == "text_classification")) {
    first = expand_paths({first.string()}).front();
  }
  if (!fs::exists(first)) {
    fail(ExitCode::data, "there is no file or folder {}", first.string());
  }
  if (trained == "synthetic" || trained == "synthetic_tokens") {
    fail(ExitCode::usage,
         "{}: the model was trained on synthetic samples, which cannot be read from a file",
         data.path.string());
  }
  if (contains(kTexts, trained)) choose_records(split, first);
  const std::string kind = kind_for(first, trained, split);
  split = as_kind(split, trained, kind);
  for (const char* key : {"rows", "random_affine", "mixup", "cutmix", "curriculum",
                          "length_buckets", "images", "labels", "sources"}) {
    split.erase(key);
  }
  if (text_of_key(split, "sampling") == "balanced") split.erase("sampling");
  if (kind == "tensors" && has_arrays(split)) {
    put_array(split, data.path, data.targets);
  } else {
    put_path(split, "path", data.path);
  }
  if (contains(kTexts, kind)) put(split, "random_offset", "false");
  if (kind == "image_folder") {
    const bool classes = data.targets || has_class_folders(data.path, data.classes);
    put(split, "target", classes ? "folder" : "none");
  }
  // Use the tokenizer of the run; learning one from the new text gives another one.
  const ConfigNode* old = split.find("tokenizer");
  const bool none = old == nullptr || old->is_null();
  if (none && trained == "tokens" && kind != trained && data.tokenizer.empty()) {
    fail(ExitCode::usage,
         "{}: the model was trained without a tokenizer, which text needs; give a .bin file of "
         "token ids, or -s data.tokenizer='{{type: file, path: …}}'",
         data.path.string());
  }
  if (!data.tokenizer.empty() && (!none || contains(kTexts, trained))) {
    if (old != nullptr) refuse_replaced(*old, "tokenizer", "that of the run");
    ConfigNode tokenizer = ConfigNode::make_map(split.location);
    put(tokenizer, "type", "file");
    put_path(tokenizer, "path", data.tokenizer);
    if (const ConfigNode* key = none ? nullptr : old->find("parse_special")) {
      tokenizer.set({"parse_special", key->location}, *key);
    }
    split.set({"tokenizer", split.location}, std::move(tokenizer));
  } else if (none) {
    split.erase("tokenizer");
  }
  ConfigNode fresh = ConfigNode::make_map(section.location);
  if (const ConfigNode* workers = section.find("workers")) {
    fresh.set({"workers", workers->location}, *workers);
  }
  fresh.set({"train", section.location}, std::move(split));
  section = std::move(fresh);
  ConfigNode* loss = tree.find("loss");
  ConfigNode* balanced = loss != nullptr ? loss->find("balanced_class_weights") : nullptr;
  if (balanced != nullptr && balanced->text == "true") {
    balanced->text = "false";
    if (data.targets) {
      print_message(
          "the loss is measured without balanced_class_weights, which come from training data");
    }
  }
  // Remove the keys of evaluations during training, which need a split, and `samples`.
  const auto erase = [&](const char* part, const Names& keys) {
    ConfigNode* map = tree.find(part);
    for (const std::string& key : keys) {
      if (map != nullptr && !is_from_command_line(*map, key)) map->erase(key);
    }
  };
  erase("evaluation", {"eval_steps", "eval_epochs", "predictions", "samples"});
  erase("training", {"early_stopping"});
  erase("checkpoint", {"metric", "mode"});
}

void use_kept_tokenizer(ConfigNode& tree, const ResumeChoice& choice) {
  ConfigNode* data = tree.find("data");
  if (data == nullptr || !data->is_map()) return;
  for (ConfigNode* split : {data, data->find("train"), data->find("eval")}) {
    ConfigNode* tokenizer = split != nullptr ? split->find("tokenizer") : nullptr;
    const ConfigNode* path = tokenizer != nullptr ? tokenizer->find("path") : nullptr;
    if (path == nullptr || !path->is_scalar() || is_from_command_line(*tokenizer, "path") ||
        fs::exists(find_path(path->location, path->text)) || !run_tokenizer(choice)) {
      continue;
    }
    put_path(*tokenizer, "path", run_of(choice.checkpoint));
  }
}

bool is_hugging_face_folder(const fs::path& folder) {
  return fs::is_directory(folder) && SafetensorsSet::holds(folder) &&
         fs::exists(folder / "config.json");
}

void use_hugging_face_model(ConfigNode& tree, const fs::path& folder) {
  SourceLocation argument;  // of the command line
  argument.source = std::make_shared<Source>(Source{folder.string(), "", /*is_override=*/true});
  ConfigNode& model = map_in(tree, "model");
  ConfigNode set = ConfigNode::make_map(argument);
  for (size_t i = 0; i < model.keys.size(); ++i) {
    if (is_from_command_line(model, model.keys[i].text)) set.set(model.keys[i], model.items[i]);
  }
  if (set.find("from") != nullptr) {
    fail(ExitCode::usage, "-s model.from names other weights than those of {}", folder.string());
  }
  model = ConfigNode::make_map(argument);
  put_path(model, "from", folder);
  merge_into(model, std::move(set));
  // An experiment needs these keys, although nothing is trained.
  if (ConfigNode& optimizer = map_in(tree, "optimizer"); optimizer.keys.empty()) {
    put(optimizer, "type", "sgd");
    put(optimizer, "learning_rate", "0");
  }
  if (ConfigNode& training = map_in(tree, "training"); training.keys.empty()) {
    put(training, "global_batch_size", "8");
    put(training, "max_steps", "1");
  }
  ConfigNode& data = map_in(tree, "data");
  if (data.find("type") != nullptr || data.find("train") != nullptr) return;
  constexpr int64_t kMaxTokens = 1024;
  const HuggingFaceConfig reading = read_huggingface_config(
      folder.string(), read_file(folder / "config.json", 16 << 20, ExitCode::usage), "", {});
  const ConfigNode* positions = reading.model.arguments.find("max_positions");
  const int64_t tokens = positions ? as_integer(*positions).value_or(kMaxTokens) : kMaxTokens;
  ConfigNode split = ConfigNode::make_map(data.location);
  const HuggingFaceFamily* family = huggingface_family_of(folder);
  if (family != nullptr && family->images) {
    const std::optional<ImageInput> found = read_image_input(folder);
    if (!found) print_message("warning: " + no_image_input(folder));
    const ImageInput input = found.value_or(default_image_input(folder));
    Diagnostics diagnostics;
    const auto source = std::make_shared<Source>(
        Source{folder.string(), "type: image_folder\n" + input.keys(/*transforms=*/true)});
    split = *read_yaml(source, 0, diagnostics);
    data.set({"train", data.location}, std::move(split));
    return;
  }
  const bool classifier = reading.model.type == "bert_classifier";
  put(split, "type", classifier ? "text_classification" : "text");
  put(split, "sequence_length", std::to_string(std::min(tokens, kMaxTokens)));
  if (holds_tokenizer(folder)) {
    ConfigNode tokenizer = ConfigNode::make_map(data.location);
    put(tokenizer, "type", "file");
    put_path(tokenizer, "path", folder);
    split.set({"tokenizer", data.location}, std::move(tokenizer));
  }
  // The model looks at later tokens.
  if (reading.model.type.starts_with("bert") && !classifier) put(split, "mlm_probability", "0.15");
  data.set({"train", data.location}, std::move(split));
}

}  // namespace dltrain
