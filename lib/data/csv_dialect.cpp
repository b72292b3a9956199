// find_dialect: detects delimiter, header and decimal mark from the first records.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "data/csv_reader.h"
#include "data/thousands.h"

namespace dltrain {
namespace {

constexpr size_t kInspected = 200;  // records
// The likeliest comes first: text may have commas in every line, but rarely tabs or semicolons.
constexpr char kDelimiters[] = {'\t', ';', '|', ','};

using Records = std::vector<std::vector<std::string>>;

// Returns the first records, split by `delimiter`; fewer if the file is broken there.
Records first_records(const LineSource& open, char delimiter, int64_t skipped) {
  CsvReader reader(open, delimiter, skipped);
  Records out;
  try {
    while (out.size() < kInspected) {
      const auto* cells = reader.next();
      if (cells == nullptr) break;
      out.emplace_back(cells->begin(), cells->end());
    }
  } catch (const Error&) {
    // Reading the data reports the error.
  }
  return out;
}

// Returns the number of cells of all records, or 1 if they differ.
size_t common_width(const Records& records) {
  const auto same = [&](const auto& record) { return record.size() == records[0].size(); };
  return std::all_of(records.begin(), records.end(), same) ? records[0].size() : 1;
}

char find_delimiter(const LineSource& open) {
  char widest = ',';
  size_t width = 1;
  for (const char delimiter : kDelimiters) {
    const Records records = first_records(open, delimiter, 0);
    if (records.empty()) continue;
    if (records.size() > 1 && common_width(records) > 1) return delimiter;
    if (records[0].size() > width) {
      width = records[0].size();
      widest = delimiter;
    }
  }
  if (width > 1) return widest;
  const Records blanks = first_records(open, ' ', 0);
  return !blanks.empty() && common_width(blanks) > 1 ? ' ' : ',';
}

// Returns true for digits on both sides of one `mark`.
bool has_decimals(std::string_view cell, char mark) {
  const size_t at = cell.find(mark);
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (cell.starts_with('-') || cell.starts_with('+')) {
    return at != std::string_view::npos && has_decimals(cell.substr(1), mark);
  }
  return at != std::string_view::npos && digits(cell.substr(0, at)) && digits(cell.substr(at + 1));
}

bool find_decimal_comma(const Records& records, char delimiter) {
  if (delimiter == ',') return false;
  bool commas = false;
  for (const auto& record : records) {
    for (const std::string& cell : record) {
      if (has_decimals(cell, '.') && !may_separate_thousands(cell, '.')) return false;
      commas = commas || has_decimals(cell, ',');
    }
  }
  return commas;
}

// The type of the first cell of a column, if all other cells are numbers.
enum class FirstCell : uint8_t { name_of_numbers, a_number, neither };

FirstCell first_cell(const Records& records, size_t column, bool decimal_comma) {
  const auto is_number = [&](const std::string& cell) {
    return csv_number(cell, decimal_comma).has_value();
  };
  bool numbers = false;
  for (size_t row = 1; row < records.size(); ++row) {
    if (column >= records[row].size() || is_missing(records[row][column])) continue;
    if (!is_number(records[row][column])) return FirstCell::neither;
    numbers = true;
  }
  const std::string& first = records[0][column];
  if (!numbers || is_missing(first)) return FirstCell::neither;
  return is_number(first) ? FirstCell::a_number : FirstCell::name_of_numbers;
}

// Returns true if the names of text columns differ and none occurs again in its column.
bool looks_like_names(const Records& records) {
  const std::set<std::string> names(records[0].begin(), records[0].end());
  if (names.size() < records[0].size()) return false;
  for (size_t row = 1; row < records.size(); ++row) {
    for (size_t i = 0; i < std::min(records[row].size(), records[0].size()); ++i) {
      if (records[row][i] == records[0][i]) return false;
    }
  }
  return true;
}

// Returns true for 0, 1, 2, …, the names that pandas gives to columns without names.
bool counts_up(const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] != std::to_string(i)) return false;
  }
  return cells.size() > 2;
}

// Returns true if the numbers count up by one or are years, like those of a header.
bool may_be_numbered_names(const std::vector<std::string>& cells, bool decimal_comma) {
  bool counts = true, years = true;
  std::vector<double> numbers;
  for (const std::string& cell : cells) {
    const auto number = csv_number(cell, decimal_comma);
    if (!number) continue;
    if (cell.find_first_not_of("0123456789") != std::string::npos) return false;
    counts = counts && (numbers.empty() || *number == numbers.back() + 1);
    years = years && *number >= 1900 && *number <= 2100;
    numbers.push_back(*number);
  }
  return numbers.size() > 1 && (counts || years);
}

bool find_header(const Records& records, bool decimal_comma, const std::string& location) {
  const std::vector<std::string>& first = records[0];
  size_t named = first.size(), number = first.size(), text = first.size();
  bool texts_only = true;
  for (size_t i = 0; i < first.size(); ++i) {
    const FirstCell is = first_cell(records, i, decimal_comma);
    if (is == FirstCell::name_of_numbers) named = std::min(named, i);
    if (is == FirstCell::a_number) number = std::min(number, i);
    const bool is_text = !csv_number(first[i], decimal_comma);
    texts_only = texts_only && is_text;
    if (is_text && !is_missing(first[i])) text = std::min(text, i);
  }
  const bool pandas_index = first.size() > 2 && first[0].empty() && first[1] == "0";
  if (pandas_index) return true;
  if (named == first.size() && may_be_numbered_names(first, decimal_comma) &&
      looks_like_names(records)) {
    named = text;
  }
  const bool unclear =
      (named < first.size() && number < first.size()) || (records.size() > 1 && counts_up(first));
  if (unclear) {
    throw Error(ExitCode::data,
                counts_up(first)
                    ? "this line may be data or the numbers of the columns; set `header: true` or "
                      "`header: false`"
                    : fmt::format("'{}' looks like the name of a column, '{}' like data; set "
                                  "`header: true` or `header: false`",
                                  first[named].substr(0, 40), first[number].substr(0, 40)),
                location);
  }
  if (named < first.size()) return true;
  return number == first.size() && texts_only && looks_like_names(records);
}

void refuse_other_formats(std::string_view first_line, const std::string& name) {
  if (first_line.starts_with("PK\x03\x04") || first_line.starts_with("\xD0\xCF\x11\xE0")) {
    throw Error(ExitCode::data,
                "is a workbook (Excel, LibreOffice) or an archive; save the sheet as CSV", name);
  }
  if (looks_like_utf16(first_line)) {
    throw Error(ExitCode::data, "is UTF-16; save it as UTF-8 (in Excel: CSV UTF-8)", name);
  }
}

}  // namespace

std::string advise_title(const LineSource& open) {
  for (const char delimiter : kDelimiters) {
    const Records records = first_records(open, delimiter, 0);
    size_t titles = 0;
    while (titles < records.size() && records[titles].size() == 1) ++titles;
    const Records table(records.begin() + static_cast<std::ptrdiff_t>(titles), records.end());
    if (table.size() < 2 || common_width(table) < 2) continue;
    return fmt::format(
        "; the lines below have {} columns{}: remove those above the header", table[0].size(),
        delimiter == ',' || delimiter == '\t' ? "" : fmt::format(" with '{}'", delimiter));
  }
  return {};
}

CsvDialect find_dialect(const LineSource& open, const CsvHints& hints) {
  CsvDialect out;
  LineReader lines = open();
  if (const auto first = lines.next()) {
    refuse_other_formats(*first, lines.name());
    if (first->size() == 5 && first->starts_with("sep=")) {
      out.skipped = 1;
      out.delimiter = first->back();
    }
  }
  if (hints.delimiter) {
    out.delimiter = hints.delimiter->front();
  } else if (out.skipped == 0) {
    out.delimiter = find_delimiter(open);
  }
  const Records records = first_records(open, out.delimiter, out.skipped);
  out.decimal_comma =
      hints.decimal ? *hints.decimal == "," : find_decimal_comma(records, out.delimiter);
  if (hints.header) {
    out.header = *hints.header;
  } else if (!records.empty()) {
    CsvReader reader(open, out.delimiter, out.skipped);
    reader.next_text();
    out.header = find_header(records, out.decimal_comma, reader.location());
  }
  return out;
}

}  // namespace dltrain
