// A dataset in memory, for the small formats (csv, tensors, synthetic).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

// The values of one field for all samples.
using FieldValues = std::variant<std::vector<float>, std::vector<int32_t>>;

// Facts about the samples that do not follow from their values.
struct MemoryFacts {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::shared_ptr<const DataSchema> schema = nullptr;  // with the names of the classes
  int64_t label_bound = 0;                             // the values may have larger labels
  std::vector<std::optional<int64_t>> id_bounds = {};  // by field; empty: all are unknown
  std::function<int64_t(int field, int64_t sample)> length = {};  // without padding
};

class MemoryDataset final : public Dataset {
 public:
  using Locations = std::function<std::string(int64_t sample)>;

  // `values` are in the order of `fields`; each has samples * elements of a sample of the field's
  // type.
  MemoryDataset(std::vector<FieldSpec> fields, std::vector<FieldValues> values, Locations locations,
                MemoryFacts facts = {});

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override;
  std::optional<int64_t> uniform_valid_targets() const override { return uniform_valid_; }
  int64_t length(int field, int64_t sample) const override {
    return facts_.length ? facts_.length(field, sample) : Dataset::length(field, sample);
  }
  int64_t label_bound() const override { return facts_.label_bound; }
  std::optional<int64_t> id_bound(int field) const override {
    return facts_.id_bounds.empty() ? std::nullopt : facts_.id_bounds[static_cast<size_t>(field)];
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return facts_.tokenizer; }
  std::shared_ptr<const DataSchema> schema() const override { return facts_.schema; }
  const std::vector<std::string>& class_names() const override {
    return facts_.schema ? facts_.schema->class_names : Dataset::class_names();
  }
  std::string location_of(int64_t sample) const override { return locations_(sample); }

 private:
  std::vector<FieldSpec> fields_;
  std::vector<FieldValues> values_;
  std::vector<const std::byte*> data_;  // of each field
  Locations locations_;
  MemoryFacts facts_;
  int64_t size_ = 0;
  std::optional<int64_t> uniform_valid_;
};

// Throws Error(data) at `location` if `bytes` is more than half of the machine's memory.
void check_fits_memory(uint64_t bytes, const std::string& location);

}  // namespace dltrain
