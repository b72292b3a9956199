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

class MemoryDataset final : public Dataset {
 public:
  using Locations = std::function<std::string(int64_t sample)>;

  // `values` are in the order of `fields`; each has samples * elements of a sample of the field's
  // type.
  MemoryDataset(std::vector<FieldSpec> fields, std::vector<FieldValues> values,
                Locations locations);

  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void gather(int field, std::span<const int64_t> samples, std::byte* out) const override;
  int64_t valid_targets(int64_t sample) const override;
  std::optional<int64_t> uniform_valid_targets() const override { return uniform_valid_; }
  int64_t label_bound() const override { return label_bound_; }
  std::string location_of(int64_t sample) const override { return locations_(sample); }

 private:
  std::vector<FieldSpec> fields_;
  std::vector<FieldValues> values_;
  std::vector<const std::byte*> data_;  // of each field
  Locations locations_;
  int64_t size_ = 0;
  int64_t label_bound_ = 0;
  std::optional<int64_t> uniform_valid_;
};

// Throws Error(data) at `location` if `bytes` is more than half of the machine's memory.
void check_fits_memory(uint64_t bytes, const std::string& location);

}  // namespace dltrain
