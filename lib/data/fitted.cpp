#include "data/fitted.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxDecoded = 2000;

// Returns true for tables: every element of a sample is a separate input.
bool by_column(const Dataset& data) {
  return data.schema() != nullptr && !data.schema()->columns.empty() &&
         data.fields()[0].sample.shape.rank() == 1;
}

// Returns the statistics of each channel of an f32 field, without NaN.
std::vector<Statistics> statistics_of(const Dataset& data, int field) {
  const TensorSpec& spec = data.fields()[static_cast<size_t>(field)].sample;
  const int64_t n = spec.shape.elements();
  const int64_t channels = spec.shape.rank() == 0 ? 1 : spec.shape[-1];
  struct Sums {
    double shift = 0, sum = 0, squares = 0, count = 0;  // of differences from the first value
  };
  std::vector<Sums> sums(static_cast<size_t>(channels));
  std::vector<float> values(static_cast<size_t>(n));
  const int64_t looks = data.is_expensive() ? std::min(data.size(), kMaxDecoded) : data.size();
  for (int64_t i = 0; i < looks; ++i) {
    const int64_t sample = i * data.size() / looks;
    data.gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(values.data()));
    for (int64_t e = 0; e < n; ++e) {
      const double value = values[static_cast<size_t>(e)];
      if (std::isnan(value)) continue;
      Sums& of = sums[static_cast<size_t>(e % channels)];
      if (of.count == 0) of.shift = value;
      of.sum += value - of.shift;
      of.squares += (value - of.shift) * (value - of.shift);
      of.count += 1;
    }
  }
  std::vector<Statistics> out;
  for (const Sums& of : sums) {
    const double count = std::max(of.count, 1.0), mean = of.sum / count;
    const double variance = of.squares / count - mean * mean;
    // The variance of a constant column is rounding error.
    const bool varies = variance > 1e-12 * of.squares / count;
    out.push_back({of.shift + mean, varies ? std::sqrt(variance) : 1});
  }
  return out;
}

class FittedDataset final : public DatasetWrapper {
 public:
  FittedDataset(std::shared_ptr<const Dataset> data, std::shared_ptr<const DataSchema> schema)
      : DatasetWrapper(std::move(data)), schema_(std::move(schema)), fields_(fields().size()) {
    for (int field = 0; field < target_field(); ++field) {
      const FieldSpec& spec = fields()[static_cast<size_t>(field)];
      if (spec.sample.dtype != DType::f32) continue;
      auto& elements = fields_[static_cast<size_t>(field)];
      if (field == 0 && by_column(whole())) {
        for (const int column : schema_->number_columns()) {
          elements.push_back(column < 0 ? Element{} : element(column));
        }
      } else {
        for (const auto& [name, channels] : schema_->channels) {
          if (name != spec.name) continue;
          for (const Statistics& s : channels) elements.push_back(element(s));
        }
      }
      const int64_t channels = spec.sample.shape.rank() == 0 ? 1 : spec.sample.shape[-1];
      if (static_cast<int64_t>(elements.size()) == channels) continue;
      fail(ExitCode::data,
           "the model was trained with statistics of {} channels of {}, but this data has {}",
           elements.size(),
           spec.name == kInputField ? "the input" : fmt::format("the input {}", spec.name),
           to_string(spec.sample));
    }
  }

  std::shared_ptr<const DataSchema> schema() const override { return schema_; }

 private:
  struct Element {
    float mean = 0, std = 1, fill = 0;
  };

  Element element(const Statistics& s) const {
    const auto mean = static_cast<float>(s.mean);
    return schema_->normalized ? Element{mean, static_cast<float>(s.std), 0} : Element{0, 1, mean};
  }
  Element element(int column) const {
    const auto& statistics = schema_->columns[static_cast<size_t>(column)].statistics;
    return statistics ? element(*statistics) : Element{};
  }

  void change(int field, size_t samples, std::byte* out) const override {
    const auto& elements = fields_[static_cast<size_t>(field)];
    if (elements.empty()) return;
    auto* values = reinterpret_cast<float*>(out);
    const size_t rows =
        samples *
        static_cast<size_t>(fields()[static_cast<size_t>(field)].sample.shape.elements()) /
        elements.size();
    for (size_t row = 0; row < rows; ++row, values += elements.size()) {
      for (size_t i = 0; i < elements.size(); ++i) {
        const Element& e = elements[i];
        values[i] = schema_->fills && std::isnan(values[i]) ? e.fill : (values[i] - e.mean) / e.std;
      }
    }
  }

  std::shared_ptr<const DataSchema> schema_;
  std::vector<std::vector<Element>> fields_;  // by field and channel; empty: unchanged
};

}  // namespace

std::shared_ptr<const DataSchema> fit_inputs(const Dataset& train, const InputFit& fit) {
  DataSchema out = train.schema() ? *train.schema() : DataSchema{};
  out.normalized = fit.normalize;
  out.fills = fit.fill;
  for (int field = 0; field < train.target_field(); ++field) {
    const FieldSpec& spec = train.fields()[static_cast<size_t>(field)];
    if (spec.sample.dtype != DType::f32) continue;
    std::vector<Statistics> found = statistics_of(train, field);
    if (field > 0 || !by_column(train)) {
      out.channels.emplace_back(spec.name, std::move(found));
      continue;
    }
    const auto columns = out.number_columns();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] >= 0) out.columns[static_cast<size_t>(columns[i])].statistics = found[i];
    }
  }
  return std::make_shared<const DataSchema>(std::move(out));
}

std::shared_ptr<const Dataset> apply_fit(std::shared_ptr<const Dataset> data,
                                         std::shared_ptr<const DataSchema> schema) {
  if (!schema || !schema->fitted()) return data;
  return std::make_shared<FittedDataset>(std::move(data), std::move(schema));
}

}  // namespace dltrain
