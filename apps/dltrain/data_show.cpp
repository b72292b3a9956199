// dltrain data show: the first batch as the net gets it: a contact sheet of images, or text.
#include <algorithm>
#include <cstring>
#include <span>

#include "base/file.h"
#include "base/utf8.h"
#include "data/classes.h"
#include "data/loader.h"
#include "data/picture.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

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

void check_images(const Dataset& dataset) {
  const FieldSpec& input = dataset.fields()[0];
  const int rank = input.sample.shape.rank();
  if (input.sample.dtype == DType::f32 && (rank == 2 || rank == 3)) return;
  fail(ExitCode::usage,
       "inputs are {}; only images, [height, width] or [height, width, channels], and sequences of "
       "tokens can be shown",
       to_string(input.sample));
}

using Ids = std::vector<int32_t>;

Ids ids_of(const TensorSpec& sample, const std::byte* at) {
  Ids ids(static_cast<size_t>(sample.shape.elements()));
  std::memcpy(ids.data(), at, sample.bytes());
  return ids;
}

std::string shown(std::span<const int32_t> ids, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return fmt::format("{}", fmt::join(ids, " "));
  std::string bytes;  // unlike decode() with the space of the first token
  for (const int32_t id : ids) bytes += tokenizer->bytes_of(id);
  return shown_line(bytes);
}

// Calls use(ids, counts) for each run of places that all count or all do not, of `length` places.
template <typename Use>
void each_run(const Ids& ids, const Ids& targets, size_t length, const Use& use) {
  for (size_t begin = 0; begin < length;) {
    size_t end = begin;
    const bool counts = targets[begin] != kIgnoredLabel;
    while (end < length && (targets[end] != kIgnoredLabel) == counts) ++end;
    use(std::span(ids).subspan(begin, end - begin), counts);
    begin = end;
  }
}

// Returns the number of tokens before the padding. A continued text ends with the last target that
// counts; a source ends before the repeated last token.
size_t without_padding(const Ids& ids, const Ids& targets, bool continued) {
  size_t length = ids.size();
  if (continued) {
    while (length > 1 && targets[length - 1] == kIgnoredLabel) --length;
  } else {
    while (length > 1 && ids[length - 1] == ids[length - 2]) --length;
  }
  return length;
}

// Returns true if the samples are sequences of tokens.
bool holds_text(const std::vector<FieldSpec>& fields) {
  const TensorSpec &input = fields.front().sample, &target = fields.back().sample;
  return input.dtype == DType::i32 && input.shape.rank() == 1 && target.dtype == DType::i32 &&
         target.shape.rank() == 1;
}

// The first `length` ids, and the number of the others.
std::string shown_without_padding(const Ids& ids, size_t length, const Tokenizer* tokenizer) {
  std::string out = shown(std::span(ids).first(length), tokenizer);
  if (length < ids.size()) out += fmt::format("  + {} of padding", ids.size() - length);
  return out;
}

std::string shown_name(const FieldSpec& field) {
  return field.name == kDocumentPositions ? "documents" : field.name;
}

// "3, which begin at the tokens 0, 17, 40", by the place of each token in its document.
std::string starts_of_documents(const Ids& places) {
  std::vector<std::string> starts{"0"};
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i] == 0) starts.push_back(std::to_string(i));
  }
  return starts.size() == 1 ? "1"
                            : fmt::format("{}, which begin at the tokens {}", starts.size(),
                                          fmt::join(starts, ", "));
}

// Describes the samples of a batch with these fields: inputs, decoded where `tokenizer` is not null
// and as ids otherwise, and the targets that the loss counts, with `…` for those between that it
// leaves out. `masked`: input and target have the same places; counted ones are in brackets in the
// input.
std::string describe_texts(const std::vector<FieldSpec>& fields, const Batch& batch,
                           const Tokenizer* tokenizer, bool masked) {
  size_t width = 0;
  for (const FieldSpec& field : fields) width = std::max(width, shown_name(field).size());
  std::string out;
  for (int64_t i = 0; i < batch.samples; ++i) {
    const auto row = [&](size_t field) {
      const TensorSpec& sample = fields[field].sample;
      return ids_of(sample, batch.fields[field] + static_cast<size_t>(i) * sample.bytes());
    };
    const Ids targets = row(fields.size() - 1);
    const auto counted = std::count_if(targets.begin(), targets.end(),
                                       [](int32_t id) { return id != kIgnoredLabel; });
    out += fmt::format("{:>4}  {} of {} targets count\n", i, counted, targets.size());
    const auto line = [&](const std::string& name, const std::string& text) {
      out += fmt::format("      {:<{}}  {}\n", name, width, text);
    };
    for (size_t field = 0; field + 1 < fields.size(); ++field) {
      const Ids ids = row(field);
      std::string text;
      if (fields[field].name == kDocumentPositions) {
        text = starts_of_documents(ids);
      } else if (fields[field].sample.shape.rank() == 0) {
        text = std::to_string(ids[0]);
      } else if (masked) {
        each_run(ids, targets, ids.size(), [&](std::span<const int32_t> run, bool counts) {
          text += counts ? fmt::format("[{}]", shown(run, tokenizer)) : shown(run, tokenizer);
        });
      } else {
        const std::string& next = fields[field + 1].name;
        const bool continued = ids.size() == targets.size() &&
                               (field + 2 == fields.size() || next == kDocumentPositions);
        text = shown_without_padding(ids, without_padding(ids, targets, continued), tokenizer);
      }
      line(shown_name(fields[field]), text);
    }
    std::string text;
    each_run(targets, targets, targets.size(), [&](std::span<const int32_t> run, bool counts) {
      text += counts ? shown(run, tokenizer) : "…";
    });
    line(fields.back().name, text);
  }
  return out;
}

// Returns true if the samples are sequences of tokens with a class each.
bool holds_classified_text(const Dataset& dataset) {
  const TensorSpec& input = dataset.fields().front().sample;
  return input.dtype == DType::i32 && input.shape.rank() == 1 && has_one_label(dataset);
}

// Describes texts and their classes. The field `attention_mask`, if there is one, is 0 for padding.
std::string describe_classified(const Dataset& dataset, const std::vector<FieldSpec>& fields,
                                const Batch& batch) {
  const auto tokenizer = dataset.tokenizer();
  std::string out;
  for (int64_t i = 0; i < batch.samples; ++i) {
    const auto at = [&](size_t field) {
      return batch.fields[field] + static_cast<size_t>(i) * fields[field].sample.bytes();
    };
    const Ids ids = ids_of(fields[0].sample, at(0));
    size_t length = ids.size();
    for (size_t field = 1; field + 1 < fields.size(); ++field) {
      if (fields[field].name != "attention_mask") continue;
      const Ids mask = ids_of(fields[field].sample, at(field));
      while (length > 0 && mask[length - 1] == 0) --length;
    }
    const size_t target = fields.size() - 1;
    out +=
        fmt::format("{:>4}  {}\n      {}\n", i, caption(dataset, fields[target].sample, at(target)),
                    shown_without_padding(ids, length, tokenizer.get()));
  }
  return out;
}

struct DataShowOptions {
  ConfigOptions config;
  std::string output, split = "train";
  int64_t samples = 36;
  bool overwrite = false;
};

// Shows images; text is only printed.
void check_output(const DataShowOptions& options, bool text) {
  if (text) {
    if (options.output.empty()) return;
    fail(ExitCode::usage, "-o: text is printed, a picture is made of images only");
  }
  if (options.output.empty()) {
    fail(ExitCode::usage, "images are shown in a picture; give its file: -o FILE.png");
  }
  const std::string ending = std::filesystem::path(options.output).extension().string();
  if (ending != ".png" && ending != ".PNG") {
    fail(ExitCode::usage, "{}: the picture is a PNG file; give it a name in .png", options.output);
  }
  std::error_code ignored;
  if (options.overwrite || !std::filesystem::exists(options.output, ignored)) return;
  if (is_own_picture(options.output)) return;
  fail(ExitCode::usage, "{} exists and is no picture of dltrain; --overwrite replaces it",
       options.output);
}

void show_images(const DataShowOptions& options, const Dataset& dataset,
                 const std::vector<FieldSpec>& fields, const Batch& batch) {
  const TensorSpec& target = fields.back().sample;
  std::vector<std::string> captions;
  for (int64_t i = 0; i < batch.samples; ++i) {
    captions.push_back(
        caption(dataset, target, batch.fields.back() + static_cast<size_t>(i) * target.bytes()));
  }
  const std::span images(reinterpret_cast<const float*>(batch.fields[0]),
                         static_cast<size_t>(batch.samples * fields[0].sample.shape.elements()));
  const Shape& image = dataset.fields()[0].sample.shape;
  const Picture sheet =
      contact_sheet(images, image[0], image[1], image.rank() == 3 ? image[2] : 1, captions);
  write_file_atomically(options.output, sheet.png());
  for (size_t i = 0; i < captions.size(); ++i) fmt::print("{:>4}  {}\n", i, captions[i]);
  fmt::print("{}: {} samples of {}, {} by {} pixels\n", options.output, batch.samples,
             options.split, sheet.width(), sheet.height());
}

}  // namespace

CommandBody add_data_show(CLI::App& command) {
  auto options = std::make_shared<DataShowOptions>();
  options->config.add_to(command, ConfigOptions::Use::data);
  add_output(command, "-o,--output", options->output, "The PNG file to write, of images");
  command.add_option("--split", options->split, "train (as training sees it) or eval")
      ->check(CLI::IsMember({"train", "eval"}));
  command.add_option("--samples", options->samples, "How many samples (default 36; of text 4)")
      ->check(CLI::Range(1, 10000));
  command.add_flag("--overwrite", options->overwrite,
                   "Replace a picture that dltrain has not written");
  command.footer(
      "Of images each channel is stretched from its smallest to its largest value. Captions are\n"
      "labels, or class names; mixed samples show their two largest shares. The same list is "
      "printed.\n"
      "Text is printed: the input, decoded, and below it the targets that the loss counts (… for\n"
      "others), or above it the class. Tokens selected by mlm_probability are in brackets in the\n"
      "input; document_mask adds where documents begin.");
  return [options, &command] {
    const Experiment experiment = options->config.load();
    const DataSplit data = experiment.data.open();
    const bool train = options->split == "train";
    if (!train && !data.eval) fail(ExitCode::usage, "the configuration has no eval split");
    const Dataset& dataset = train ? *data.train : *data.eval;
    const bool classified = holds_classified_text(dataset);
    const bool text = classified || holds_text(dataset.fields());
    if (!text) check_images(dataset);
    check_output(*options, text);
    if (text && command.count("--samples") == 0) options->samples = 4;
    const int64_t count = std::min(options->samples, dataset.size());
    const auto device = engines().cpu->open(0);
    const DatasetConfig& config = *experiment.data.train;
    const auto show = [&](const std::vector<FieldSpec>& fields, const Batch& batch) {
      if (!text) return show_images(*options, dataset, fields, batch);
      if (classified) return fmt::print("{}", describe_classified(dataset, fields, batch));
      const auto tokenizer = dataset.tokenizer();
      const bool masked = config.has_tokens() && config.next_token_input().empty();
      fmt::print("{}", describe_texts(fields, batch, tokenizer.get(), masked));
    };
    if (train) {
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
      show(loader.fields(), loader.next());
    } else {
      EvalLoader loader(data.eval, count, 0, 1, *device, count);
      show(dataset.fields(), *loader.next());
    }
    return ExitCode::ok;
  };
}

}  // namespace dltrain
