// What training fixes for all data that the model meets later: which columns a table has, the
// numbers of its categories and classes, and the statistics of the training split by which inputs
// are normalized. A checkpoint keeps it (state.json, docs/formats.md), and whatever opens data for
// a trained model passes it in an Opening.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dltrain {

struct Statistics {
  double mean = 0, std = 1;
};

struct ColumnSchema {
  enum class Kind : uint8_t { number, category, target, ignored };

  std::string name = {};  // of the header; empty where the file has none
  Kind kind = Kind::number;
  std::vector<std::string> categories = {};  // in the order of their inputs, or of their ids
  // Empty cells have a category of their own; of numbers, an input of their own that is 1 there.
  bool marks_empty = false;
  std::optional<Statistics> statistics = {};  // of numbers; absent: they are taken as they are
};

struct DataSchema {
  std::vector<ColumnSchema> columns = {};  // of a table, in the order of the file
  bool embedded = false;                   // categories are ids in the input `categories`
  bool normalized = false;  // inputs are (value - mean) / std; false: the mean fills empty cells
  bool fills = false;       // the mean stands for an empty cell
  // By f32 input that is no table: of each channel (the innermost dimension).
  std::vector<std::pair<std::string, std::vector<Statistics>>> channels = {};
  std::vector<std::string> class_names = {};  // of the labels 0, 1, …; empty where they have none

  bool fitted() const { return normalized || fills; }
  // Whether there is more than class names, which is all that earlier versions kept.
  bool recorded() const { return !columns.empty() || !channels.empty(); }
  bool has_header() const { return !columns.empty() && !columns.front().name.empty(); }
  // How many inputs the columns make in the f32 field, and for each the column it comes from where
  // that is a number (-1: a category, or the mark of an empty cell).
  std::vector<int> number_columns() const;
};

// JSON without the class names, which state.json has had before there were schemas; "" where there
// is nothing else. `from_json` throws Error(storage) naming `place`.
std::string to_json(const DataSchema& schema);
DataSchema schema_from_json(const std::string& json, const std::string& place);

// What differs between two schemas, as one sentence; empty where data means the same to both.
std::string schema_difference(const DataSchema& a, const DataSchema& b);

// How data is opened.
struct Opening {
  // Of the trained model that the data is for; null: it is fitted to the training split.
  std::shared_ptr<const DataSchema> trained = nullptr;
  bool targets = true;  // the data must have them; false: for predictions
  bool fit = true;      // false: without `normalize: auto`, and with NaN for empty cells
};

}  // namespace dltrain
