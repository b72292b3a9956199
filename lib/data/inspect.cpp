#include "data/inspect.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <unordered_map>

#include "base/checksum.h"
#include "base/error.h"

namespace dltrain {
namespace {

constexpr int64_t kMostChannels = 64;
// How many robust standard deviations from the median make a sample worth a look.
constexpr double kFar = 8;
constexpr int64_t kMostLabels = int64_t{1} << 24;

constexpr double kNoNumber = std::numeric_limits<double>::infinity();

struct Moments {
  double count = 0, mean = 0, squares = 0;  // Welford

  void add(double value) {
    count += 1;
    const double before = value - mean;
    mean += before / count;
    squares += before * (value - mean);
  }
};

// Sums of one sample's field, a row for each channel.
struct Sums {
  double sum = 0, squares = 0;
  float least = std::numeric_limits<float>::infinity();
  float greatest = -std::numeric_limits<float>::infinity();
};

struct Field {
  TensorSpec spec;
  int64_t channels = 0;    // 0: not looked at
  std::vector<Sums> sums;  // of samples × channels
};

int64_t channels_of(const TensorSpec& spec) {
  if (spec.dtype != DType::f32) return 0;
  const Shape& shape = spec.shape;
  return shape.rank() > 1 && shape[-1] <= kMostChannels ? shape[-1] : 1;
}

class Inspector {
 public:
  explicit Inspector(const Dataset& dataset) : dataset_(dataset) {
    const auto samples = static_cast<size_t>(dataset.size());
    for (const FieldSpec& spec : dataset.fields()) {
      Field field{spec.sample, channels_of(spec.sample), {}};
      field.sums.resize(samples * static_cast<size_t>(field.channels));
      fields_.push_back(std::move(field));
      largest_ = std::max(largest_, spec.sample.bytes());
    }
    report_.samples = dataset.size();
    report_.hashes.resize(samples);
    targets_.resize(samples);
    errors_.resize(samples);
  }

  SplitReport run(int threads) {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : others) thread.join();
    for (size_t i = 0; i < errors_.size(); ++i) {
      if (!errors_[i].empty()) report_.broken.emplace_back(i, errors_[i]);
    }
    add_fields();
    add_targets();
    add_duplicates();
    add_outliers();
    return std::move(report_);
  }

 private:
  void work() {
    std::vector<std::byte> memory(largest_);
    for (int64_t sample = next_++; sample < dataset_.size(); sample = next_++) {
      try {
        read(sample, memory);
      } catch (const Error& error) {
        errors_[static_cast<size_t>(sample)] = error.what();
        report_.hashes[static_cast<size_t>(sample)].clear();
      }
    }
  }

  void read(int64_t sample, std::vector<std::byte>& memory) {
    const auto s = static_cast<size_t>(sample);
    for (size_t f = 0; f < fields_.size(); ++f) {
      Field& field = fields_[f];
      dataset_.gather(static_cast<int>(f), {&sample, 1}, memory.data());
      const bool target = static_cast<int>(f) == dataset_.target_field();
      if (target && field.spec.dtype == DType::i32) {
        std::memcpy(&targets_[s], memory.data(), sizeof(int32_t));
      }
      if (field.channels == 0) continue;
      Sums* sums = field.sums.data() + s * static_cast<size_t>(field.channels);
      const auto* values = reinterpret_cast<const float*>(memory.data());
      const int64_t n = field.spec.shape.elements();
      for (int64_t i = 0; i < n; ++i) {
        Sums& of = sums[i % field.channels];
        of.sum += values[i];
        of.squares += static_cast<double>(values[i]) * values[i];
        of.least = std::min(of.least, values[i]);
        of.greatest = std::max(of.greatest, values[i]);
      }
    }
    Hasher hasher;
    dataset_.hash_inputs(sample, hasher);
    report_.hashes[s] = hasher.hex();
  }

  bool sound(size_t sample) const { return errors_[sample].empty(); }

  void add_fields() {
    const auto sound_samples =
        static_cast<double>(dataset_.size()) - static_cast<double>(report_.broken.size());
    for (size_t f = 0; f < fields_.size(); ++f) {
      const Field& field = fields_[f];
      FieldReport report{dataset_.fields()[f], {}};
      for (int64_t c = 0; c < field.channels; ++c) {
        Sums all;
        for (size_t s = 0; s < errors_.size(); ++s) {
          if (!sound(s)) continue;
          const Sums& of =
              field.sums[s * static_cast<size_t>(field.channels) + static_cast<size_t>(c)];
          all.sum += of.sum;
          all.squares += of.squares;
          all.least = std::min(all.least, of.least);
          all.greatest = std::max(all.greatest, of.greatest);
        }
        const double n = sound_samples * static_cast<double>(field.spec.shape.elements()) /
                         static_cast<double>(field.channels);
        const double mean = all.sum / n;
        report.channels.push_back({mean, std::sqrt(std::max(0.0, all.squares / n - mean * mean)),
                                   all.least, all.greatest});
      }
      report_.fields.push_back(std::move(report));
    }
  }

  void add_targets() {
    const TensorSpec& spec = fields_.back().spec;
    if (spec.dtype != DType::i32) {
      report_.target_mean = report_.fields.back().channels[0].mean;
      report_.target_std = report_.fields.back().channels[0].std;
      return;
    }
    if (spec.shape.elements() != 1 || dataset_.label_bound() > kMostLabels) return;
    const auto classes = std::max<int64_t>(dataset_.label_bound(),
                                           static_cast<int64_t>(dataset_.class_names().size()));
    report_.labels.assign(static_cast<size_t>(classes), 0);
    for (size_t s = 0; s < targets_.size(); ++s) {
      if (!sound(s)) continue;
      if (targets_[s] >= 0) {
        ++report_.labels[static_cast<size_t>(targets_[s])];
      } else {
        ++report_.ignored;
      }
    }
  }

  void add_duplicates() {
    std::unordered_map<std::string_view, int64_t> first;
    for (size_t s = 0; s < errors_.size(); ++s) {
      if (!sound(s)) continue;
      const auto sample = static_cast<int64_t>(s);
      const auto [seen, is_new] = first.emplace(report_.hashes[s], sample);
      if (is_new) continue;
      report_.duplicates.emplace_back(sample, seen->second);
      if (!same_target(sample, seen->second)) ++report_.contradictions;
    }
  }

  bool same_target(int64_t a, int64_t b) const {
    const int field = dataset_.target_field();
    std::vector<std::byte> of_a(fields_.back().spec.bytes()), of_b(of_a.size());
    dataset_.gather(field, {&a, 1}, of_a.data());
    dataset_.gather(field, {&b, 1}, of_b.data());
    return of_a == of_b;
  }

  // By mean and spread of the first f32 input.
  void add_outliers() {
    size_t f = 0;
    while (f + 1 < fields_.size() && fields_[f].channels == 0) ++f;
    if (f + 1 >= fields_.size()) return;
    const Field& field = fields_[f];
    const auto channels = static_cast<size_t>(field.channels);
    const auto n = static_cast<double>(field.spec.shape.elements());
    std::vector<int64_t> samples;
    std::vector<double> means, spreads;
    for (size_t s = 0; s < errors_.size(); ++s) {
      if (!sound(s)) continue;
      double sum = 0, squares = 0;
      for (size_t c = 0; c < channels; ++c) {
        sum += field.sums[s * channels + c].sum;
        squares += field.sums[s * channels + c].squares;
      }
      samples.push_back(static_cast<int64_t>(s));
      means.push_back(sum / n);
      spreads.push_back(std::sqrt(std::max(0.0, squares / n - sum / n * sum / n)));
    }
    std::vector<std::pair<double, Outlier>> found;
    const auto far_means = distances(means), far_spreads = distances(spreads);
    for (size_t i = 0; i < samples.size(); ++i) {
      if (n > 1 && spreads[i] <= 1e-6 * (1 + std::abs(means[i]))) {
        found.push_back({std::numeric_limits<double>::infinity(),
                         {samples[i], fmt::format("constant, {:.4g} everywhere", means[i])}});
      } else if (far_means[i] > kFar) {
        found.push_back({far_means[i], {samples[i], fmt::format("its mean is {:.4g}", means[i])}});
      } else if (far_spreads[i] > kFar) {
        found.push_back(
            {far_spreads[i],
             {samples[i], fmt::format("its standard deviation is {:.4g}", spreads[i])}});
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [distance, outlier] : found) report_.outliers.push_back(std::move(outlier));
  }

  // From the median, in robust standard deviations (1.4826 times the median distance).
  static std::vector<double> distances(const std::vector<double>& values) {
    if (values.empty()) return {};
    const auto median = [](std::vector<double> of) {
      const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
      std::nth_element(of.begin(), middle, of.end());
      return *middle;
    };
    const double centre = median(values);
    std::vector<double> out;
    for (const double value : values) out.push_back(std::abs(value - centre));
    const double scale = 1.4826 * median(out);
    for (double& value : out) value = scale > 0 ? value / scale : 0;
    return out;
  }

  const Dataset& dataset_;
  std::vector<Field> fields_;
  size_t largest_ = 0;
  SplitReport report_;
  std::vector<int32_t> targets_;     // the first of each sample
  std::vector<std::string> errors_;  // by sample; empty where it is sound
  std::atomic<int64_t> next_{0};
};

}  // namespace

SplitReport inspect(const Dataset& dataset, int threads) {
  return Inspector(dataset).run(threads);
}

std::vector<ColumnReport> inspect_columns(const Dataset& table) {
  const auto schema = table.schema();
  std::vector<ColumnReport> out;
  if (!schema || schema->columns.empty()) return out;
  for (const ColumnSchema& column : schema->columns) {
    ColumnReport report{.column = column, .least = kNoNumber, .greatest = -kNoNumber};
    if (column.kind == ColumnSchema::Kind::category) {
      report.counts.resize(column.categories.size() + (column.marks_empty ? 1 : 0));
    }
    out.push_back(std::move(report));
  }
  std::vector<Moments> moments(out.size());
  std::vector<float> inputs;
  std::vector<int32_t> ids;
  for (int64_t sample = 0; sample < table.size(); ++sample) {
    for (int field = 0; field < table.target_field(); ++field) {
      const FieldSpec& spec = table.fields()[static_cast<size_t>(field)];
      const auto n = static_cast<size_t>(spec.sample.shape.elements());
      const bool is_ids = spec.sample.dtype == DType::i32;
      inputs.resize(is_ids ? inputs.size() : n);
      ids.resize(is_ids ? n : ids.size());
      table.gather(field, {&sample, 1},
                   is_ids ? reinterpret_cast<std::byte*>(ids.data())
                          : reinterpret_cast<std::byte*>(inputs.data()));
    }
    size_t input = 0, id = 0;
    int32_t first_id = 1;
    for (size_t c = 0; c < out.size(); ++c) {
      ColumnReport& report = out[c];
      if (report.column.kind == ColumnSchema::Kind::number) {
        const float value = inputs[input];
        input += report.column.marks_empty ? 2 : 1;
        if (std::isnan(value)) {
          ++report.empty;
          continue;
        }
        moments[c].add(value);
        report.least = std::min<double>(report.least, value);
        report.greatest = std::max<double>(report.greatest, value);
      } else if (report.column.kind == ColumnSchema::Kind::category) {
        const auto n = static_cast<int32_t>(report.counts.size());
        for (int32_t i = 0; i < n; ++i) {
          report.counts[static_cast<size_t>(i)] +=
              schema->embedded ? ids[id] == first_id + i
                               : inputs[input + static_cast<size_t>(i)] == 1;
        }
        first_id += n;
        schema->embedded ? ++id : input += static_cast<size_t>(n);
      }
    }
  }
  for (size_t c = 0; c < out.size(); ++c) {
    out[c].mean = moments[c].mean;
    out[c].std = std::sqrt(moments[c].squares / std::max(moments[c].count, 1.0));
  }
  return out;
}

std::vector<std::pair<int64_t, int64_t>> find_overlap(const SplitReport& train,
                                                      const SplitReport& eval) {
  std::unordered_map<std::string_view, int64_t> known;
  for (size_t s = 0; s < train.hashes.size(); ++s) {
    if (!train.hashes[s].empty()) known.emplace(train.hashes[s], static_cast<int64_t>(s));
  }
  std::vector<std::pair<int64_t, int64_t>> out;
  for (size_t s = 0; s < eval.hashes.size(); ++s) {
    const auto found = known.find(eval.hashes[s]);
    if (!eval.hashes[s].empty() && found != known.end()) {
      out.emplace_back(static_cast<int64_t>(s), found->second);
    }
  }
  return out;
}

}  // namespace dltrain
