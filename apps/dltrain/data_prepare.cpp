// dltrain data prepare: the images of a split in one packed file, or a text in files of token ids.
#include <algorithm>

#include "base/cpus.h"
#include "base/owned_files.h"
#include "data/packed_images.h"
#include "data/prepare.h"
#include "data/prepare_tokens.h"
#include "data/sequence_config.h"
#include "dltrain/commands.h"
#include "telemetry/progress.h"

namespace dltrain {
namespace {

struct DataPrepareOptions {
  ConfigOptions config;
  std::string output, split = "train", encoding = "original";
  std::optional<int64_t> shorter_side;
  int64_t shard_tokens = PrepareTokensOptions{}.shard_tokens;
  bool overwrite = false;
};

// Refuses to replace a file, except a file of packed images with --overwrite.
void refuse_existing(const DataPrepareOptions& options) {
  const std::filesystem::path path = options.output;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  if (!options.overwrite) {
    fail(ExitCode::usage, "{} exists already; --overwrite replaces it", path.string());
  }
  if (!is_packed_images(path)) {
    fail(ExitCode::usage, "{} is not a file of packed images, so --overwrite does not replace it",
         path.string());
  }
}

ExitCode write_tokens(const DataPrepareOptions& options, const DataConfig& data,
                      const SequenceConfig& config) {
  // The ids are first written to files in the folder, because they may exceed the memory.
  const std::filesystem::path folder = options.output;
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(folder, ignored);
  open_tokens_folder(folder, options.overwrite);
  TokenSpan train, eval;
  try {
    train.stream = config.open_tokens(nullptr, folder / kTrainIds);
    train.count = train.stream->size();
    if (data.eval_fraction) {
      eval = {train.stream, 0, SequenceConfig::held_out(train.count, *data.eval_fraction)};
      eval.first = train.count -= eval.count;
    } else if (const auto* other = dynamic_cast<const SequenceConfig*>(data.eval.get())) {
      eval.stream = other->open_tokens(train.stream.get(), folder / kEvalIds);
      eval.count = eval.stream->size();
    }
  } catch (const Error&) {
    if (is_new && std::filesystem::remove(folder / kMarkerFile, ignored)) {
      std::filesystem::remove(folder, ignored);
    }
    throw;
  }
  const int files =
      prepare_tokens(train, eval, {.folder = options.output, .shard_tokens = options.shard_tokens});
  fmt::print("{}: {} tokens for training, {} for evaluation, in {} files\n", options.output,
             train.count, eval.count, files);
  fmt::print(
      "read them with data: {{type: tokens, sequence_length: {}, train: {{path: "
      "{}/train_*.bin}}{}}}\n",
      config.sequence_length, options.output,
      eval.count > 0 ? fmt::format(", eval: {{path: {}/eval_*.bin}}", options.output)
                     : std::string());
  return ExitCode::ok;
}

ExitCode write_images(const DataPrepareOptions& options, const DatasetConfig& config) {
  const bool raw = options.encoding == "raw";
  if (options.shorter_side && !raw) {
    fail(ExitCode::usage, "--shorter-side needs --encoding raw: otherwise files are not changed");
  }
  refuse_existing(options);
  declare_output(options.output);
  DataConfig::refuse_missing(config);
  const auto source = config.open_images();
  if (!source) {
    fail(ExitCode::usage,
         "data of type {} has neither images nor text; idx, cifar10, cifar100, image_folder, "
         "packed_images, text and jsonl have",
         config.kind);
  }
  const auto& labels = source->labels();
  if (*std::min_element(labels.begin(), labels.end()) < 0) {
    fail(ExitCode::usage, "images without classes (`target: none`) cannot be packed");
  }
  uint64_t bytes = 0;
  {
    Progress progress(console(), {.label = "images", .total = source->size()});
    bytes =
        prepare_images(*source,
                       {.output = options.output,
                        .raw = raw,
                        .shorter_side = options.shorter_side,
                        .threads = bound_cpu_count()},
                       [&](int64_t done) { progress.update(done, [] { return std::string(); }); });
  }
  fmt::print("{}: {} images, {:.1f} MiB; read it with data: {{type: packed_images, path: {}}}\n",
             options.output, source->size(), static_cast<double>(bytes) / (1 << 20),
             options.output);
  return ExitCode::ok;
}

}  // namespace

CommandBody add_data_prepare(CLI::App& command) {
  auto options = std::make_shared<DataPrepareOptions>();
  options->config.add_to(command, ConfigOptions::Use::data);
  add_text(command, "-o,--output", options->output, "The file to write; of text: the folder")
      ->required();
  command.add_option("--split", options->split, "train or eval")
      ->check(CLI::IsMember({"train", "eval"}));
  command
      .add_option("--encoding", options->encoding,
                  "original: files as they are; raw: decoded pixels, larger but faster to read")
      ->check(CLI::IsMember({"original", "raw"}));
  command
      .add_option("--shorter-side", options->shorter_side,
                  "With raw: shrink images whose shorter side is longer than this")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--shard-tokens", options->shard_tokens, "Of text: the most tokens in one file")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
  command.add_flag("--overwrite", options->overwrite, "Replace a file that is there already");
  command.footer(
      "Every image is decoded once; the first broken one ends it (image_folder's\n"
      "on_error: skip leaves them out).\n"
      "docs/formats.md describes the files; `type: packed_images` and `type: tokens` read them. Of "
      "text,\n"
      "eval_fraction is held out into files of its own.");
  return [options, &command] {
    const Experiment experiment = options->config.load();
    const bool train = options->split == "train";
    const DatasetConfig* config = (train ? experiment.data.train : experiment.data.eval).get();
    if (config == nullptr) {
      fail(ExitCode::usage,
           "the configuration has no data.eval (samples held out by eval_fraction "
           "are packed with train)");
    }
    const auto refuse = [&](const char* option, const char* kind) {
      if (command.count(option) > 0) fail(ExitCode::usage, "{} is for {} only", option, kind);
    };
    if (const auto* text = dynamic_cast<const SequenceConfig*>(config)) {
      refuse("--encoding", "images");
      refuse("--shorter-side", "images");
      if (!train)
        fail(ExitCode::usage, "of text both splits are written together, without --split");
      return write_tokens(*options, experiment.data, *text);
    }
    refuse("--shard-tokens", "text");
    return write_images(*options, *config);
  };
}

}  // namespace dltrain
