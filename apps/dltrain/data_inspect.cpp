// dltrain data inspect: one pass over each split.
#include <algorithm>
#include <cstdio>

#include "base/cpus.h"
#include "base/utf8.h"
#include "data/classes.h"
#include "data/inspect.h"
#include "data/target_counter.h"
#include "dltrain/commands.h"

namespace dltrain {
namespace {

constexpr size_t kMaxShown = 10;
constexpr size_t kMaxClasses = 50;

template <typename List, typename Print>
void print_some(const List& list, const Print& print) {
  for (size_t i = 0; i < list.size() && i < kMaxShown; ++i) print(list[i]);
  if (list.size() > kMaxShown) fmt::print("    … and {} more\n", list.size() - kMaxShown);
}

std::string numbers(const std::vector<ChannelStatistics>& channels,
                    double (*pick)(const ChannelStatistics&)) {
  std::string out;
  for (const ChannelStatistics& channel : channels) {
    out += fmt::format("{}{:.4f}", out.empty() ? "" : ", ", pick(channel));
  }
  return channels.size() == 1 ? out : "[" + out + "]";
}

void print_field(const FieldReport& report) {
  fmt::print("  {:<10} {}", report.field.name, to_string(report.field.sample));
  if (!report.channels.empty()) {
    const auto& channels = report.channels;
    fmt::print("  mean {}  std {}  from {} to {}",
               numbers(channels, [](const ChannelStatistics& c) { return c.mean; }),
               numbers(channels, [](const ChannelStatistics& c) { return c.std; }),
               numbers(channels, [](const ChannelStatistics& c) { return c.least; }),
               numbers(channels, [](const ChannelStatistics& c) { return c.greatest; }));
  }
  fmt::print("\n");
}

std::string describe_counts(const ColumnReport& report) {
  std::string out = fmt::format("{} categories:", report.column.categories.size());
  for (size_t i = 0; i < report.counts.size() && i < kMaxShown; ++i) {
    const bool empty = i == report.column.categories.size();
    out += fmt::format("{} {} {}", i > 0 ? "," : "",
                       empty ? "(empty)" : report.column.categories[i], report.counts[i]);
  }
  return out + (report.counts.size() > kMaxShown ? ", …" : "");
}

// The columns as in the file, before fitting.
void print_columns(const std::vector<ColumnReport>& columns) {
  size_t width = 0;
  for (const ColumnReport& report : columns) width = std::max(width, report.column.name.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnReport& r = columns[i];
    const std::string name = r.column.name.empty() ? fmt::format("column {}", i) : r.column.name;
    fmt::print("    {:<{}}  ", name, std::max<size_t>(width, 9));
    switch (r.column.kind) {
      case ColumnSchema::Kind::number:
        fmt::print("number    mean {:.6g}  std {:.6g}  from {:.6g} to {:.6g}{}{}\n", r.mean, r.std,
                   r.least, r.greatest, r.empty > 0 ? fmt::format("  {} empty", r.empty) : "",
                   r.std == 0 ? "  never varies" : "");
        break;
      case ColumnSchema::Kind::category:
        fmt::print("category  {}\n", describe_counts(r));
        break;
      case ColumnSchema::Kind::target:
        fmt::print("target\n");
        break;
      case ColumnSchema::Kind::ignored:
        fmt::print("left out\n");
        break;
    }
  }
}

// Returns "3" or "3 (cat)".
std::string label_text(const Dataset& dataset, int64_t label) {
  const auto& names = dataset.class_names();
  if (label < 0 || label >= static_cast<int64_t>(names.size())) return std::to_string(label);
  return fmt::format("{} ({})", label, names[static_cast<size_t>(label)]);
}

void print_classes(const Dataset& dataset, const SplitReport& report) {
  if (report.labels.empty()) return;
  int64_t least = INT64_MAX, most = 0, empty = 0;
  for (const int64_t count : report.labels) {
    most = std::max(most, count);
    if (count > 0) least = std::min(least, count);
    empty += count == 0;
  }
  fmt::print("  classes: {}", report.labels.size());
  if (most > 0) {
    fmt::print("; the largest has {} samples, the smallest {} ({:.2f} times fewer)", most, least,
               static_cast<double>(most) / static_cast<double>(least));
  }
  if (empty > 0) fmt::print("; {} without samples", empty);
  if (report.ignored > 0) fmt::print("; {} samples have an ignored label", report.ignored);
  fmt::print("\n");
  for (size_t i = 0; i < report.labels.size() && i < kMaxClasses; ++i) {
    fmt::print("    {:<24} {:>9}  {:5.2f} %\n",
               printable(label_text(dataset, static_cast<int64_t>(i))), report.labels[i],
               100.0 * static_cast<double>(report.labels[i]) / static_cast<double>(report.samples));
  }
  if (report.labels.size() > kMaxClasses) {
    fmt::print("    … and {} more\n", report.labels.size() - kMaxClasses);
  }
}

// Returns true if samples are sequences of tokens without classes.
bool is_tokens(const Dataset& dataset) {
  const TensorSpec& sample = dataset.fields()[0].sample;
  return sample.dtype == DType::i32 && sample.shape.rank() == 1 && dataset.id_bound(0) &&
         !has_one_label(dataset);
}

// Returns the text of a token in quotes; empty without a tokenizer.
std::string token_text(const Dataset& dataset, int64_t id) {
  const auto tokenizer = dataset.tokenizer();
  if (!tokenizer) return {};
  return "'" + shown_line(text_of_token(*tokenizer, static_cast<int32_t>(id))) + "'";
}

void print_tokens(const char* name, const Dataset& dataset) {
  const int64_t length = dataset.fields()[0].sample.shape[0];
  std::vector<int64_t> counts(static_cast<size_t>(*dataset.id_bound(0)));
  std::vector<int32_t> ids(static_cast<size_t>(length));
  TargetCounter counter(dataset, {});
  TargetCount targets;
  int64_t tokens = 0;  // without padding
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    dataset.gather(0, {&sample, 1}, reinterpret_cast<std::byte*>(ids.data()));
    const int64_t own = dataset.length(0, sample);
    for (int64_t i = 0; i < own; ++i) ++counts[static_cast<size_t>(ids[static_cast<size_t>(i)])];
    tokens += own;
    counter.add(sample, nullptr, targets);
  }
  std::vector<int64_t> order;
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) order.push_back(static_cast<int64_t>(id));
  }
  const auto count_of = [&](int64_t id) { return counts[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return count_of(a) > count_of(b); });
  const int64_t padding = dataset.size() * length - tokens;
  fmt::print("{}: {} sequences of {} tokens, {} tokens{}, {} targets that count\n", name,
             dataset.size(), length, tokens,
             padding > 0 ? fmt::format(" and {} of padding", padding) : "", targets.valid);
  fmt::print("  vocabulary: {} ids, {} of them used\n", counts.size(), order.size());
  print_some(order, [&](int64_t id) {
    fmt::print("    {:>8} {:<16} {:>12}  {:5.2f} %\n", id, token_text(dataset, id), count_of(id),
               100.0 * static_cast<double>(count_of(id)) / static_cast<double>(tokens));
  });
}

SplitReport print_split(const char* name, const Dataset& dataset, const Dataset& raw) {
  SplitReport report = inspect(dataset, bound_cpu_count());
  fmt::print("{}: {} samples\n", name, report.samples);
  for (const FieldReport& field : report.fields) print_field(field);
  print_columns(inspect_columns(raw));
  print_classes(dataset, report);
  fmt::print("  broken: {}\n", report.broken.size());
  print_some(report.broken, [](const auto& b) { fmt::print("    {}\n", printable(b.second)); });
  fmt::print(
      "  duplicates: {}{}\n", report.duplicates.size(),
      report.contradictions > 0
          ? fmt::format(", of which {} have another target than the first", report.contradictions)
          : "");
  print_some(report.duplicates, [&](const auto& pair) {
    fmt::print("    {} = {}\n", printable(dataset.location_of(pair.first)),
               printable(dataset.location_of(pair.second)));
  });
  fmt::print("  outliers: {}\n", report.outliers.size());
  print_some(report.outliers, [&](const Outlier& outlier) {
    fmt::print("    {}: {}\n", printable(dataset.location_of(outlier.sample)), outlier.reason);
  });
  return report;
}

}  // namespace

CommandBody add_data_inspect(CLI::App& command) {
  auto options = std::make_shared<ConfigOptions>();
  options->add_to(command, ConfigOptions::Use::data);
  command.footer(
      "Samples are inspected as evaluation uses them, after scale, normalize and transforms. "
      "Without\n"
      "normalize, mean and std are the values for its keys. The columns of a table are those of "
      "the\n"
      "file. Exit code 3 if a sample cannot be read.");
  return [options] {
    const Experiment experiment = options->load();
    const DataSplit raw = experiment.data.open({.fit = false});
    DataSplit data = raw;
    if (const InputFit fit = experiment.data.train->fit(); fit.any()) {
      try {
        const auto schema = fit_inputs(*raw.train, fit);
        data.train = apply_fit(raw.train, schema);
        if (raw.eval) data.eval = apply_fit(raw.eval, schema);
      } catch (const Error& error) {
        if (error.code() != ExitCode::data) throw;
        print_message(
            fmt::format("{}; the data is inspected without normalize: auto", error.what()));
      }
    }
    if (is_tokens(*data.train)) {
      print_tokens("train", *data.train);
      if (data.eval) print_tokens("eval", *data.eval);
      return ExitCode::ok;
    }
    const SplitReport train = print_split("train", *data.train, *raw.train);
    bool broken = !train.broken.empty();
    if (data.eval) {
      const SplitReport eval = print_split("eval", *data.eval, *raw.eval);
      broken = broken || !eval.broken.empty();
      const auto overlap = find_overlap(train, eval);
      fmt::print("eval samples that are also in train: {}\n", overlap.size());
      print_some(overlap, [&](const auto& pair) {
        fmt::print("    {} = {}\n", printable(data.eval->location_of(pair.first)),
                   printable(data.train->location_of(pair.second)));
      });
    }
    return broken ? ExitCode::data : ExitCode::ok;
  };
}

}  // namespace dltrain
