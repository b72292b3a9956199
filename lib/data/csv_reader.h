// Reads the records of a CSV file (RFC 4180): cells between delimiters, in double quotes if they
// contain delimiters, line ends or quotes. Detects the dialect from the first lines: the delimiter,
// the header, and the decimal mark.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/line_reader.h"

namespace dltrain {

// Opens the file from its beginning.
using LineSource = std::function<LineReader()>;

// The parts of the dialect that the configuration sets; the others are detected.
struct CsvHints {
  std::optional<std::string> delimiter = {};  // one character; a blank means any number of blanks
  std::optional<std::string> decimal = {};    // "." or ","
  std::optional<bool> header = {};
};

struct CsvDialect {
  char delimiter = ',';
  bool decimal_comma = false;
  bool header = false;
  int64_t skipped = 0;  // lines before the header ("sep=;")

  char mark() const { return decimal_comma ? ',' : '.'; }  // of decimals
};

// Throws Error(data) for workbooks and UTF-16, and if the first line may be a header or data.
CsvDialect find_dialect(const LineSource& open, const CsvHints& hints);
// Returns advice about a table whose first line is a title instead of a header; or an empty text.
std::string advise_title(const LineSource& open);

class CsvReader {
 public:
  using Cells = std::vector<std::string_view>;

  // Opens a file and skips the lines before the header.
  CsvReader(const LineSource& open, char delimiter, int64_t skipped)
      : lines_(open()), delimiter_(delimiter) {
    for (int64_t i = 0; i < skipped; ++i) lines_.next();
  }

  // Returns the cells of the next record, without blanks around them, or null at the end; skips
  // blank lines. They are valid until the next call. Throws Error(data) for a quote that is not
  // closed or is followed by text.
  const Cells* next();
  // The same; throws Error(data) for text that is not UTF-8.
  const Cells* next_text();
  // Calls first(cells) for the first record, which is the header if there is one, and row(cells)
  // for the data rows in [rows[0], rows[1]). Throws Error(data) if the file is empty. Returns the
  // number of data rows up to the last one read.
  int64_t read_table(bool header, const std::optional<std::array<int64_t, 2>>& rows,
                     const std::function<void(const Cells&)>& first,
                     const std::function<void(const Cells&)>& row);

  int64_t line() const { return line_; }  // the line in which the record began
  std::string location() const;
  const std::string& name() const { return lines_.name(); }

 private:
  void split_plain(std::string_view line);
  void split_quoted(std::string line);

  LineReader lines_;
  char delimiter_;
  int64_t line_ = 0;
  std::string text_;  // of the cells of a record with quotes
  std::vector<std::pair<size_t, size_t>> ends_;
  Cells cells_;
};

// Returns true for an empty cell and for the words that pandas, R and UCI write for missing values.
bool is_missing(std::string_view cell);

// Returns the number in a cell, which may be infinite, or nothing if it is not a number.
std::optional<double> csv_number(std::string_view cell, bool decimal_comma);

}  // namespace dltrain
