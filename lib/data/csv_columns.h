// Determines the columns of a CSV file from all of its cells.
#pragma once

#include "data/csv.h"

namespace dltrain {

// Returns the names in the header, or empty names if there is no header. A column without a name
// gets the name that pandas gives it: 'Unnamed: 0'.
std::vector<std::string> column_names(const CsvReader::Cells& first, bool header);

// Returns "column 'age'" or "column 3" for messages.
std::string shown_column(const std::vector<std::string>& names, size_t column);
// The length to which messages cut values (shown_line() of base/utf8.h).
inline constexpr size_t kShownCell = 40;

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
  bool empty = false;                                       // the inputs have empty cells
  bool number = false;                                      // the target is a number
  double mean = 0, std = 1;                                 // of such a target
};

// `target` is that of CsvOptions.
CsvProposal propose_csv(const std::string& path, const std::string& target);

}  // namespace dltrain
