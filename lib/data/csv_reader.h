// The records of a CSV file (RFC 4180): cells between delimiters, in double quotes where they hold
// delimiters, line ends or quotes. And what a file does not say of itself but its first lines show:
// the delimiter, whether there is a header, and how decimals are written.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/line_reader.h"

namespace dltrain {

// Opens the file from its beginning.
using LineSource = std::function<LineReader()>;

// What a person has said of a file; the rest is found.
struct CsvHints {
  std::optional<std::string> delimiter = {};  // one character; a blank stands for any number
  std::optional<std::string> decimal = {};    // "." or ","
  std::optional<bool> header = {};
};

struct CsvDialect {
  char delimiter = ',';
  bool decimal_comma = false;
  bool header = false;
  int64_t skipped = 0;  // lines before the header ("sep=;")
};

// Throws Error(data) for what is no text in UTF-8 (workbooks are named), and where the first line
// may be a header or data.
CsvDialect find_dialect(const LineSource& open, const CsvHints& hints);

class CsvReader {
 public:
  using Cells = std::vector<std::string_view>;

  CsvReader(LineReader lines, char delimiter) : lines_(std::move(lines)), delimiter_(delimiter) {}

  // The cells of the next record that has any text, without blanks around them, valid until the
  // next call; null at the end. Throws Error(data) for a quote that is not closed, or has text
  // behind it.
  const Cells* next();
  void skip_line() { lines_.next(); }

  int64_t line() const { return line_; }  // in which the record began
  std::string place() const;
  const std::string& name() const { return lines_.name(); }

 private:
  void split_plain(std::string_view line);
  void split_quoted(std::string line);
  [[noreturn]] void refuse(const std::string& message) const;

  LineReader lines_;
  char delimiter_;
  int64_t line_ = 0;
  std::string text_;  // of cells that were quoted
  std::vector<std::pair<size_t, size_t>> ends_;
  Cells cells_;
};

// A missing value: an empty cell, or one of the words that pandas, R and UCI write for it.
bool is_missing(std::string_view cell);

// The number in a cell, which may be infinite; nothing where it is none.
std::optional<double> csv_number(std::string_view cell, bool decimal_comma);

}  // namespace dltrain
