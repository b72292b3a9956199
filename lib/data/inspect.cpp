#include "data/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "data/classes.h"
#include "data/ordered_work.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxShownChannels = 64;
// The distance of outliers from the median, in robust standard deviations.
constexpr double kOutlierDistance = 8;
constexpr int64_t kMaxLabels = int64_t{1} << 24;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Moments {
  double count = 0, mean = 0, squares = 0;  // Welford

  void add(double value) {
    count += 1;
    const double before = value - mean;
    mean += before / count;
    squares += before * (value - mean);
  }
};

struct Sums {
  double sum = 0, squares = 0;
  float least = std::numeric_limits<float>::infinity();
  float greatest = -std::numeric_limits<float>::infinity();

  void add(float value) {
    sum += value;
    squares += static_cast<double>(value) * value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  void add(const Sums& other) {
    sum += other.sum;
    squares += other.squares;
    least = std::min(least, other.least);
    greatest = std::max(greatest, other.greatest);
  }
  double mean(double n) const { return sum / n; }
  double std(double n) const { return std::sqrt(std::max(0.0, squares / n - mean(n) * mean(n))); }
};

// Returns the number of channels with statistics; 0 for i32.
size_t channels_of(const TensorSpec& spec) {
  if (spec.dtype != DType::f32) return 0;
  const Shape& shape = spec.shape;
  return shape.rank() > 1 && shape[-1] <= kMaxShownChannels ? static_cast<size_t>(shape[-1]) : 1;
}

// The result of reading one sample.
struct InspectedSample {
  int64_t sample = 0;
  std::string error;  // empty: the sample is valid
  std::string hash;
  int32_t target = 0;                   // the first one, if it is i32
  std::vector<std::vector<Sums>> sums;  // by field and channel
};

class Inspector {
 public:
  explicit Inspector(const Dataset& dataset)
      : dataset_(dataset),
        counts_labels_(has_one_label(dataset) && dataset.label_bound() <= kMaxLabels) {
    report_.samples = dataset.size();
    for (const FieldSpec& spec : dataset.fields()) totals_.emplace_back(channels_of(spec.sample));
    while (totals_[outlier_field_].empty() && outlier_field_ + 1 < totals_.size()) ++outlier_field_;
    if (!counts_labels_) return;
    report_.labels.resize(
        std::max(static_cast<size_t>(dataset.label_bound()), dataset.class_names().size()));
  }

  SplitReport run(int threads) {
    std::vector<std::vector<std::byte>> memory(static_cast<size_t>(std::max(threads, 1)));
    int64_t next = 0;
    ordered_work<InspectedSample>(
        threads, [&](InspectedSample& item) { return (item.sample = next++) < dataset_.size(); },
        [&](InspectedSample& item, int thread) {
          item.error.clear();
          try {
            read(item, memory[static_cast<size_t>(thread)]);
          } catch (const Error& error) {
            item.error = error.what();
          }
        },
        [&](InspectedSample& item) { add(item); }, /*batch=*/64);
    for (size_t f = 0; f < totals_.size(); ++f) {
      report_.fields.push_back({dataset_.fields()[f], {}});
      for (const Sums& of : totals_[f]) {
        const double n = static_cast<double>(means_.size()) * values_of(f);
        report_.fields[f].channels.push_back({of.mean(n), of.std(n), of.least, of.greatest});
      }
    }
    add_duplicates();
    add_outliers();
    return std::move(report_);
  }

 private:
  // Returns the number of values of a sample in one channel.
  double values_of(size_t field) const {
    return static_cast<double>(dataset_.fields()[field].sample.shape.elements()) /
           static_cast<double>(totals_[field].size());
  }

  void read(InspectedSample& item, std::vector<std::byte>& memory) const {
    item.sums.clear();
    for (size_t f = 0; f < totals_.size(); ++f) {
      const TensorSpec& spec = dataset_.fields()[f].sample;
      memory.resize(std::max(memory.size(), spec.bytes()));
      dataset_.gather(static_cast<int>(f), {&item.sample, 1}, memory.data());
      auto& sums = item.sums.emplace_back(totals_[f].size());
      if (f + 1 == totals_.size()) std::memcpy(&item.target, memory.data(), sizeof(int32_t));
      const auto* values = reinterpret_cast<const float*>(memory.data());
      const auto n = static_cast<size_t>(spec.shape.elements());
      for (size_t i = 0; i < n && !sums.empty(); ++i) sums[i % sums.size()].add(values[i]);
    }
    Hasher hasher;
    dataset_.hash_inputs(item.sample, hasher);
    item.hash = hasher.hex();
  }

  void add(const InspectedSample& item) {
    if (!item.error.empty()) {
      report_.broken.emplace_back(item.sample, item.error);
      report_.hashes.emplace_back();
      return;
    }
    report_.hashes.push_back(item.hash);
    for (size_t f = 0; f < totals_.size(); ++f) {
      for (size_t c = 0; c < totals_[f].size(); ++c) totals_[f][c].add(item.sums[f][c]);
    }
    if (counts_labels_) {
      ++(item.target < 0 ? report_.ignored : report_.labels[static_cast<size_t>(item.target)]);
    }
    Sums all;
    for (const Sums& of : item.sums[outlier_field_]) all.add(of);
    const auto n = static_cast<double>(dataset_.fields()[outlier_field_].sample.shape.elements());
    means_.push_back(all.mean(n));
    spreads_.push_back(all.std(n));
    valid_.push_back(item.sample);
  }

  void add_duplicates() {
    std::unordered_map<std::string_view, int64_t> first;
    for (const int64_t sample : valid_) {
      const auto [seen, is_new] =
          first.emplace(report_.hashes[static_cast<size_t>(sample)], sample);
      if (is_new) continue;
      report_.duplicates.emplace_back(sample, seen->second);
      if (!same_target(sample, seen->second)) ++report_.contradictions;
    }
  }

  bool same_target(int64_t a, int64_t b) const {
    const int field = dataset_.target_field();
    std::vector<std::byte> of_a(dataset_.fields().back().sample.bytes()), of_b(of_a.size());
    dataset_.gather(field, {&a, 1}, of_a.data());
    dataset_.gather(field, {&b, 1}, of_b.data());
    return of_a == of_b;
  }

  // Compares means and standard deviations of the first f32 input.
  void add_outliers() {
    if (outlier_field_ + 1 == totals_.size()) return;
    std::vector<std::pair<double, Outlier>> found;
    const auto outlying_means = distances(means_), outlying_spreads = distances(spreads_);
    const bool many = dataset_.fields()[outlier_field_].sample.shape.elements() > 1;
    for (size_t i = 0; i < valid_.size(); ++i) {
      const auto add = [&](double distance, std::string why) {
        found.push_back({distance, {valid_[i], std::move(why)}});
      };
      if (many && spreads_[i] <= 1e-6 * (1 + std::abs(means_[i]))) {
        add(kInfinity, fmt::format("constant, {:.4g} everywhere", means_[i]));
      } else if (outlying_means[i] > kOutlierDistance) {
        add(outlying_means[i], fmt::format("its mean is {:.4g}", means_[i]));
      } else if (outlying_spreads[i] > kOutlierDistance) {
        add(outlying_spreads[i], fmt::format("its standard deviation is {:.4g}", spreads_[i]));
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [distance, outlier] : found) report_.outliers.push_back(std::move(outlier));
  }

  // Returns the distances from the median in robust standard deviations (1.4826 times the median
  // distance).
  static std::vector<double> distances(const std::vector<double>& values) {
    if (values.empty()) return {};
    const auto median = [](std::vector<double> of) {
      const auto median_at = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
      std::nth_element(of.begin(), median_at, of.end());
      return *median_at;
    };
    const double centre = median(values);
    std::vector<double> out;
    for (const double value : values) out.push_back(std::abs(value - centre));
    const double scale = 1.4826 * median(out);
    for (double& value : out) value = scale > 0 ? value / scale : 0;
    return out;
  }

  const Dataset& dataset_;
  bool counts_labels_;
  SplitReport report_;
  std::vector<std::vector<Sums>> totals_;  // by field and channel
  size_t outlier_field_ = 0;               // the first f32 input; the target if there is none
  std::vector<int64_t> valid_;             // samples that could be read
  std::vector<double> means_, spreads_;    // of the outlier field of these
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
    ColumnReport report{.column = column, .least = kInfinity, .greatest = -kInfinity};
    if (column.kind == ColumnSchema::Kind::category) {
      report.counts.resize(column.categories.size() + (column.marks_empty ? 1 : 0));
    }
    out.push_back(std::move(report));
  }
  const size_t columns = schema->number_columns().size();
  std::vector<Moments> moments(out.size());
  std::vector<float> inputs;
  std::vector<int32_t> ids;
  for (int64_t sample = 0; sample < table.size(); ++sample) {
    for (int field = 0; field < table.target_field(); ++field) {
      const FieldSpec& spec = table.fields()[static_cast<size_t>(field)];
      const auto n = static_cast<size_t>(spec.sample.shape.elements());
      const bool is_ids = spec.sample.dtype == DType::i32;
      if (!is_ids && n != columns) return {};  // of a transform
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
