// Tables in CSV files, plain or gzip: one sample a line, one column of which is the target.
//
// Columns are numbers or categories (texts), told apart by their cells; empty lines are skipped.
// What a training file holds is its schema (data/schema.h), by whose names of columns, categories
// and classes later files are read. Labels are whole numbers from 0 (written `3` or `3.0`), -100
// where the loss shall not look, or names: texts, and numbers that do not count from 0.
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

// What an empty cell means: a mistake; the mean of the column, of texts a category of its own; the
// mean, and of its own category too: a further input that is 1 there.
enum class EmptyCells : uint8_t { error, mean, category };

// Columns are named by the header, or by their number from 0.
struct CsvOptions {
  std::string path = {};
  CsvHints hints = {};
  std::string target = "last";          // last | first | a column | none: there is no target
  bool regression = false;              // the target is a number, not a label
  std::optional<int64_t> classes = {};  // labels are numbers below this
  std::optional<std::vector<std::string>> columns = {};  // the inputs; absent: all others
  std::vector<std::string> ignore = {};
  std::vector<std::string> categories = {};  // are categories whatever their cells hold
  bool embedded = false;                     // categories are ids; false: one input each
  EmptyCells empty = EmptyCells::error;
  std::optional<std::vector<int64_t>> shape = {};  // of a sample's inputs; default [columns]
  Scaling scaling = {};                            // of the numbers among the inputs
  // Data rows [first, last), from 0, without the header. Rows outside are not read.
  std::optional<std::array<int64_t, 2>> rows = {};
};

// Reads the whole file (or the rows asked for) into memory, as `how.trained` says where that has
// columns. Throws Error(data) naming file, line and column, of all cells that cannot be read;
// Error(usage) for options that cannot be right whatever the file holds. Cells that are empty are
// NaN in the inputs where `empty` allows them (data/fitted.h fills them).
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const Opening& how = {});

// The same of a file that `open` opens.
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const LineSource& open,
                                        const Opening& how = {});

}  // namespace dltrain
