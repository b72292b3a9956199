#include "checkpoint/huggingface_export.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/base_weights.h"
#include "checkpoint/image_export.h"
#include "checkpoint/lora_export.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/weights.h"
#include "config/load.h"
#include "config/paths.h"
#include "config/scalar.h"
#include "data/sequence_config.h"
#include "experiment/layout.h"
#include "nn/huggingface/folder.h"
#include "tensor/float_tensors.h"
#include "text/huggingface.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxTokenizerFile = 256 << 20;

// The files of a tokenizer and its settings in a folder of transformers.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer.model",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template.jinja",
                                           "generation_config.json"};

std::vector<TokenizerFile> copied_files(const fs::path& folder) {
  std::vector<TokenizerFile> files;
  for (const char* name : kTokenizerFiles) {
    if (!is_file(folder / name)) continue;
    files.push_back({name, read_file(folder / name, kMaxTokenizerFile, ExitCode::data)});
  }
  return files;
}

int64_t max_length(const IdentifiedModel& model) {
  for (const char* key : {"n_positions", "max_position_embeddings"}) {
    if (model.config.contains(key)) return model.config[key].get<int64_t>();
  }
  return 0;
}

// Sets the ids of special tokens for generation.
void name_special_tokens(const SpecialTokens& special, nlohmann::ordered_json& config) {
  const auto put = [&](const char* key, const std::optional<int32_t>& id) {
    if (config.contains(key)) return;  // BERT's padding is part of the model
    config[key] = id ? nlohmann::ordered_json(*id) : nlohmann::ordered_json(nullptr);
  };
  put("bos_token_id", special.begin_of_text);
  put("eos_token_id", special.end_of_text);
  put("pad_token_id", special.padding);
}

// Copies the special tokens of another folder's config.json.
void copy_special_tokens(const fs::path& folder, nlohmann::ordered_json& config) {
  const nlohmann::json origin = read_config_json(folder);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config.contains(key)) config[key] = origin.value(key, nlohmann::json());
  }
}

// Gives the outputs of a classifier the names of the classes.
void name_classes(const std::vector<std::string>& names, nlohmann::ordered_json& config) {
  if (config.contains("architecture") && !names.empty()) config["label_names"] = names;  // of timm
  if (!config.contains("id2label") || config["id2label"].size() != names.size()) return;
  config["label2id"] = nlohmann::ordered_json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    config["id2label"][std::to_string(i)] = names[i];
    config["label2id"][names[i]] = i;
  }
}

void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& model, const fs::path& from) {
  if (tokenizer.vocab_size() <= model.vocab_size.value_or(0)) return;
  fail(ExitCode::data, "{}: the tokenizer has {} ids, the model {}", from.string(),
       tokenizer.vocab_size(), model.vocab_size.value_or(0));
}

// Writes the format of the chats as the template of the tokenizer, and the token that ends an
// answer as one that ends a text.
void add_chat(const ChatFormat& chat, const Tokenizer& tokenizer, HuggingFaceFolder& out,
              nlohmann::ordered_json& config) {
  const std::vector<int32_t> end = tokenizer.encode(chat.end(), SpecialText::as_tokens);
  const auto add_end = [&](nlohmann::ordered_json& to) {
    nlohmann::ordered_json ids = to.value("eos_token_id", nlohmann::ordered_json());
    if (!ids.is_array()) ids = ids.is_null() ? ids.array() : ids.array({ids});
    if (end.size() != 1 || std::find(ids.begin(), ids.end(), end[0]) != ids.end()) return;
    ids.push_back(end[0]);
    to["eos_token_id"] = ids.size() == 1 ? ids[0] : ids;
  };
  add_end(config);
  const auto named = [](std::string_view name) {
    return [name](const TokenizerFile& file) { return file.name == name; };
  };
  std::erase_if(out.files, named("chat_template.jinja"));
  if (std::ranges::none_of(out.files, named("tokenizer_config.json"))) {
    out.files.push_back({"tokenizer_config.json", "{}"});
  }
  change_json(out.files, "generation_config.json", add_end);
  change_json(out.files, "tokenizer_config.json",
              [&](nlohmann::ordered_json& json) { json["chat_template"] = chat.jinja(); });
}

// Adds the tokenizer of the run in the form that transformers reads.
bool add_tokenizer(const ResumeChoice& choice, const ModelConfig& model, const DatasetConfig* data,
                   const IdentifiedModel& identified, HuggingFaceFolder& out,
                   nlohmann::ordered_json& config) {
  const auto tokenizer = run_tokenizer(choice);
  if (!tokenizer) {
    name_special_tokens({}, config);
    return false;
  }
  check_vocabulary(*tokenizer, model, run_of(choice.checkpoint));
  const fs::path origin = model.init_from.value_or("");
  if (!origin.empty() && huggingface_family_of(origin) != nullptr && holds_tokenizer(origin) &&
      load_tokenizer(origin)->identity() == tokenizer->identity()) {
    copy_special_tokens(origin, config);
    out.files = copied_files(origin);
  } else {
    name_special_tokens(tokenizer->special(), config);
    out.files = huggingface_tokenizer(*tokenizer, max_length(identified));
  }
  if (data != nullptr && data->kind == "text_classification")
    put_around_texts(*tokenizer, out.files);
  const auto* texts = dynamic_cast<const SequenceConfig*>(data);
  if (const auto chat = texts != nullptr ? texts->chat(*tokenizer) : std::nullopt) {
    add_chat(*chat, *tokenizer, out, config);
  }
  return true;
}

// Returns the tensors of a checkpoint, averages instead of their parameters. The files must stay
// open.
std::vector<OutputTensor> checkpoint_tensors(const std::deque<SafetensorsSet>& sets) {
  std::vector<OutputTensor> tensors;
  std::set<std::string> seen;
  for (const SafetensorsSet& set : sets) {
    for (const auto& [file, entry] : set.tensors()) {
      if (!seen.insert(entry->name).second) continue;
      tensors.push_back({entry->name, entry->spec.shape,
                         [file = file, entry = entry] { return as_f32(*file, *entry); }});
    }
  }
  return tensors;
}

// The parameters of a model, found without data.
std::vector<ParameterInfo> parameters_of(const ModelConfig& model, const TensorSpec& sample) {
  const auto loss = make_kind(loss_table(), "cross_entropy");
  return emit_model({.model = model,
                     .loss = *loss,
                     .inputs = {{"input", sample}},
                     .samples = 1,
                     .training = false})
      .parameters;
}

// The values of the base as the adapters were trained on it, in the order of files.
std::vector<float> base_values(const ParameterInfo& info, std::vector<float> file) {
  if (info.codes.format == WeightFormat::wide) return file;
  const int64_t rows = info.spec.shape[0], columns = info.spec.shape[1];
  std::vector<float> memory(file.size());
  file_to_memory(info, file, memory);
  memory =
      decode_weight(info.codes, rows, columns, encode_weight(info.codes, rows, columns, memory));
  memory_to_file(info, memory, file);
  return file;
}

// The base of a checkpoint of adapters alone.
struct BaseFiles {
  std::vector<ParameterInfo> parameters;
  std::optional<SafetensorsSet> files;

  // Appends the tensors of the base, which refer to this. `read`: their values will be read.
  void add(ModelConfig& model, const TensorSpec& sample, const CheckpointState& saved, bool read,
           std::vector<OutputTensor>& tensors) {
    for (const ParameterInfo& info : parameters_of(model, sample)) {
      if (info.adaptation == Adaptation::frozen) parameters.push_back(info);
    }
    std::vector<FoundTensor> found;
    if (read && model.init_from) {
      refuse_missing_paths(ObjectRef::of(model), ExitCode::storage);
      const fs::path from = location_of_weights(*model.init_from);
      check_base(model, saved, fingerprint_of_weights(from));
      LoadedWeights ignored;
      found = find_weights(parameters, files.emplace(from, ExitCode::storage), model.rename,
                           /*strict=*/false, ignored);
    }
    for (const FoundTensor& weight : found) {
      const ParameterInfo& info = *weight.info;
      tensors.push_back({weight.part < 0 ? info.name : part_name(info.name, weight.part),
                         weight.source.entry->spec.shape, [&info, source = weight.source] {
                           return base_values(info, as_f32(*source.file, *source.entry));
                         }});
    }
    for (const ParameterInfo& info : parameters) {
      if (std::ranges::find(found, &info, &FoundTensor::info) != found.end()) continue;
      tensors.push_back(
          {info.name, info.file.shape, [&info, seed = saved.seed] {
             std::vector<float> values(static_cast<size_t>(info.spec.shape.elements()));
             initialize(info.initializer, static_cast<uint64_t>(seed), info.name, values);
             return base_values(info, std::move(values));
           }});
    }
  }
};

// Returns the data section. Without a tokenizer a classifier has ids and labels.
// `images`: of a model of images.
std::string start_data(const IdentifiedModel& model, const ImageInput& images, bool tokenizer) {
  if (model.family->images) {
    std::string keys = images.keys(/*transforms=*/true);
    for (size_t at = 0; (at = keys.find('\n', at)) + 1 < keys.size(); ++at)
      keys.insert(at + 1, "  ");
    return fmt::format(
        "  type: image_folder\n  path: images          # with a sub-folder for each class\n  {}",
        keys);
  }
  const bool classes = model.config.contains("id2label");
  if (classes && !tokenizer) {
    return R"(  type: tensors
  path: input.safetensors   # of a sample each: input (token ids, i32) and target (a class, i32)
  inputs: input
  targets: target
)";
  }
  const bool masked = model.family->model_type == "bert";  // it looks at later tokens
  return fmt::format(
      R"({}
  tokenizer: {{type: file, path: {}}}{}
  sequence_length: {}{}
)",
      classes
          ? "  type: text_classification\n  path: input.csv           # with the columns text and "
            "label, or .jsonl with these keys"
          : "  type: text\n  path: input.txt           # plain text; jsonl and tokens are other "
            "types",
      tokenizer ? "." : "TOKENIZER",
      tokenizer ? "   # of this folder" : "   # none of the folder can be used",
      std::min<int64_t>(max_length(model), 1024),
      masked && !classes
          ? "\n  mlm_probability: 0.15     # the share of the tokens that is hidden, and to be "
            "found"
          : "");
}

std::string start_configuration(const fs::path& out, const IdentifiedModel& model,
                                const ImageInput& images, bool tokenizer) {
  return fmt::format(
      R"(# To continue training the model of this folder: dltrain train {0}/config.yaml -s data.path={1}
name: {2}
model: {{from: .{4}# config.json and the weights beside this file{5}
data:
{3}  eval_fraction: 0.05
optimizer: {{type: adamw, learning_rate: 5.0e-5, weight_decay: 0.01, weight_decay_on: matrices}}
lr_scheduler: {{type: cosine, warmup_steps: 50}}
training: {{global_batch_size: 8, num_epochs: 1, max_grad_norm: 1.0}}
evaluation: {{eval_epochs: 0.5}}
)",
      out.string(),
      model.family->images                ? "FOLDER"
      : model.config.contains("id2label") ? "FILE"
                                          : "TEXT",
      quoted_when_needed(out.filename().string()), start_data(model, images, tokenizer),
      model.family->images ? ", num_classes: auto, strict: false}   " : "}            ",
      model.family->images ? ", with a new head" : "");
}

// Removes a trailing slash.
fs::path trimmed(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Returns null, with a note, if the tokenizer is of an unsupported kind; its files are copied
// nevertheless.
std::shared_ptr<const Tokenizer> readable_tokenizer(const fs::path& folder, std::string& note) {
  if (!holds_tokenizer(folder)) return nullptr;
  try {
    return load_tokenizer(folder);
  } catch (const Error& error) {
    note += fmt::format("{}the tokenizer is copied, but cannot be used here: {}",
                        note.empty() ? "" : "\n", error.what());
    return nullptr;
  }
}

// Returns a newly initialised head of BertForMaskedLM for a folder with a BertModel, which has
// none.
std::vector<OutputTensor> new_head(const std::vector<ParameterInfo>& parameters,
                                   const LoadedWeights& loaded, const fs::path& from,
                                   std::string& note) {
  std::vector<OutputTensor> tensors;
  for (const ParameterInfo& info : parameters) {
    const auto is_missing = [&](const std::string& text) {
      return text.starts_with(info.name + " ");
    };
    if (std::none_of(loaded.missing.begin(), loaded.missing.end(), is_missing)) continue;
    if (!info.name.starts_with("cls.")) {
      fail(ExitCode::storage, "{}: has no tensor '{}'", from.string(), info.name);
    }
    tensors.push_back({info.name, info.file.shape, [&info] {
                         std::vector<float> values(static_cast<size_t>(info.file.shape.elements()));
                         initialize(info.initializer, 0, info.name, values);
                         return values;
                       }});
    note +=
        fmt::format("{}{}", note.empty() ? "new, for the folder has no head: " : ", ", info.name);
  }
  if (!loaded.reshaped.empty()) {
    fail(ExitCode::storage, "{}: {}", from.string(), loaded.reshaped.front());
  }
  if (!loaded.unexpected.empty()) {
    fail(ExitCode::storage, "{}: has a tensor that the model lacks: {}", from.string(),
         loaded.unexpected.front());
  }
  return tensors;
}

// bf16 or f16 where all weights have it, and otherwise f32.
DType common_dtype(const std::vector<FoundTensor>& weights) {
  std::set<DType> found;
  for (const FoundTensor& weight : weights) found.insert(weight.source.entry->spec.dtype);
  const bool narrow = found == std::set<DType>{DType::bf16} || found == std::set<DType>{DType::f16};
  return narrow ? *found.begin() : DType::f32;
}

bool is_without_head(const fs::path& from) {
  return read_config_json(from).value("architectures", nlohmann::json()) ==
         nlohmann::json::array({"BertModel"});
}

}  // namespace

ExportReport export_model(const fs::path& run_or_checkpoint, HuggingFaceFolder out) {
  out.path = trimmed(out.path);
  check_output_folder(out);
  ExportReport report;
  const ResumeChoice choice = find_checkpoint(run_or_checkpoint);
  report.checkpoint = choice.checkpoint;
  std::vector<std::string> overrides = out.sets;
  overrides.insert(overrides.end(), one_rank_overrides().begin(), one_rank_overrides().end());
  auto experiment = load_config<Experiment>(
      {.files = {report.checkpoint / "config.yaml"}, .overrides = overrides});
  IdentifiedModel model = identify_model(experiment.model, out.timm);
  report.model_type = model.family->model_type;
  report.images = model.family->images;
  const std::deque<SafetensorsSet> files = trained_weights(report.checkpoint);
  report.averages = files.size() == 2;
  report.dtype = out.dtype.value_or(DType::f32);
  std::vector<OutputTensor> tensors = checkpoint_tensors(files);
  const LoraConfig* lora = experiment.model.adapters();
  if (out.merge && lora == nullptr) {
    fail(ExitCode::usage, "{} has no adapters to merge: it was trained without model.lora",
         report.checkpoint.string());
  }
  out.adapters = lora != nullptr && !out.merge;
  BaseFiles base;
  if (has_base_elsewhere(experiment.model)) {
    std::optional<Shape> positions;
    if (model.family->images && experiment.model.init_from) {
      const fs::path from = location_of_weights(*experiment.model.init_from);
      positions = image_positions(from, SafetensorsSet(from, ExitCode::storage));
    }
    base.add(experiment.model, sample_of(model, positions), choice.state, /*read=*/!out.adapters,
             tensors);
  }
  if (out.adapters) {
    model.config = adapter_config(tensors, model, experiment.model);
    out.max_shard_bytes = UINT64_MAX;
    tensors = learned_tensors(std::move(tensors), model, *lora);
    report.note = "a folder of peft, without the base; --merge writes the whole model";
  } else {
    if (model.family->images) {
      add_images(image_input_of(experiment.data, choice.state.data), tensors, model, out);
    } else {
      report.tokenizer = add_tokenizer(choice, experiment.model, experiment.data.train.get(), model,
                                       out, model.config);
    }
    name_classes(choice.state.data.class_names, model.config);
    if (out.merge) tensors = merged_tensors(tensors, model, *lora);
    if (out.merge && lora->codes().format != WeightFormat::wide) {
      report.note = "the weights are those of the base in codes: they contain its rounding";
    }
  }
  report.written = write_huggingface_folder(out, model, std::move(tensors));
  return report;
}

ExportReport import_model(const fs::path& from, HuggingFaceFolder out) {
  out.path = trimmed(out.path);
  check_output_folder(out);
  if (is_inside(from, out.path)) {
    fail(ExitCode::usage, "{} is an input that the output would replace; name another folder",
         from.string());
  }
  Diagnostics diagnostics;
  HuggingFaceModel section{.type = {}, .arguments = ConfigNode::make_map({})};
  section.set_text("from", from.string());
  ModelConfig config;
  bind(config, section.arguments, diagnostics);
  diagnostics.throw_if_any();
  IdentifiedModel model = identify_model(config, out.timm);
  ExportReport report;
  report.checkpoint = from;
  report.model_type = model.family->model_type;
  report.images = model.family->images;
  const SafetensorsSet files(from, ExitCode::storage);
  VerifiedFiles verified = verified_weights(from, files);
  finish_verifying(verified);
  const std::vector<ParameterInfo> parameters =
      parameters_of(config, sample_of(model, image_positions(from, files)));
  LoadedWeights loaded;
  std::vector<OutputTensor> tensors;
  const bool strict = !is_without_head(from);
  const auto weights = find_weights(parameters, files, {}, strict, loaded, /*keys=*/false);
  for (const FoundTensor& found : weights) {
    const auto [file, entry] = found.source;
    const std::string& name = found.info->name;
    auto values = [file = file, entry = entry] { return as_f32(*file, *entry); };
    if (found.part < 0 || model.family->parts(name) != 1) {
      tensors.push_back({found.part < 0 ? name : part_name(name, found.part), entry->spec.shape,
                         std::move(values)});
    } else if (found.part == 0) {  // the other form of the model has one tensor
      tensors.push_back({name, found.info->file.shape, std::move(values)});
    } else {
      tensors.back().values = [first = std::move(tensors.back().values), next = std::move(values)] {
        std::vector<float> out = first();
        const std::vector<float> more = next();
        out.insert(out.end(), more.begin(), more.end());
        return out;
      };
    }
  }
  report.dtype = out.dtype.value_or(common_dtype(weights));
  out.dtype = report.dtype;
  if (!strict) {
    for (OutputTensor& tensor : new_head(parameters, loaded, from, report.note)) {
      tensors.push_back(std::move(tensor));
    }
  }
  if (const auto tokenizer = readable_tokenizer(from, report.note)) {
    check_vocabulary(*tokenizer, config, from);
    report.tokenizer = true;
  }
  name_classes(class_names_of(from), model.config);
  out.files = copied_files(from);
  ImageInput images;
  if (model.family->images) {
    const std::optional<ImageInput> input = read_image_input(from);
    if (!input) report.note = no_image_input(from);
    images = input.value_or(default_image_input(from));
    add_images(input, tensors, model, out);
  } else {
    copy_special_tokens(from, model.config);
  }
  out.files.push_back(
      {"config.yaml", start_configuration(out.path, model, images, report.tokenizer)});
  report.written = write_huggingface_folder(out, model, std::move(tensors));
  return report;
}

}  // namespace dltrain
