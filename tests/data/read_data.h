// A data section from its text, and samples of it, for tests of datasets.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "config/bind.h"
#include "config/yaml.h"
#include "data/config.h"
#include "refusal.h"

namespace dltrain {

inline DataConfig read_data(const std::string& text) {
  struct Whole {
    DataConfig data;
    void describe(Fields& f) { f.section("data", data, {.doc = "Samples", .required = true}); }
  };
  Diagnostics diagnostics;
  Whole whole;
  const auto source = std::make_shared<Source>(Source{"exp.yaml", "data: {" + text + "}"});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(whole, *tree, diagnostics);
  diagnostics.throw_if_any();
  return std::move(whole.data);
}

// An i32 field of one sample.
inline std::vector<int32_t> ids_of(const Dataset& dataset, int field, int64_t sample) {
  const FieldSpec& spec = dataset.fields()[static_cast<size_t>(field)];
  std::vector<int32_t> out(static_cast<size_t>(spec.sample.shape.elements()));
  dataset.gather(field, {&sample, 1}, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// The same as training sees it at a position of its order.
inline std::vector<int32_t> training_ids_of(const Dataset& dataset, int field, int64_t sample,
                                            const SampleVisit& visit) {
  std::vector<int32_t> out = ids_of(dataset, field, sample);
  dataset.gather_training(field, {&sample, 1}, visit, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// Returns the message of Error(data) for this configuration's data.
inline std::string data_refusal(const std::string& text) {
  const DataConfig config = read_data(text);
  return refusal_of([&] { config.open(); });
}

}  // namespace dltrain
