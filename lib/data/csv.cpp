#include "data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/memory_dataset.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxRow = std::numeric_limits<int64_t>::max();

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

// A value as messages show it: short, and nothing that a terminal would obey.
std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 40)) out += c < ' ' || c > '~' ? '?' : c;
  return text.size() > 40 ? out + "…" : out;
}

bool whole_number(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

class CsvLoader {
 public:
  CsvLoader(const CsvOptions& options, LineReader& lines) : options_(options), lines_(lines) {}

  std::shared_ptr<const Dataset> load() {
    check_options();
    const int64_t first = options_.rows ? (*options_.rows)[0] : 0;
    const int64_t last = options_.rows ? (*options_.rows)[1] : kMaxRow;
    int64_t row = 0;
    while (row < last) {
      const auto line = lines_.next();
      if (!line) break;
      if (trim(*line).empty()) continue;
      if (!seen_a_line_) {
        seen_a_line_ = true;
        begin(*line);
        if (options_.header) continue;
      }
      if (row++ >= first) read_row(*line);
    }
    if (options_.rows && row < last) {
      throw Error(
          ExitCode::data,
          fmt::format("has {} rows of data; rows [{}, {}) were asked for", row, first, last),
          lines_.name());
    }
    if (row_lines_.empty()) throw Error(ExitCode::data, "has no data", lines_.name());
    return finish();
  }

 private:
  void check_options() const {
    if (options_.delimiter.size() != 1) {
      fail(ExitCode::usage, "the delimiter must be one character, not '{}'", options_.delimiter);
    }
    if (options_.rows && ((*options_.rows)[0] < 0 || (*options_.rows)[1] <= (*options_.rows)[0])) {
      fail(ExitCode::usage, "rows [{}, {}) are none", (*options_.rows)[0], (*options_.rows)[1]);
    }
    if (options_.regression && options_.classes) {
      fail(ExitCode::usage, "a regression target has no classes");
    }
  }

  // Calls use(column, text) for each field of a line and returns their number.
  template <typename Use>
  int64_t split(std::string_view line, const Use& use) const {
    const char delimiter = options_.delimiter[0];
    int64_t column = 0;
    while (true) {
      const size_t end = line.find(delimiter);
      use(column++, trim(line.substr(0, end)));
      if (end == std::string_view::npos) return column;
      line.remove_prefix(end + 1);
    }
  }

  [[noreturn]] void refuse(int64_t column, const std::string& message) const {
    std::string where = fmt::format("{} (column {}", lines_.place(), column + 1);
    if (static_cast<size_t>(column) < names_.size()) {
      where += fmt::format(", '{}'", shown(names_[static_cast<size_t>(column)]));
    }
    throw Error(ExitCode::data, message, where + ")");
  }

  // The first line that is not blank says how many columns there are, and their names.
  void begin(std::string_view line) {
    columns_ = split(line, [&](int64_t, std::string_view text) {
      if (options_.header) names_.emplace_back(text);
    });
    if (columns_ < 2 && !untargeted()) {
      throw Error(ExitCode::data,
                  fmt::format("has one column; expected inputs and a target separated by '{}'",
                              shown(options_.delimiter)),
                  lines_.place());
    }
    target_ = find_target();
    const int64_t inputs = columns_ - (untargeted() ? 0 : 1);
    if (options_.shape) {
      if (options_.shape->empty() || options_.shape->size() > Shape::kMaxRank - 1) {
        fail(ExitCode::usage, "shape must have 1 to {} dimensions", Shape::kMaxRank - 1);
      }
      shape_ = Shape(std::span(*options_.shape));  // refuses sizes that overflow
      if (shape_.elements() != inputs) {
        throw Error(ExitCode::data,
                    fmt::format("has {} input columns{}; shape {} needs {}", inputs,
                                untargeted() ? "" : " beside the target", to_string(shape_),
                                shape_.elements()),
                    lines_.place());
      }
    } else {
      shape_ = Shape{inputs};
    }
    scaler_.emplace(options_.scaling, shape_[-1]);
  }

  bool untargeted() const { return options_.target == "none"; }

  // -1: there is none.
  int64_t find_target() const {
    if (untargeted()) return -1;
    if (options_.target == "last") return columns_ - 1;
    if (options_.target == "first") return 0;
    int64_t index = 0;
    if (whole_number(options_.target, index)) {
      if (index >= 0 && index < columns_) return index;
      throw Error(
          ExitCode::data,
          fmt::format("target is column {}; there are columns 0 to {}", index, columns_ - 1),
          lines_.place());
    }
    const auto it = std::find(names_.begin(), names_.end(), options_.target);
    if (it == names_.end()) {
      throw Error(ExitCode::data,
                  options_.header ? fmt::format("the header has no column '{}'", options_.target)
                                  : fmt::format("target '{}' is a name, which needs `header: true`",
                                                options_.target),
                  lines_.place());
    }
    return it - names_.begin();
  }

  double number(int64_t column, std::string_view text) const {
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, value);
    if (text.empty()) refuse(column, "a missing value");
    if (parsed != end || (error != std::errc() && error != std::errc::result_out_of_range)) {
      const bool first = row_lines_.size() <= 1 && !options_.header;
      refuse(column, fmt::format("'{}' is not a number{}", shown(text),
                                 first ? " (if this line has names, set `header: true`)" : ""));
    }
    if (error != std::errc() || !std::isfinite(value)) {
      refuse(column, fmt::format("'{}' is not a finite number", shown(text)));
    }
    return value;
  }

  void read_row(std::string_view line) {
    row_lines_.push_back(lines_.line());
    int64_t element = 0;
    const int64_t found = split(line, [&](int64_t column, std::string_view text) {
      if (column >= columns_) return;
      const double value = number(column, text);
      if (column == target_) {
        add_target(column, value);
        return;
      }
      const float scaled = (*scaler_)(value, element++);
      if (!std::isfinite(scaled)) {
        refuse(column, fmt::format("{} is too large for f32 (after scaling)", value));
      }
      inputs_.push_back(scaled);
    });
    if (found != columns_) {
      throw Error(ExitCode::data, fmt::format("{} columns, the first line has {}", found, columns_),
                  lines_.place());
    }
    if (untargeted()) {
      if (options_.regression) {
        numbers_.push_back(0);
      } else {
        labels_.push_back(kIgnoredLabel);
      }
    }
    if (row_lines_.size() % 4096 == 0) {
      // The vectors grow by doubling, so up to three times the values are in use for a moment.
      check_fits_memory(inputs_.size() * sizeof(float) * 3, lines_.name());
    }
  }

  void add_target(int64_t column, double value) {
    if (options_.regression) {
      const auto target = static_cast<float>(value);
      if (!std::isfinite(target)) refuse(column, fmt::format("{} is too large for f32", value));
      numbers_.push_back(target);
      return;
    }
    if (value != std::floor(value)) {
      refuse(column, fmt::format("the label {} is not a whole number (for a number to predict, "
                                 "set `task: regression`)",
                                 value));
    }
    const double limit = options_.classes ? static_cast<double>(*options_.classes) : 2147483647.0;
    if ((value < 0 && value != kIgnoredLabel) || value >= limit) {
      refuse(column, fmt::format("the label {} is out of range 0 to {}", value, limit - 1));
    }
    labels_.push_back(static_cast<int32_t>(value));
  }

  std::shared_ptr<const Dataset> finish() {
    std::vector<FieldSpec> fields{{kInputField, {shape_, DType::f32}}};
    std::vector<FieldValues> values;
    values.emplace_back(std::move(inputs_));
    if (options_.regression) {
      fields.push_back({kTargetField, {Shape{1}, DType::f32}});
      values.emplace_back(std::move(numbers_));
    } else {
      fields.push_back({kTargetField, {Shape{}, DType::i32}});
      values.emplace_back(std::move(labels_));
    }
    auto place = [name = lines_.name(), lines = std::move(row_lines_)](int64_t sample) {
      return fmt::format("{}:{}", name, lines[static_cast<size_t>(sample)]);
    };
    auto dataset =
        std::make_shared<MemoryDataset>(std::move(fields), std::move(values), std::move(place));
    return untargeted() ? without_targets(std::move(dataset)) : dataset;
  }

  const CsvOptions& options_;
  LineReader& lines_;
  bool seen_a_line_ = false;
  std::vector<std::string> names_;
  int64_t columns_ = 0;
  int64_t target_ = 0;
  Shape shape_;
  std::optional<Scaler> scaler_;
  std::vector<float> inputs_;
  std::vector<float> numbers_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> row_lines_;
};

}  // namespace

std::shared_ptr<const Dataset> load_csv(const CsvOptions& options, LineReader& lines) {
  return CsvLoader(options, lines).load();
}

std::shared_ptr<const Dataset> load_csv(const CsvOptions& options) {
  LineReader lines{std::filesystem::path(options.path)};
  return load_csv(options, lines);
}

}  // namespace dltrain
