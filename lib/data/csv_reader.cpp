#include "data/csv_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"

namespace dltrain {
namespace {

constexpr size_t kMaxQuoted = 64 << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

bool is_missing(std::string_view cell) {
  if (cell.empty()) return true;
  if (cell.size() > 5 || (cell.front() >= '0' && cell.front() <= '9')) return false;
  static constexpr std::string_view kWords[] = {"?",    "NA",   "N/A",  "#N/A", "#NA",  "n/a",
                                                "nan",  "NaN",  "NAN",  "-nan", "-NaN", "null",
                                                "NULL", "Null", "None", "<NA>"};
  return std::find(std::begin(kWords), std::end(kWords), cell) != std::end(kWords);
}

std::optional<double> csv_number(std::string_view cell, bool decimal_comma) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  char with_point[64];
  const size_t mark = decimal_comma ? cell.find_first_of(".,") : std::string_view::npos;
  if (mark != std::string_view::npos) {
    if (cell.size() > sizeof with_point || cell[mark] == '.') return {};
    std::copy(cell.begin(), cell.end(), with_point);
    with_point[mark] = '.';
    cell = {with_point, cell.size()};
  }
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [parsed, error] = std::from_chars(cell.data(), end, value);
  if (cell.empty() || parsed != end) return {};
  // Infinite, or 0.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(cell).c_str(), nullptr);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::string CsvReader::location() const {
  return fmt::format("{}:{}", lines_.name(), line_);
}

const CsvReader::Cells* CsvReader::next() {
  while (const auto line = lines_.next()) {
    line_ = lines_.line();
    cells_.clear();
    if (line->find('"') == std::string_view::npos) {
      split_plain(*line);
      if (cells_.size() == 1 && cells_[0].empty()) continue;
    } else {
      split_quoted(std::string(*line));
    }
    return &cells_;
  }
  return nullptr;
}

const CsvReader::Cells* CsvReader::next_text() {
  const Cells* cells = next();
  for (size_t i = 0; cells != nullptr && i < cells->size(); ++i) {
    if (!find_invalid_utf8((*cells)[i])) continue;
    throw Error(ExitCode::data,
                fmt::format("'{}' is not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8)",
                            shown_line((*cells)[i], 40)),
                fmt::format("{} (column {})", location(), i + 1));
  }
  return cells;
}

int64_t CsvReader::read_table(bool header, const std::optional<std::array<int64_t, 2>>& rows,
                              const std::function<void(const Cells&)>& first,
                              const std::function<void(const Cells&)>& row) {
  const Cells* cells = next_text();
  if (cells == nullptr) throw Error(ExitCode::data, "has no data", name());
  first(*cells);
  if (header) cells = next_text();
  const auto [begin, end] = rows.value_or(std::array<int64_t, 2>{0, INT64_MAX});
  int64_t count = 0;
  for (; cells != nullptr && count < end; ++count) {
    if (count >= begin) row(*cells);
    if (count + 1 < end) cells = next_text();
  }
  return count;
}

void CsvReader::split_plain(std::string_view line) {
  if (delimiter_ == ' ') line = trim_blanks(line);
  while (true) {
    const size_t end = delimiter_ == ' ' ? line.find_first_of(" \t") : line.find(delimiter_);
    cells_.push_back(trim_blanks(line.substr(0, end)));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
    if (delimiter_ == ' ') line = trim_blanks(line);
  }
}

// Assembles the cells in text_, because quoted text need not be contiguous in a line.
void CsvReader::split_quoted(std::string line) {
  text_.clear();
  ends_.clear();
  size_t at = 0;
  const bool by_blanks = delimiter_ == ' ';
  const auto skip_blanks = [&] {
    while (at < line.size() && is_blank(line[at]) && (by_blanks || line[at] != delimiter_)) ++at;
  };
  while (true) {
    skip_blanks();
    const size_t begin = text_.size();
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) {
          const auto more = lines_.next();
          if (!more || text_.size() + more->size() > kMaxQuoted) {
            throw Error(ExitCode::data, "a quote that begins in this record is not closed",
                        location());
          }
          text_ += '\n';
          line = *more;
          at = static_cast<size_t>(-1);
        } else if (line[at] != '"') {
          text_ += line[at];
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          text_ += line[at++];
        } else {
          break;
        }
      }
      ++at;
    } else {
      const size_t end = by_blanks ? line.find_first_of(" \t", at) : line.find(delimiter_, at);
      text_ += trim_blanks(std::string_view(line).substr(at, end - at));
      at = std::min(end, line.size());
    }
    ends_.emplace_back(begin, text_.size());
    const size_t end = at;
    skip_blanks();
    if (at >= line.size()) break;
    if (by_blanks ? at == end : line[at] != delimiter_) {
      throw Error(ExitCode::data, "a closing quote is followed by text", location());
    }
    if (!by_blanks) ++at;
  }
  for (const auto& [begin, end] : ends_) {
    cells_.push_back(std::string_view(text_).substr(begin, end - begin));
  }
}

}  // namespace dltrain
