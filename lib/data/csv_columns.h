// What the columns of a CSV file are, found from all of its cells.
#pragma once

#include "data/csv.h"

namespace dltrain {

// The names in the header; of a file without one as many empty names as it has columns. A column
// without a name is called as pandas calls it: 'Unnamed: 0'.
std::vector<std::string> column_names(const CsvReader::Cells& first, bool header);

// "'age'" or "column 3", as messages name a column.
std::string shown_column(const std::vector<std::string>& names, size_t column);
// A value as messages show it: short, and nothing that a terminal would obey.
std::string shown_cell(std::string_view text);

// The schema of the training data: kinds of columns, categories, classes. Throws Error(data) for
// columns that cannot be inputs as they are (dates, texts that are nearly all different), all at
// once. Says what it leaves out.
DataSchema fit_columns(const CsvOptions& options, const LineSource& open,
                       const CsvDialect& dialect);

// What a configuration should say of a file, for `dltrain init`.
struct CsvProposal {
  std::string target;                                       // its name, or its number
  std::vector<std::pair<std::string, std::string>> ignore;  // columns, and why
  bool empty = false;        // there are empty cells among the inputs
  bool number = false;       // the target is a number
  double mean = 0, std = 1;  // of such a target
};

// `target`: as CsvOptions has it.
CsvProposal propose_csv(const std::string& path, const std::string& target);

}  // namespace dltrain
