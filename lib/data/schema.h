// The schema of the training data, by which later data of the model is read: the columns of a
// table, the numbers of its categories and classes, and the statistics that normalize inputs.
// Checkpoints store it (state.json, docs/formats.md), and code that opens data for a trained model
// passes it in OpenOptions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dltrain {

struct Statistics {
  double mean = 0, std = 1;
};

struct ColumnSchema {
  enum class Kind : uint8_t { number, category, target, ignored };

  std::string name = {};  // of the header; empty if the file has none
  Kind kind = Kind::number;
  std::vector<std::string> categories = {};  // in the order of their inputs or ids
  // Empty cells have a separate category, or for numbers a separate input that is 1 there.
  bool marks_empty = false;
  std::optional<Statistics> statistics = {};  // of numbers; absent: they are not normalized
};

struct DataSchema {
  std::vector<ColumnSchema> columns = {};  // of a table, in the order of the file
  bool embedded = false;                   // categories are ids in the input `categories`
  bool normalized = false;                 // inputs are (value - mean) / std
  bool fills = false;                      // the mean replaces empty cells
  // The statistics of each channel (innermost dimension) of each f32 input that is not a table.
  std::vector<std::pair<std::string, std::vector<Statistics>>> channels = {};
  std::vector<std::string> class_names = {};  // of the labels 0, 1, …; may be empty

  bool fitted() const { return normalized || fills; }
  // Returns true if there is more than class names, which earlier versions stored alone.
  bool recorded() const { return !columns.empty() || !channels.empty(); }
  bool has_header() const { return !columns.empty() && !columns.front().name.empty(); }
  // Returns the source column of each input in the f32 field; -1 for inputs of categories and marks
  // of empty cells.
  std::vector<int> number_columns() const;
  // Returns the name of each of these inputs for messages: "column 'grade', category 'A'".
  std::vector<std::string> input_names() const;
};

// Returns the name of the category or class that a text stands for: that of `10.0` is `10`, because
// programs write whole numbers in both ways.
std::string_view category_text(std::string_view text, char decimal_mark = '.');

// JSON without the class names, which state.json stores separately; "" if there is nothing else.
// schema_from_json() throws Error(storage) at `location`.
std::string to_json(const DataSchema& schema);
DataSchema schema_from_json(const std::string& json, const std::string& location);

// Describes the first difference between two schemas in one sentence; empty if they are equivalent.
std::string schema_difference(const DataSchema& a, const DataSchema& b);
// Returns true if two schemas differ in the mean or std of inputs and in nothing else.
bool only_statistics_differ(DataSchema a, DataSchema b);

// Options for opening data.
struct OpenOptions {
  // The schema of the trained model; null: it is fitted to the training split.
  std::shared_ptr<const DataSchema> trained = nullptr;
  bool targets = true;  // the data must have targets; false: for predictions
  bool fit = true;      // false: no `normalize: auto`, empty cells are NaN
};

}  // namespace dltrain
