// dltrain data show: a contact sheet of the first batch as the net gets it.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "data/loader.h"
#include "data/picture.h"
#include "dltrain/data_commands.h"

namespace dltrain {
namespace {

// The samples to show: inputs as images, and what stands below each.
struct Shown {
  std::vector<float> images;
  std::vector<std::string> captions;
};

std::string number_or_name(const Dataset& dataset, int64_t label) {
  const auto& names = dataset.class_names();
  return label >= 0 && label < static_cast<int64_t>(names.size())
             ? names[static_cast<size_t>(label)]
             : std::to_string(label);
}

// "3" or "cat"; of a distribution its two greatest shares: "cat 0.7 dog 0.3"; else the first
// number.
std::string caption(const Dataset& dataset, const TensorSpec& target, const std::byte* at) {
  if (target.dtype == DType::i32) {
    int32_t label = 0;
    std::memcpy(&label, at, sizeof label);
    return number_or_name(dataset, label);
  }
  const auto* values = reinterpret_cast<const float*>(at);
  const int64_t n = target.shape.elements();
  if (dataset.label_bound() == 0 || n < 2) return fmt::format("{:.3g}", values[0]);
  const int64_t first = std::max_element(values, values + n) - values;
  int64_t second = first == 0 ? 1 : 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i != first && values[i] > values[second]) second = i;
  }
  if (values[second] < 0.005f) return number_or_name(dataset, first);
  return fmt::format("{} {:.2f} {} {:.2f}", number_or_name(dataset, first), values[first],
                     number_or_name(dataset, second), values[second]);
}

Shown collect(const Dataset& dataset, const std::vector<FieldSpec>& fields, const Batch& batch) {
  Shown shown;
  const TensorSpec &image = fields[0].sample, &target = fields.back().sample;
  const auto* pixels = reinterpret_cast<const float*>(batch.fields[0]);
  shown.images.assign(pixels, pixels + batch.samples * image.shape.elements());
  for (int64_t i = 0; i < batch.samples; ++i) {
    shown.captions.push_back(
        caption(dataset, target, batch.fields.back() + static_cast<size_t>(i) * target.bytes()));
  }
  return shown;
}

void check_images(const Dataset& dataset) {
  const FieldSpec& input = dataset.fields()[0];
  const int rank = input.sample.shape.rank();
  if (input.sample.dtype == DType::f32 && (rank == 2 || rank == 3)) return;
  fail(ExitCode::usage,
       "inputs are {}; only images, [height, width] or [height, width, channels], "
       "can be shown",
       to_string(input.sample));
}

}  // namespace

CommandBody add_data_show(CLI::App& command) {
  struct Options {
    ConfigOptions config;
    std::string output, split = "train";
    int64_t samples = 36;
  };
  auto options = std::make_shared<Options>();
  options->config.add_to(command);
  command.add_option("-o,--output", options->output, "The PNG file to write")->required();
  command.add_option("--split", options->split, "train (as training sees it) or eval")
      ->check(CLI::IsMember({"train", "eval"}));
  command.add_option("--samples", options->samples, "How many samples")
      ->check(CLI::Range(1, 10000));
  command.footer(
      "Each channel is stretched from its least to its greatest value. Captions are labels, or "
      "class\n"
      "names; mixed samples show their two greatest shares. The same list is printed.");
  return [options] {
    const std::string ending = std::filesystem::path(options->output).extension().string();
    if (ending != ".png" && ending != ".PNG") {
      fail(ExitCode::usage, "{}: the picture is a PNG file; give it a name in .png",
           options->output);
    }
    const Experiment experiment = options->config.load();
    const DataSplit data = experiment.data.open();
    const bool train = options->split == "train";
    if (!train && !data.eval) fail(ExitCode::usage, "the configuration has no eval split");
    const Dataset& dataset = train ? *data.train : *data.eval;
    check_images(dataset);
    const int64_t count = std::min(options->samples, dataset.size());
    const auto device = engines().cpu->open(0);
    Shown shown;
    if (train) {
      const DatasetConfig& config = *experiment.data.train;
      const auto classes = std::max<int64_t>(dataset.label_bound(),
                                             static_cast<int64_t>(dataset.class_names().size()));
      LoaderOptions as_training;
      as_training.global_batch = as_training.micro_batch = count;
      as_training.order = config.order();
      as_training.seed = static_cast<uint64_t>(experiment.seed);
      as_training.mixing = config.mixing();
      as_training.classes = classes;
      as_training.workers = 0;
      TrainLoader loader(data.train, as_training, *device);
      shown = collect(dataset, loader.fields(), loader.next());
    } else {
      EvalLoader loader(data.eval, count, 0, 1, *device, count);
      shown = collect(dataset, dataset.fields(), *loader.next());
    }
    const Shape& image = dataset.fields()[0].sample.shape;
    const Picture sheet = contact_sheet(shown.images, image[0], image[1],
                                        image.rank() == 3 ? image[2] : 1, shown.captions);
    write_file_atomically(options->output, sheet.png());
    for (size_t i = 0; i < shown.captions.size(); ++i) {
      fmt::print("{:>4}  {}\n", i, shown.captions[i]);
    }
    fmt::print("{}: {} samples of {}, {} by {} pixels\n", options->output, count, options->split,
               sheet.width(), sheet.height());
    return ExitCode::ok;
  };
}

}  // namespace dltrain
