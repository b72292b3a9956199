// Finds columns of numbers whose decimal mark may separate thousands: they have no number with
// another count of decimals than three, and beside 6.811 also 937, or semicolons between the cells.
#pragma once

#include <string>
#include <string_view>

#include "data/warn_once.h"

namespace dltrain {

// Returns true for a number such as 1.234, whose decimal mark may separate thousands.
inline bool may_separate_thousands(std::string_view number, char mark) {
  if (number.starts_with('-') || number.starts_with('+')) number.remove_prefix(1);
  const size_t at = number.find(mark);
  return at >= 1 && at <= 3 && number.size() == at + 4 && number.front() != '0' &&
         number.find_first_of("eE") == std::string_view::npos;
}

class ThousandsMarks {
 public:
  // Adds a cell that is a number with this decimal mark.
  void add(std::string_view cell, char mark) {
    if (is_decimal_) return;
    if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
    if (cell.find(mark) == std::string_view::npos) {
      if (whole_.empty()) whole_ = cell;
      several_ = several_ || cell != whole_;  // one value may stand for missing numbers
      return;
    }
    is_decimal_ = !may_separate_thousands(cell, mark);
    if (example_.empty()) example_ = cell;
  }

  // Logs a warning that begins with `column`. Files with semicolons come from countries where
  // points separate thousands.
  void warn(const std::string& column, char delimiter) const {
    const bool doubtful = several_ || (whole_.empty() && delimiter == ';');
    if (is_decimal_ || !doubtful || example_.empty()) return;
    const char mark = example_[example_.size() - 4];
    warn_once(fmt::format(
        "{}: '{}' is read with '{}' as the decimal mark, but {} it looks like a thousands "
        "separator; if it is one, remove it from the file",
        column, example_, mark,
        whole_.empty() ? "before three digits in every cell"
                       : fmt::format("beside whole numbers such as '{}'", whole_)));
  }

 private:
  bool is_decimal_ = false, several_ = false;
  std::string example_, whole_;  // the first cells with and without the mark
};

}  // namespace dltrain
