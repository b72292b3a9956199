// dltrain data prepare: the images of a split in one packed file.
#include <cstdio>

#include "data/prepare.h"
#include "dltrain/data_commands.h"

namespace dltrain {

CommandBody add_data_prepare(CLI::App& command) {
  struct Options {
    ConfigOptions config;
    std::string output, split = "train", encoding = "original";
    std::optional<int64_t> shorter_side;
  };
  auto options = std::make_shared<Options>();
  options->config.add_to(command);
  command.add_option("-o,--output", options->output, "The file to write")->required();
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
  command.footer("docs/formats.md describes the file; `type: packed_images` reads it.");
  return [options] {
    const Experiment experiment = options->config.load();
    const bool train = options->split == "train";
    const DatasetConfig* config = (train ? experiment.data.train : experiment.data.eval).get();
    if (config == nullptr) {
      fail(ExitCode::usage,
           "the configuration has no data.eval (samples held out by eval_fraction "
           "are packed with train)");
    }
    const bool raw = options->encoding == "raw";
    if (options->shorter_side && !raw) {
      fail(ExitCode::usage,
           "--shorter-side needs --encoding raw: files stay as they are otherwise");
    }
    const auto source = config->open_images();
    if (!source) {
      fail(ExitCode::usage,
           "data of type {} has no images to pack; idx, cifar10, cifar100, "
           "image_folder and packed_images have",
           config->kind);
    }
    const PrepareReport report = prepare_images(
        *source,
        {.output = options->output,
         .raw = raw,
         .shorter_side = options->shorter_side,
         .threads = all_cores()},
        [&](int64_t done) { std::fprintf(stderr, "\r%lld images", static_cast<long long>(done)); });
    std::fprintf(stderr, "\n");
    fmt::print("{}: {} images, {:.1f} MiB; read it with data: {{type: packed_images, path: {}}}\n",
               options->output, report.images, static_cast<double>(report.bytes) / (1 << 20),
               options->output);
    return ExitCode::ok;
  };
}

}  // namespace dltrain
