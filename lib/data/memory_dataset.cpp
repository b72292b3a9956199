#include "data/memory_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <unistd.h>

#include "base/error.h"

namespace dltrain {

MemoryDataset::MemoryDataset(std::vector<FieldSpec> fields, std::vector<FieldValues> values,
                             Locations locations, MemoryFacts facts)
    : fields_(std::move(fields)),
      values_(std::move(values)),
      locations_(std::move(locations)),
      facts_(std::move(facts)) {
  check_internal(fields_.size() >= 2 && fields_.size() == values_.size(), "{} fields",
                 fields_.size());
  for (size_t i = 0; i < fields_.size(); ++i) {
    const int64_t elements = fields_[i].sample.shape.elements();
    const auto count = std::visit(
        [&]<typename T>(const std::vector<T>& values) {
          const DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::i32;
          check_internal(fields_[i].sample.dtype == dtype, "field {}", fields_[i].name);
          data_.push_back(reinterpret_cast<const std::byte*>(values.data()));
          return static_cast<int64_t>(values.size());
        },
        values_[i]);
    check_internal(elements > 0 && count > 0 && count % elements == 0, "field {} has {} values",
                   fields_[i].name, count);
    if (i == 0) size_ = count / elements;
    check_internal(size_ == count / elements, "field {} has {} samples, not {}", fields_[i].name,
                   count / elements, size_);
  }
  if (const auto* labels = std::get_if<std::vector<int32_t>>(&values_.back())) {
    const int64_t bound = int64_t{*std::max_element(labels->begin(), labels->end())} + 1;
    facts_.label_bound = std::max(facts_.label_bound, bound);
    if (std::find(labels->begin(), labels->end(), kIgnoredLabel) != labels->end()) return;
  } else if (std::ranges::any_of(std::get<std::vector<float>>(values_.back()),
                                 [](float target) { return std::isnan(target); })) {
    return;
  }
  uniform_valid_ = fields_.back().sample.shape.elements();
}

void MemoryDataset::read(int field, std::span<const int64_t> samples, const SampleVisit* /*first*/,
                         std::byte* out) const {
  const size_t row = fields_[field].sample.bytes();
  const std::byte* data = data_[field];
  size_t i = 0;
  while (i < samples.size()) {
    // Consecutive samples are copied together.
    size_t run = 1;
    while (i + run < samples.size() && samples[i + run] == samples[i] + static_cast<int64_t>(run)) {
      ++run;
    }
    std::memcpy(out, data + static_cast<size_t>(samples[i]) * row, run * row);
    out += run * row;
    i += run;
  }
}

void check_fits_memory(uint64_t bytes, const std::string& location) {
  static const uint64_t limit = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
  if (bytes <= limit) return;
  throw Error(ExitCode::data,
              fmt::format("needs {} MiB of memory, more than half of what this machine has "
                          "({} MiB); split the file, or read fewer rows",
                          bytes >> 20, (limit * 2) >> 20),
              location);
}

}  // namespace dltrain
