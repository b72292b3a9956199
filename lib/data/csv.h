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

// The columns of a file, determined from all of its cells (csv_columns.cpp).

// Returns the names in the header, or empty names if there is no header. A column without a name
// gets the name that pandas gives it: 'Unnamed: 0'.
std::vector<std::string> column_names(const CsvReader::Cells& first, bool header);

// Returns "column 'age'" or "column 3" for messages.
std::string shown_column(const std::vector<std::string>& names, size_t column);
// The length to which messages cut values (shown_line() of base/utf8.h).
inline constexpr size_t kShownCell = 40;

// Returns the column with a name, or with a number from 0.
std::optional<size_t> column_called(const std::vector<std::string>& names, const std::string& name);
// The same; throws Error(data) at the first line if there is none.
size_t find_column(const std::vector<std::string>& names, const std::string& name, bool header,
                   const std::string& location);
// Sorts values: numbers, then texts.
void sort_values(std::vector<std::string>& values);
// More different texts than this are no classes if nearly every one is another.
inline constexpr size_t kMaxClassNames = 30;

[[noreturn]] void refuse_twice(const std::string& name, const std::string& location);

// Returns the schema of the training data: kinds of columns, categories, classes. Throws one
// Error(data) for all columns that cannot be inputs (dates, texts that are nearly all different).
// Logs the columns that it leaves out.
DataSchema fit_columns(const CsvOptions& options, const LineSource& open,
                       const CsvDialect& dialect);

// The settings for a file in a configuration of `dltrain init`.
struct CsvProposal {
  std::string target;                                       // its name, or its number
  std::vector<std::pair<std::string, std::string>> ignore;  // columns and reasons
  std::vector<std::string> left_out = {};                   // columns without a key, with reasons
  bool empty = false;                                       // the inputs have empty cells
  bool dates = false;                                       // `ignore` has columns of dates
  bool sorted = false;                                      // one of these dates never falls
  int64_t untargeted = 0;                                   // rows with an empty target
  bool number = false;                                      // the target is a number
  double mean = 0, std = 1;                                 // of such a target
};

// `target` is that of CsvOptions.
CsvProposal propose_csv(const std::string& path, const std::string& target);

}  // namespace dltrain
