#include "dltrain/language_model_options.h"

#include <algorithm>

#include "checkpoint/run_folder.h"
#include "config/paths.h"
#include "dltrain/new_data.h"
#include "nn/huggingface/folder.h"

namespace dltrain {
namespace {

std::vector<std::string> precision_of(const LanguageModelFlags& o) {
  if (o.precision.empty()) return {};
  return {"--precision precision.compute=" + o.precision};
}

// Returns an error for a key of `generation`, with the option that the command has instead.
std::string refuse_generation(const CLI::App& command, const std::string& set) {
  const std::string key = set.substr(0, set.find('='));
  if (key != "generation" && !key.starts_with("generation.")) return {};
  std::string option =
      key == "generation.prompts" ? "--prompt" : "--" + key.substr(key.find('.') + 1);
  std::replace(option.begin(), option.end(), '_', '-');
  const bool known = command.get_option_no_throw(option) != nullptr;
  return fmt::format("{} is for samples during training and has no effect here{}", key,
                     known ? "; use " + option : std::string());
}

// A folder with config.json and weights, which has no data and is not trained.
std::unique_ptr<LanguageModel> open_hugging_face(const std::filesystem::path& folder,
                                                 const LanguageModelFlags& o) {
  const HuggingFaceFamily* family = huggingface_family_of(folder);
  if (family != nullptr && family->images) {
    fail(ExitCode::usage, "{} is a model of images, which has no texts", folder.string());
  }
  ConfigOptions config;
  config.sets = {"data={type: synthetic_tokens, vocab_size: 2, length: 1, samples: 8}"};
  config.sets.insert(config.sets.end(), o.sets.begin(), o.sets.end());
  config.device = o.device;
  const auto change = [&](ConfigNode& tree) { use_hugging_face_model(tree, folder); };
  return std::make_unique<LanguageModel>(config.load(precision_of(o), change), std::nullopt,
                                         engines(), o.tokenizer);
}

}  // namespace

std::unique_ptr<LanguageModel> open_language_model(const LanguageModelFlags& o) {
  const std::filesystem::path given = o.model;
  const bool folder = std::filesystem::is_directory(given);
  if (!folder && !std::filesystem::exists(given)) {
    fail(ExitCode::usage,
         "there is no {}{}; give a run folder, a checkpoint, a folder of Hugging Face or a "
         "configuration",
         o.model, suggest_path(given));
  }
  if (is_hugging_face_folder(given)) return open_hugging_face(given, o);
  std::optional<ResumeChoice> checkpoint;
  if (folder) checkpoint = find_checkpoint(given);
  ConfigOptions config;
  config.files = {folder ? (checkpoint->checkpoint / "config.yaml").string() : o.model};
  config.sets = o.sets;
  config.device = o.device;
  std::vector<std::string> extra = one_rank_overrides();
  for (const std::string& key : precision_of(o)) extra.push_back(key);
  Experiment experiment = config.load(extra);
  accumulate_on_one_rank(experiment.training);
  return std::make_unique<LanguageModel>(std::move(experiment), std::move(checkpoint), engines(),
                                         o.tokenizer);
}

std::optional<int32_t> first_token(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  const SpecialTokens& special = tokenizer->special();
  return special.begin_of_text ? special.begin_of_text : special.end_of_text;
}

void add_model_options(CLI::App& command, LanguageModelFlags& o) {
  command
      .add_option("MODEL", o.model,
                  "Run folder or checkpoint; a folder of a Hugging Face model (config.json, "
                  "safetensors); or a configuration whose model.init_from has the weights")
      ->required();
  command
      .add_option("--precision", o.precision, "f32, bf16 or fp16 (default: the configuration's)")
      ->check(CLI::IsMember({"f32", "bf16", "fp16"}))
      ->take_last();
  command
      .add_option("--tokenizer", o.tokenizer,
                  "File or folder of the tokenizer (default: that of the run, or beside init_from)")
      ->take_last();
  command.add_option("--device", o.device, "auto, cpu, cuda or cuda:<index>")->take_last();
  command.add_option("-s,--set", o.sets, "Set one key of the configuration: -s KEY=VALUE")
      ->type_name("KEY=VALUE")
      ->check([&command](const std::string& set) { return refuse_generation(command, set); })
      ->allow_extra_args(false);
}

}  // namespace dltrain
