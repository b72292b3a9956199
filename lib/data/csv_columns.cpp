#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/utf8.h"
#include "config/suggest.h"
#include "data/csv.h"
#include "data/thousands.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

constexpr size_t kFewTexts = 20;         // so few are always categories
constexpr int64_t kFewFractions = 20;    // among labels; each is told by its place
constexpr int64_t kManyRows = 10;        // a column that counts them is hardly an input
constexpr size_t kMaxCategories = 1000;  // unless `categories` names the column
constexpr size_t kMaxRemembered = 100000;

struct ColumnScan {
  int64_t numbers = 0, texts = 0, empty = 0, dates = 0, marked = 0;
  int64_t fractions = 0;        // numbers that are no integers
  bool counts_up = true;        // each number is the previous one plus one
  std::string code;             // a number with zeros before it, such as 01067
  double sum = 0, squares = 0;  // of numbers
  double previous = 0, least = std::numeric_limits<double>::infinity(), greatest = -least;
  bool dates_rise = true;  // no date is before the previous one, as text
  std::string last_date;
  // The frequency of each text; for targets and columns of categories also of numbers.
  std::unordered_map<std::string, int64_t> values;
  std::string example;  // a text
  ThousandsMarks thousands;

  int64_t filled() const { return numbers + texts; }
  bool is_numbers() const { return numbers >= texts; }
};

// Returns true for 2024-01-31, 31.1.2024, 1/31/24, with or without a time, and for 12:30.
bool looks_like_a_date(std::string_view text) {
  const std::string_view day = text.substr(0, text.find_first_of(" T"));
  int64_t digits = 0, marks = 0;
  for (const char c : day) {
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c == '-' || c == '/' || c == '.' || c == ':') {
      ++marks;
    } else {
      return false;
    }
  }
  const bool time = day.find(':') != std::string_view::npos;
  return digits >= 3 && digits <= 8 && (marks == 2 || (time && marks == 1));
}

// Returns true for a number with other characters: 1,234.50, $ 12, 7 %, 1.000,50.
bool looks_like_a_marked_number(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return std::none_of(text.begin(), text.end(), is_letter) &&
         text.find_first_of("0123456789") != std::string_view::npos;
}

bool is_called_id(const std::string& name) {
  const std::string lower = lower_ascii(name);
  return lower.ends_with("id") || lower == "index" || lower == "row" || lower == "nr" ||
         lower == "no" || lower.starts_with("unnamed: ");
}

// Returns true for digits that begin with a zero, as those of postal codes.
bool looks_like_a_code(std::string_view text) {
  return text.size() > 1 && text.front() == '0' &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string> sorted_values(const ColumnScan& scan) {
  std::vector<std::string> out;
  for (const auto& [value, count] : scan.values) out.push_back(value);
  sort_values(out);
  return out;
}

class ColumnFitter {
 public:
  ColumnFitter(const CsvOptions& options, const LineSource& open, const CsvDialect& dialect)
      : options_(options),
        open_(open),
        dialect_(dialect),
        reader_(open, dialect.delimiter, dialect.skipped) {}

  DataSchema fit() {
    look();
    finish_notes();
    for (const auto& [column, warning] : warnings_) warn_once(reader_.name() + ": " + warning);
    return std::move(schema_);
  }

  CsvProposal propose() {
    look();
    if (!target_) fail(ExitCode::usage, "a table without a target has no value to predict");
    const size_t target = *target_;
    const ColumnScan& s = scans_[target];
    CsvProposal out{.target = names_[target].empty() ? std::to_string(target) : names_[target],
                    .ignore = {},
                    .left_out = left_out_,
                    .untargeted = s.empty,
                    .number = s.is_numbers() && s.fractions > 0};
    for (const auto& [column, problem] : diagnostics_) {
      if (column == target) {
        if (!s.is_numbers()) throw Error(ExitCode::data, problem, reader_.name());
        out.number = true;
        continue;
      }
      const ColumnScan& other = scans_[column];
      const bool dates = 2 * other.dates >= other.texts;
      out.dates = out.dates || dates;
      out.sorted = out.sorted || (dates && other.dates_rise && other.values.size() > 1);
      const std::string name = names_[column].empty() ? std::to_string(column) : names_[column];
      if (out.ignore.empty() || out.ignore.back().first != name)
        out.ignore.emplace_back(name, problem);
    }
    for (const auto& [column, warning] : warnings_) {
      if (scans_[column].counts_up) out.ignore.emplace_back(names_[column], warning);
    }
    const double count = std::max<double>(1, static_cast<double>(s.numbers));
    const double variance = s.squares / count - s.sum / count * (s.sum / count);
    out.mean = s.sum / count;
    out.std = variance > 0 ? std::sqrt(variance) : 1;
    for (size_t i = 0; i < scans_.size(); ++i) {
      const bool input = i != target && schema_.columns[i].kind != Kind::ignored;
      const bool refused = std::any_of(diagnostics_.begin(), diagnostics_.end(),
                                       [&](const auto& problem) { return problem.first == i; });
      out.empty = out.empty || (input && !refused && scans_[i].empty > 0);
      if (i == target ? out.number : schema_.columns[i].kind == Kind::number) {
        scans_[i].thousands.warn(reader_.name() + ": " + shown_column(names_, i),
                                 dialect_.delimiter);
      }
    }
    return out;
  }

 private:
  using Kind = ColumnSchema::Kind;

  void read() {
    rows_ = 0;
    reader_.read_table(
        dialect_.header, options_.rows, [&](const auto& cells) { begin(cells); },
        [&](const auto& cells) { scan(cells); });
  }

  void look() {
    read();
    // A second reading collects the numbers in columns of texts, which are categories too.
    bool again = false;
    for (size_t i = 0; i < scans_.size(); ++i) {
      const bool used = !ignored_[i] && (!options_.columns || kept_[i]) && !options_.shape;
      if (counted_[i] || !used || scans_[i].numbers == 0 || scans_[i].is_numbers()) continue;
      counted_[i] = again = true;
    }
    if (again) {
      reader_ = CsvReader(open_, dialect_.delimiter, dialect_.skipped);
      read();
    }
    for (size_t i = 0; i < names_.size(); ++i) decide(i);
    if (!target_) return;
    const ColumnScan& target = scans_[*target_];
    if (!options_.regression) {
      find_classes(target);
    } else if (!target.is_numbers() && 2 * target.marked < target.texts) {
      add_diagnostic(*target_,
                     fmt::format("the target {} has texts ('{}'), but this loss needs numbers: to "
                                 "predict classes use a loss such as cross_entropy",
                                 shown_column(names_, *target_), target.example));
    }
  }

  void begin(const CsvReader::Cells& cells) {
    location_ = reader_.location();
    names_ = column_names(cells, dialect_.header);
    std::set<std::string_view> known;
    for (const std::string& name : names_) {
      if (dialect_.header && !known.insert(name).second) refuse_twice(name, location_);
    }
    if (names_.size() < 2 && options_.target != "none") {
      throw Error(
          ExitCode::data,
          fmt::format(
              "has one column, but needs inputs and a target separated by '{}' (set "
              "`delimiter` for another character){}",
              dialect_.delimiter == '\t' ? std::string("\\t") : std::string(1, dialect_.delimiter),
              advise_title(open_)),
          location_);
    }
    target_ = find_target();
    kept_ = mark(options_.columns.value_or(std::vector<std::string>()));
    ignored_ = mark(options_.ignore);
    categories_ = mark(options_.categories);
    scans_.assign(names_.size(), {});
    if (counted_.empty()) {
      counted_ = categories_;
      if (target_) counted_[*target_] = true;
    }
    schema_.embedded = options_.embedded;
  }

  size_t find(const std::string& name) const {
    return find_column(names_, name, dialect_.header, location_);
  }

  std::optional<size_t> find_target() const {
    if (options_.target == "none") return {};
    if (options_.target == "last") {
      // A separator at the end of each line creates a column without a name.
      size_t last = names_.size() - 1;
      while (last > 0 && names_[last].starts_with("Unnamed: ")) --last;
      return last;
    }
    return options_.target == "first" ? 0 : find(options_.target);
  }

  std::vector<bool> mark(const std::vector<std::string>& columns) const {
    std::vector<bool> out(names_.size());
    for (const std::string& name : columns) out[find(name)] = true;
    return out;
  }

  void scan(const CsvReader::Cells& cells) {
    ++rows_;
    for (size_t i = 0; i < std::min(cells.size(), names_.size()); ++i) {
      ColumnScan& s = scans_[i];
      const std::string_view cell = cells[i];
      if (is_missing(cell)) {
        ++s.empty;
        continue;
      }
      const auto number = csv_number(cell, dialect_.decimal_comma);
      if (number) {
        s.counts_up = s.counts_up && (s.numbers == 0 || *number == s.previous + 1);
        if (s.code.empty() && looks_like_a_code(cell)) s.code = cell;
        s.fractions += *number != std::floor(*number);
        s.previous = *number;
        ++s.numbers;
        s.sum += *number;
        s.squares += *number * *number;
        if (*number != kIgnoredLabel) {
          s.least = std::min(s.least, *number);
          s.greatest = std::max(s.greatest, *number);
        }
        s.thousands.add(cell, dialect_.mark());
        if (!counted_[i]) continue;
      } else {
        ++s.texts;
        if (looks_like_a_date(cell)) {
          ++s.dates;
          // Texts that begin with the year are in the order of time.
          s.dates_rise =
              s.dates_rise && cell.find_first_not_of("0123456789") == 4 && s.last_date <= cell;
          s.last_date = cell;
        }
        s.marked += looks_like_a_marked_number(cell);
        if (s.example.empty()) s.example = shown_line(cell, kShownCell);
      }
      if (s.values.size() < kMaxRemembered)
        ++s.values[std::string(category_text(cell, dialect_.mark()))];
    }
  }

  void decide(size_t i) {
    ColumnSchema column{.name = names_[i]};
    column.kind = kind_of(i);
    const ColumnScan& s = scans_[i];
    column.marks_empty =
        s.empty > 0 && ((options_.empty == EmptyCells::category && column.kind == Kind::number) ||
                        (options_.empty != EmptyCells::error && column.kind == Kind::category));
    if (column.kind == Kind::category) {
      column.categories = sorted_values(s);
    }
    schema_.columns.push_back(std::move(column));
  }

  Kind kind_of(size_t i) {
    const ColumnScan& s = scans_[i];
    if (i == target_) return Kind::target;
    if (ignored_[i] || (options_.columns && !kept_[i])) return Kind::ignored;
    if (categories_[i]) return Kind::category;
    if (rows_ > 0 && s.filled() == 0 && !kept_[i]) return leave_out(i, "is empty");
    if (s.is_numbers()) {
      if (kept_[i]) return Kind::number;
      const bool numbers_rows = dialect_.header && s.counts_up && s.texts == 0 && s.numbers > 2;
      if (numbers_rows && is_called_id(names_[i])) return leave_out(i, "numbers the rows");
      if (numbers_rows && s.numbers >= kManyRows) {
        add_warning(i, "counts the rows, so it may tell the target of sorted rows: set `ignore`");
      } else if (!s.code.empty() && !options_.shape) {
        add_warning(i,
                    fmt::format("has codes such as '{}' and is read as numbers: set `categories` "
                                "if each is a category, or `ignore`",
                                s.code));
      }
      return Kind::number;
    }
    if (options_.shape) return Kind::number;  // texts are errors then
    const size_t different = s.values.size();
    const auto words = static_cast<size_t>(std::ranges::count_if(s.values, [&](const auto& value) {
      return !csv_number(value.first, dialect_.decimal_comma);
    }));
    if (2 * s.dates >= s.texts) {
      add_diagnostic(i,
                     fmt::format("{} has dates or times ('{}'), which are not supported: convert "
                                 "them to numbers (year, month, days since a start), or set "
                                 "`ignore`",
                                 shown_column(names_, i), s.example));
    } else if (different > kFewTexts && 2 * s.marked >= s.texts) {
      add_diagnostic(i,
                     fmt::format("{} has numbers with other characters ('{}'): write them without "
                                 "thousands separators, currencies and units, or set `ignore`{}",
                                 shown_column(names_, i), s.example, advise_decimal(s.example)));
    } else if (words <= kFewTexts && different - words > kFewTexts) {
      add_diagnostic(i,
                     fmt::format("{} has {} different numbers, and texts ('{}') in {} rows: leave "
                                 "these cells empty, or set `ignore` or `categories`",
                                 shown_column(names_, i), different - words, s.example, s.texts));
    } else if (static_cast<int64_t>(words) == s.texts && words > kFewTexts && !kept_[i]) {
      return leave_out(i, fmt::format("has a different text in every row ('{}')", s.example));
    } else if (different > kMaxCategories ||
               (different > kFewTexts && 2 * static_cast<int64_t>(different) > s.filled())) {
      add_diagnostic(i, fmt::format("{} has {} different texts in {} rows ('{}'): set `ignore`, or "
                                    "`categories` if each is a category",
                                    shown_column(names_, i), different, s.filled(), s.example));
    }
    return Kind::category;
  }

  // Returns advice about a text that is a number with the other decimal mark.
  std::string advise_decimal(const std::string& text) const {
    if (!csv_number(text, !dialect_.decimal_comma)) return {};
    return dialect_.decimal_comma ? "; if the point is the decimal mark, set `decimal: \".\"`"
                                  : "; if the comma is the decimal mark, set `decimal: \",\"`";
  }

  // Keeps the first problem of a column.
  void add_diagnostic(size_t column, const std::string& problem) {
    if (diagnostics_.empty() || diagnostics_.back().first != column)
      diagnostics_.emplace_back(column, problem);
  }

  void add_warning(size_t i, const std::string& what) {
    warnings_.emplace_back(i, fmt::format("{} {}", shown_column(names_, i), what));
  }

  Kind leave_out(size_t i, const std::string& why) {
    left_out_.push_back(fmt::format("{} {}", shown_column(names_, i), why));
    return Kind::ignored;
  }

  // Numbers that count from 0 without many gaps are labels themselves. Codes (01, 02) are texts.
  void find_classes(const ColumnScan& s) {
    const std::string name = shown_column(names_, *target_);
    const bool numbers = s.is_numbers() && s.code.empty();
    if (s.is_numbers() && s.fractions > kFewFractions && 2 * s.fractions > s.numbers) {
      add_diagnostic(
          *target_, fmt::format("the target {} has numbers that are no integers ({} of {}), and so "
                                "no labels: to predict a number use a loss such as mse, or set "
                                "`task: regression`",
                                name, s.fractions, s.numbers));
    }
    if (s.is_numbers() && (options_.classes || s.fractions > 0)) return;
    const auto different = static_cast<double>(s.values.size());
    if (numbers && (s.numbers == 0 || (s.least == 0 && s.greatest < 2 * different))) return;
    // A label -1 before labels from 0 marks ignored samples and is not a class.
    if (numbers && s.least == -1 && s.greatest > 1 && s.values.contains("0")) return;
    const size_t rows_for_each = s.is_numbers() ? 10 : 2;
    if (s.values.size() > kMaxClassNames &&
        rows_for_each * s.values.size() > static_cast<size_t>(s.filled())) {
      add_diagnostic(
          *target_,
          s.is_numbers()
              ? fmt::format("the target {} has {} different numbers ({} to {}) in {} rows: to "
                            "predict a number use a loss such as mse; if they are labels, set "
                            "`classes`",
                            name, s.values.size(), s.least, s.greatest, s.filled())
              : fmt::format("the target {} has {} different texts in {} rows ('{}'), too many for "
                            "classes{}",
                            name, s.values.size(), s.filled(), s.example,
                            advise_decimal(s.example)));
      return;
    }
    for (const std::string& value : sorted_values(s)) {
      const auto number = csv_number(value, dialect_.decimal_comma);
      if (number && *number == kIgnoredLabel) continue;
      // The same label may be written `3` or `3.0`.
      std::string text = number && numbers ? fmt::format("{:.0f}", *number) : value;
      if (schema_.class_names.empty() || schema_.class_names.back() != text) {
        schema_.class_names.push_back(std::move(text));
      }
    }
    if (options_.classes && static_cast<int64_t>(schema_.class_names.size()) > *options_.classes) {
      add_diagnostic(*target_, fmt::format("the target {} has {} classes, but `classes` is {}",
                                           name, schema_.class_names.size(), *options_.classes));
    }
  }

  void finish_notes() {
    if (diagnostics_.size() == 1)
      throw Error(ExitCode::data, diagnostics_[0].second, reader_.name());
    if (!diagnostics_.empty()) {
      std::string text = fmt::format("{} columns cannot be used as they are:", diagnostics_.size());
      for (const auto& [column, problem] : diagnostics_) text += "\n  " + problem;
      throw Error(ExitCode::data, text, reader_.name());
    }
    for (const std::string& note : left_out_) {
      log_info("{}: {}: left out (data.columns can include it)", reader_.name(), note);
    }
  }

  const CsvOptions options_;
  const LineSource& open_;
  const CsvDialect dialect_;
  CsvReader reader_;
  std::string location_;
  std::vector<std::string> names_;
  std::optional<size_t> target_;
  int64_t rows_ = 0;  // scanned
  std::vector<bool> kept_, ignored_, categories_;
  std::vector<bool> counted_;  // columns whose numbers are values, too
  std::vector<ColumnScan> scans_;
  std::vector<std::pair<size_t, std::string>> diagnostics_;  // by column
  std::vector<std::pair<size_t, std::string>> warnings_;     // by column
  std::vector<std::string> left_out_;
  DataSchema schema_;
};

}  // namespace

std::vector<std::string> column_names(const CsvReader::Cells& first, bool header) {
  std::vector<std::string> out;
  for (size_t i = 0; i < first.size(); ++i) {
    const bool unnamed = header && first[i].empty();
    out.push_back(unnamed ? fmt::format("Unnamed: {}", i) : std::string(header ? first[i] : ""));
  }
  return out;
}

std::string shown_column(const std::vector<std::string>& names, size_t column) {
  return column < names.size() && !names[column].empty()
             ? fmt::format("column '{}'", shown_line(names[column], kShownCell))
             : fmt::format("column {}", column + 1);
}

std::optional<size_t> column_called(const std::vector<std::string>& names,
                                    const std::string& name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end() && !name.empty()) return static_cast<size_t>(it - names.begin());
  const auto index = parse_number<size_t>(name);
  return index && *index < names.size() ? index : std::nullopt;
}

size_t find_column(const std::vector<std::string>& names, const std::string& name, bool header,
                   const std::string& location) {
  if (const auto column = column_called(names, name)) return *column;
  if (const auto index = parse_number<int64_t>(name)) {
    throw Error(
        ExitCode::data,
        fmt::format("there is no column {}; the columns are 0 to {}", *index, names.size() - 1),
        location);
  }
  if (!header) {
    throw Error(ExitCode::data,
                fmt::format("'{}' is a name, but this line is not a header (set `header: true` if "
                            "it is); columns without names are numbers from 0",
                            name),
                location);
  }
  const std::string near = nearest_name(name, names);
  throw Error(ExitCode::data,
              fmt::format("the header has no column '{}'{}", name,
                          near.empty() ? "; it has " + join_names(names)
                                       : fmt::format("; did you mean '{}'?", near)),
              location);
}

void sort_values(std::vector<std::string>& values) {
  const auto number = [](const std::string& text) {
    const auto found = csv_number(text, false);
    return found && std::isnan(*found) ? std::nullopt : found;  // NaN has no place in an order
  };
  std::sort(values.begin(), values.end(), [&](const std::string& a, const std::string& b) {
    const auto x = number(a), y = number(b);
    if (x && y && *x != *y) return *x < *y;
    return x.has_value() != y.has_value() ? x.has_value() : a < b;
  });
}

void refuse_twice(const std::string& name, const std::string& location) {
  throw Error(ExitCode::data,
              fmt::format("two columns are called '{}'", shown_line(name, kShownCell)), location);
}

DataSchema fit_columns(const CsvOptions& options, const LineSource& open,
                       const CsvDialect& dialect) {
  return ColumnFitter(options, open, dialect).fit();
}

CsvProposal propose_csv(const std::string& path, const std::string& target) {
  const LineSource open = [&] { return LineReader{std::filesystem::path(path)}; };
  return ColumnFitter({.path = path, .target = target}, open, find_dialect(open, {})).propose();
}

}  // namespace dltrain
