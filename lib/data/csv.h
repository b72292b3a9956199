// Tables in CSV files, plain or gzip: one sample per line, one column is the target.
//
// Columns are numbers or categories (texts), depending on their cells; empty lines are skipped. The
// schema of the training file (data/schema.h) has the columns, categories and classes by which
// later files are read. Labels are integers from 0 (written `3` or `3.0`), -100 for samples that
// the loss ignores, or names: texts, and numbers that do not count from 0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/csv_reader.h"
#include "data/dataset.h"
#include "data/scaling.h"
#include "data/schema.h"

namespace dltrain {

inline constexpr const char* kCategoriesField = "categories";

// The treatment of empty cells: an error; the mean of the column, or a separate category for texts;
// the same with a further input that is 1 for empty cells.
enum class EmptyCells : uint8_t { error, mean, category };

// Columns are identified by their name in the header or by their number from 0.
struct CsvOptions {
  std::string path = {};
  CsvHints hints = {};
  std::string target = "last";                           // last | first | a column | none
  bool regression = false;                               // the target is a number, not a label
  std::optional<int64_t> classes = {};                   // labels must be below this
  std::optional<std::vector<std::string>> columns = {};  // the inputs; absent: all other columns
  std::vector<std::string> ignore = {};
  std::vector<std::string> categories = {};  // categories even if their cells are numbers
  bool embedded = false;                     // categories are ids instead of one input each
  EmptyCells empty = EmptyCells::error;
  std::optional<std::vector<int64_t>> shape = {};  // of a sample's inputs; default [columns]
  Scaling scaling = {};                            // of the numeric inputs
  // Data rows [first, last) from 0, without the header. Other rows are not read.
  std::optional<std::array<int64_t, 2>> rows = {};
};

// Reads the rows into memory, by the schema `how.trained` if it has columns. Throws Error(data)
// with file, line and column of all invalid cells. Empty numbers are NaN in the inputs if `empty`
// allows them; data/fitted.h fills them.
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const OpenOptions& how = {});

// Reads a file that `open` opens.
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const LineSource& open,
                                        const OpenOptions& how = {});

}  // namespace dltrain
