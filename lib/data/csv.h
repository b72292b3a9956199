// Numeric CSV files, plain or gzip: one sample a line, one column of which is the target.
//
// Every value must be a finite number; a header line is allowed when it is announced, blank lines
// are skipped. All lines have the same number of columns. Labels are whole numbers from 0 (written
// `3` or `3.0`), or -100 where the loss shall not look.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/line_reader.h"
#include "data/scaling.h"

namespace dltrain {

struct CsvOptions {
  std::string path = {};
  std::string delimiter = ",";  // one character
  bool header = false;          // the first line has names
  // last | first | a column number from 0 | a name of the header | none: all columns are inputs
  std::string target = "last";
  bool regression = false;                         // the target is a number, not a label
  std::optional<int64_t> classes = {};             // labels must be below this
  std::optional<std::vector<int64_t>> shape = {};  // of a sample's inputs; default [columns]
  Scaling scaling = {};                            // of the inputs
  // Data rows [first, last), from 0, without the header. Rows outside are not read.
  std::optional<std::array<int64_t, 2>> rows = {};
};

// Reads the whole file (or the rows asked for) into memory. Throws Error(data) naming file, line
// and column; Error(usage) for options that cannot be right whatever the file holds.
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options);

// The same from lines that come from elsewhere.
std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, LineReader& lines);

}  // namespace dltrain
