#include "data/csv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "config/suggest.h"
#include "data/classes.h"
#include "data/f32_rounding.h"
#include "data/memory_dataset.h"
#include "data/thousands.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxReported = 20;
constexpr int64_t kMaxLines = 8;  // of missing values in a column

// Collects errors of cells: the first ones with their places, missing values by column with their
// first lines.
class BadCells {
 public:
  void add(const std::string& location, const std::string& message) {
    if (++count_ <= kMaxReported) problems_.push_back({location + ": " + message});
  }
  void add_missing(size_t column, const std::string& location, int64_t line) {
    const auto [of, is_new] = missing_.emplace(column, problems_.size());
    if (is_new) problems_.push_back({location + ": a missing value"});
    Problem& problem = problems_[of->second];
    if (++problem.missing <= kMaxLines) problem.lines.push_back(line);
    ++missing_count_;
  }

  // `fixed`: the columns are those of a training split without means for empty cells.
  void throw_if_any(const std::string& file, bool fixed) const {
    if (problems_.empty()) return;
    const char* advice = missing_.empty() ? ""
                         : fixed
                             ? " (fill such cells, or train with `data.empty`)"
                             : " (`empty: mean` uses the mean instead, `empty: category` marks it)";
    if (problems_.size() == 1) throw Error(ExitCode::data, problems_[0].text() + advice);
    std::string text = fmt::format("{} cells or lines cannot be used:", count_ + missing_count_);
    for (const Problem& problem : problems_) {
      text += "\n  " + problem.text() + (problem.missing == 0 ? "" : advice);
      if (problem.missing > 0) advice = "";  // once
    }
    if (count_ > kMaxReported) text += fmt::format("\n  … and {} more", count_ - kMaxReported);
    throw Error(ExitCode::data, text, file);
  }

 private:
  struct Problem {
    std::string message;
    int64_t missing = 0;              // values in this column
    std::vector<int64_t> lines = {};  // of the first of them

    std::string text() const {
      if (missing < 2) return message;
      return fmt::format("{}, one of {} in this column (lines {}{})", message, missing,
                         fmt::join(lines, ", "), missing > kMaxLines ? ", …" : "");
    }
  };
  int64_t count_ = 0, missing_count_ = 0;
  std::vector<Problem> problems_;     // in the order of the file
  std::map<size_t, size_t> missing_;  // the problem of each column
};

using Numbers = std::unordered_map<std::string_view, int32_t>;

Numbers number_texts(const std::vector<std::string>& texts) {
  Numbers out;
  for (size_t i = 0; i < texts.size(); ++i) out.emplace(texts[i], static_cast<int32_t>(i));
  // Earlier versions kept `10.0`.
  for (size_t i = 0; i < texts.size(); ++i) {
    out.emplace(category_text(texts[i]), static_cast<int32_t>(i));
  }
  return out;
}

Numbers::const_iterator find_text(const Numbers& numbers, std::string_view text, char mark) {
  const auto found = numbers.find(text);
  return found != numbers.end() ? found : numbers.find(category_text(text, mark));
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

class CsvLoader {
 public:
  CsvLoader(const CsvOptions& options, const LineSource& open, const OpenOptions& how)
      : options_(options), open_(open), how_(how) {}

  std::shared_ptr<const Dataset> load() {
    const bool trained = how_.trained != nullptr && !how_.trained->columns.empty();
    CsvHints hints = options_.hints;
    if (trained) hints.header = how_.trained->has_header() || hints.header.value_or(false);
    dialect_ = find_dialect(open_, hints);
    schema_ = trained ? how_.trained
                      : std::make_shared<const DataSchema>(fit_columns(options_, open_, dialect_));
    CsvReader reader(open_, dialect_.delimiter, dialect_.skipped);
    const int64_t rows = reader.read_table(
        dialect_.header, options_.rows, [&](const auto& cells) { begin(cells, reader.location()); },
        [&](const auto& cells) { read_row(cells, reader); });
    if (options_.rows && rows < (*options_.rows)[1]) {
      throw Error(ExitCode::data,
                  fmt::format("has {} rows of data, but the configuration has rows [{}, {})", rows,
                              (*options_.rows)[0], (*options_.rows)[1]),
                  reader.name());
    }
    bad_.throw_if_any(reader.name(), trained && !how_.trained->fills);
    if (row_lines_.empty()) throw Error(ExitCode::data, "has no data", reader.name());
    warn_of_unknown(reader.name());
    for (size_t i = 0; i < names_.size(); ++i) {
      const std::string column = reader.name() + ": " + shown_column(names_, i);
      rounding_[i].warn(column);
      thousands_[i].warn(column, dialect_.delimiter);
    }
    return finish(reader.name());
  }

 private:
  using Kind = ColumnSchema::Kind;

  bool untargeted() const { return options_.target == "none"; }
  bool wants_target() const { return how_.targets && !untargeted(); }

  // Reads the columns from the first line that is not blank.
  void begin(const CsvReader::Cells& cells, const std::string& location) {
    names_ = column_names(cells, dialect_.header);
    rounding_.resize(names_.size());
    thousands_.resize(names_.size());
    if (dialect_.header && schema_->has_header()) {
      match_names(location);
    } else {
      match_positions(location);
    }
    count_inputs(location);
  }

  void match_names(const std::string& location) {
    const auto& columns = schema_->columns;
    std::vector<std::string> missing, unknown, trained;  // names
    cell_of_.assign(columns.size(), -1);
    std::unordered_map<std::string_view, size_t> by_name;
    for (size_t c = 0; c < columns.size(); ++c) by_name.emplace(columns[c].name, c);
    for (size_t i = 0; i < names_.size(); ++i) {
      const auto at = by_name.find(names_[i]);
      const bool passed = options_.columns || names_[i].starts_with("Unnamed: ") ||
                          contains(options_.ignore, names_[i]);
      if (at != by_name.end()) {
        int& cell = cell_of_[at->second];
        if (cell >= 0 && columns[at->second].kind != Kind::ignored)
          refuse_twice(names_[i], location);
        cell = static_cast<int>(i);
      } else if (!passed) {
        unknown.push_back(names_[i]);
      }
    }
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool needed =
          columns[c].kind == Kind::target ? wants_target() : columns[c].kind != Kind::ignored;
      if (cell_of_[c] < 0 && needed) missing.push_back(columns[c].name);
    }
    if (std::count(cell_of_.begin(), cell_of_.end(), -1) == std::ssize(cell_of_)) {
      for (const ColumnSchema& column : columns) trained.push_back(column.name);
      throw Error(ExitCode::data,
                  "the first line has none of the columns that the model was trained with: " +
                      join_names(trained),
                  location);
    }
    std::vector<std::string> diagnostics;
    for (const std::string& name : missing) {
      const std::string near = nearest_name(name, unknown);
      diagnostics.push_back(fmt::format(
          "there is no column '{}', which the model was trained with{}",
          shown_line(name, kShownCell), near.empty() ? "" : fmt::format("; is it '{}'?", near)));
    }
    for (const std::string& name : unknown) {
      diagnostics.push_back(
          fmt::format("the model was trained without the column '{}' (`ignore` leaves it out)",
                      shown_line(name, kShownCell)));
    }
    if (diagnostics.empty()) return;
    std::string text;
    for (const std::string& problem : diagnostics) text += (text.empty() ? "" : "\n  ") + problem;
    throw Error(ExitCode::data, text, location);
  }

  void match_positions(const std::string& location) {
    const size_t columns = schema_->columns.size();
    // Data without a target may lack its column.
    size_t target = columns;
    for (size_t c = 0; c < columns; ++c) {
      if (schema_->columns[c].kind == Kind::target) target = c;
    }
    const bool lacks_target = names_.size() + 1 == columns && target < columns && !wants_target();
    if (names_.size() != columns && !lacks_target) {
      throw Error(
          ExitCode::data,
          fmt::format("has {} columns, but the model was trained with {}", names_.size(), columns),
          location);
    }
    cell_of_.assign(columns, -1);
    for (size_t i = 0; i < names_.size(); ++i) {
      const size_t c = lacks_target && i >= target ? i + 1 : i;
      cell_of_[c] = static_cast<int>(i);
    }
  }

  void count_inputs(const std::string& location) {
    const auto elements = static_cast<int64_t>(schema_->number_columns().size());
    const auto numbers =
        std::count_if(schema_->columns.begin(), schema_->columns.end(),
                      [](const ColumnSchema& column) { return column.kind == Kind::number; });
    for (const ColumnSchema& column : schema_->columns) {
      categories_.push_back(number_texts(column.categories));
      if (column.kind == Kind::category && schema_->embedded) ++embedded_;
    }
    classes_ = number_texts(schema_->class_names);
    if (elements + embedded_ == 0) throw Error(ExitCode::data, "has no input column", location);
    shape_ = Shape{elements};
    if (options_.shape) {
      shape_ = Shape(std::span(*options_.shape));  // refuses sizes that overflow
      if (shape_.elements() != elements) {
        throw Error(ExitCode::data,
                    fmt::format("has {} input columns{}, but shape {} needs {}", elements,
                                untargeted() ? "" : " beside the target", to_string(shape_),
                                shape_.elements()),
                    location);
      }
    }
    if (elements > 0) scaler_.emplace(options_.scaling, options_.shape ? shape_[-1] : numbers);
  }

  std::string location_of(size_t cell) const {
    return fmt::format("{} ({})", reader_->location(),
                       names_[cell].empty() ? fmt::format("column {}", cell + 1)
                                            : fmt::format("column {}, '{}'", cell + 1,
                                                          shown_line(names_[cell], kShownCell)));
  }

  void add_missing(size_t cell) { bad_.add_missing(cell, location_of(cell), row_lines_.back()); }

  void read_row(const CsvReader::Cells& cells, const CsvReader& reader) {
    reader_ = &reader;
    row_lines_.push_back(reader.line());
    if (cells.size() != names_.size()) {
      bad_.add(reader.location(),
               fmt::format("{} columns, but the first line has {}{}", cells.size(), names_.size(),
                           cells.size() > names_.size() && dialect_.delimiter == ','
                               ? " (texts with commas and decimal commas need quotes)"
                               : ""));
      return;
    }
    if (wants_target() &&
        std::all_of(cells.begin(), cells.end(), [](auto cell) { return cell.empty(); })) {
      bad_.add(reader.location(), "all cells are empty; remove the line");
      return;
    }
    int64_t number = 0;
    int32_t first_id = 1;  // 0: unknown categories
    bool has_target = false;
    for (size_t c = 0; c < schema_->columns.size(); ++c) {
      const ColumnSchema& column = schema_->columns[c];
      if (column.kind == Kind::ignored || cell_of_[c] < 0) continue;
      const auto cell = static_cast<size_t>(cell_of_[c]);
      if (column.kind == Kind::number) {
        add_number(column, cell, cells[cell], number++);
      } else if (column.kind == Kind::category) {
        add_category(column, c, cell, cells[cell], first_id);
      } else if (!untargeted()) {
        add_target(cell, cells[cell]);
        has_target = true;
      }
    }
    if (!has_target) {
      has_targets_ = false;
      add_ignored();
    }
    if (row_lines_.size() % 4096 == 0) {
      // The vectors grow by doubling, so up to three times the values are in memory.
      check_fits_memory((inputs_.size() + ids_.size()) * sizeof(float) * 3, reader.name());
    }
  }

  // Adds a target that the loss ignores.
  void add_ignored() {
    if (options_.regression) {
      numbers_.push_back(std::numeric_limits<float>::quiet_NaN());
    } else {
      labels_.push_back(kIgnoredLabel);
    }
  }

  // Returns the number in a cell, or reports the cell.
  std::optional<double> number_in(size_t cell, std::string_view text) {
    const auto value = csv_number(text, dialect_.decimal_comma);
    if (value && std::isfinite(*value)) {
      thousands_[cell].add(text, dialect_.mark());
      return value;
    }
    std::string why = value ? "is not a finite number" : "is not a number";
    if (!value && dialect_.decimal_comma && text.find_first_of(".,") != std::string_view::npos) {
      why += " (the decimal mark is a comma here; remove thousands separators)";
    } else if (!value && text.find(',') != std::string_view::npos) {
      why += " (use a decimal point and no thousands separators, or set `decimal: \",\"`)";
    } else if (!value && row_lines_.size() <= 1 && !dialect_.header) {
      why += " (if this line has column names, set `header: true`)";
    }
    bad_.add(location_of(cell), fmt::format("'{}' {}", shown_line(text, kShownCell), why));
    return {};
  }

  float as_f32(size_t cell, double value) {
    rounding_[cell].add(value);
    return static_cast<float>(value);
  }

  void add_number(const ColumnSchema& column, size_t cell, std::string_view text, int64_t number) {
    float scaled = std::numeric_limits<float>::quiet_NaN();
    const bool empty = is_missing(text);
    if (empty) {
      if (options_.empty == EmptyCells::error) add_missing(cell);
    } else if (const auto value = number_in(cell, text)) {
      scaled = as_f32(cell, scaler_->exact(*value, number));
      if (!std::isfinite(scaled)) {
        bad_.add(location_of(cell), fmt::format("{} is too large for f32 (after scaling)", *value));
      }
    }
    inputs_.push_back(scaled);
    if (column.marks_empty) inputs_.push_back(empty ? 1 : 0);
  }

  void add_category(const ColumnSchema& column, size_t c, size_t cell, std::string_view text,
                    int32_t& first_id) {
    const auto count = static_cast<int32_t>(column.categories.size());
    const bool empty = is_missing(text);
    int32_t number = -1;
    if (empty) {
      if (options_.empty == EmptyCells::error) add_missing(cell);
      if (column.marks_empty) number = count;
    } else if (const auto found = find_text(categories_[c], text, dialect_.mark());
               found != categories_[c].end()) {
      number = found->second;
    }
    if (number < 0) {
      Unknown& of = unknown_[c];
      if (of.count++ == 0) of = {1, empty ? "" : shown_line(text, kShownCell), row_lines_.back()};
    }
    const int32_t own = count + (column.marks_empty ? 1 : 0);
    if (schema_->embedded) {
      ids_.push_back(number < 0 ? 0 : first_id + number);
      first_id += own;
    } else {
      for (int32_t i = 0; i < own; ++i) inputs_.push_back(i == number ? 1 : 0);
    }
  }

  void add_target(size_t cell, std::string_view text) {
    if (is_missing(text)) {
      if (how_.targets) {
        bad_.add(location_of(cell),
                 text.empty() ? "the target is missing"
                              : fmt::format("the target is missing ('{}' counts as empty)", text));
      }
      add_ignored();
    } else if (options_.regression) {
      const double value = number_in(cell, text).value_or(0);
      numbers_.push_back(as_f32(cell, value));
      if (!std::isfinite(numbers_.back())) {
        bad_.add(location_of(cell), fmt::format("{} is too large for f32", value));
      }
    } else {
      labels_.push_back(classes_.empty() ? whole_label(cell, text) : named_label(cell, text));
    }
  }

  int32_t named_label(size_t cell, std::string_view text) {
    if (const auto found = find_text(classes_, text, dialect_.mark()); found != classes_.end())
      return found->second;
    const auto number = csv_number(text, dialect_.decimal_comma);
    if (number && *number == kIgnoredLabel) return kIgnoredLabel;
    if (number) {
      const auto found = classes_.find(fmt::format("{:.0f}", *number));
      if (found != classes_.end() && *number == std::floor(*number)) return found->second;
    }
    if (!how_.targets) {
      warn_once(fmt::format("{}: the class '{}' is unknown, so this row has no target",
                            location_of(cell), shown_line(text, kShownCell)));
      return kIgnoredLabel;
    }
    std::string near = nearest_name(std::string(text), schema_->class_names);
    // Numbered classes are not misspelt; the data may be sorted by class.
    if (without_digits(near) == without_digits(std::string(text))) near.clear();
    bad_.add(location_of(cell),
             fmt::format("the class '{}' is not one of the {} trained classes: {}{}",
                         shown_line(text, kShownCell), schema_->class_names.size(),
                         some_names(schema_->class_names),
                         near.empty() ? "" : fmt::format("; is it '{}'?", near)));
    return kIgnoredLabel;
  }

  int32_t whole_label(size_t cell, std::string_view text) {
    const auto number = number_in(cell, text);
    if (!number) return kIgnoredLabel;
    const double value = *number;
    if (value != std::floor(value)) {
      bad_.add(location_of(cell),
               fmt::format("the label {} is not an integer (to predict a number use a loss such as "
                           "mse, or set `task: regression`)",
                           value));
      return kIgnoredLabel;
    }
    const double limit = options_.classes ? static_cast<double>(*options_.classes) : 2147483647.0;
    if ((value < 0 && value != kIgnoredLabel) || value >= limit) {
      bad_.add(location_of(cell),
               fmt::format("the label {} is out of range 0 to {}", value, limit - 1));
      return kIgnoredLabel;
    }
    return static_cast<int32_t>(value);
  }

  void warn_of_unknown(const std::string& file) const {
    for (const auto& [c, of] : unknown_) {
      const std::string first =
          of.example.empty() ? "an empty cell" : fmt::format("'{}'", of.example);
      log_warning(
          "{}: {} cells of {} have unknown categories, the first is {} in line {}; they are "
          "treated "
          "as no category",
          file, of.count, shown_column(names_, static_cast<size_t>(cell_of_[c])), first, of.line);
    }
  }

  std::shared_ptr<const Dataset> finish(const std::string& file) {
    std::vector<FieldSpec> fields;
    std::vector<FieldValues> values;
    MemoryFacts facts{.schema = schema_, .label_bound = options_.classes.value_or(0)};
    if (!inputs_.empty()) {
      fields.push_back({kInputField, {shape_, DType::f32}});
      values.emplace_back(std::move(inputs_));
    }
    if (embedded_ > 0) {
      fields.push_back({kCategoriesField, {Shape{embedded_}, DType::i32}});
      values.emplace_back(std::move(ids_));
    }
    if (options_.regression) {
      fields.push_back({kTargetField, {Shape{1}, DType::f32}});
      values.emplace_back(std::move(numbers_));
    } else {
      fields.push_back({kTargetField, {Shape{}, DType::i32}});
      values.emplace_back(std::move(labels_));
    }
    auto location = [file, lines = std::move(row_lines_)](int64_t sample) {
      return fmt::format("{}:{}", file, lines[static_cast<size_t>(sample)]);
    };
    int64_t ids = 1;
    for (const ColumnSchema& column : schema_->columns) {
      ids += static_cast<int64_t>(column.categories.size()) + (column.marks_empty ? 1 : 0);
    }
    for (const FieldSpec& field : fields) {
      facts.id_bounds.push_back(field.name == kCategoriesField ? std::optional(ids) : std::nullopt);
    }
    auto dataset = std::make_shared<MemoryDataset>(std::move(fields), std::move(values),
                                                   std::move(location), std::move(facts));
    return has_targets_ ? std::shared_ptr<const Dataset>(dataset) : without_targets(dataset);
  }

  struct Unknown {
    int64_t count = 0;
    std::string example;
    int64_t line = 0;
  };

  const CsvOptions& options_;
  const LineSource& open_;
  const OpenOptions& how_;
  CsvDialect dialect_;
  std::shared_ptr<const DataSchema> schema_;
  std::vector<std::string> names_;
  std::vector<F32Rounding> rounding_;      // by cell
  std::vector<ThousandsMarks> thousands_;  // by cell
  std::vector<int> cell_of_;               // by column of the schema; -1: not in the file
  std::vector<Numbers> categories_;        // by column
  Numbers classes_;
  int64_t embedded_ = 0;  // columns
  Shape shape_;
  std::optional<Scaler> scaler_;
  const CsvReader* reader_ = nullptr;  // at the current row
  bool has_targets_ = true;
  std::vector<float> inputs_, numbers_;
  std::vector<int32_t> ids_, labels_;
  std::vector<int64_t> row_lines_;
  std::map<size_t, Unknown> unknown_;  // by column
  BadCells bad_;
};

}  // namespace

std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const LineSource& open,
                                        const OpenOptions& how) {
  return CsvLoader(options, open, how).load();
}

std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, const OpenOptions& how) {
  const auto open = [&] { return LineReader{std::filesystem::path(options.path)}; };
  return load_csv(options, open, how);
}

}  // namespace dltrain
