#include "run/prediction_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/encodings.h"
#include "base/error.h"
#include "base/utf8.h"
#include "telemetry/json_object.h"

namespace dltrain {
namespace {

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : std::string();
}

// One output of a binary loss is the probability of class 1 of two.
bool is_of_two_classes(const Predictions& p) {
  return p.kind == TargetKind::binary && p.width == 1;
}

Predictions two_classes(const Predictions& p) {
  Predictions out{.kind = p.kind, .samples = p.samples, .width = 2, .classes = 2};
  for (const float value : p.values) out.values.insert(out.values.end(), {1 - value, value});
  return out;
}

class Rows {
 public:
  Rows(const Predictions& predictions, const Dataset& dataset, int64_t top)
      : of_two_(is_of_two_classes(predictions) ? two_classes(predictions) : Predictions{}),
        p_(of_two_.classes > 0 ? of_two_ : predictions),
        dataset_(dataset),
        names_(dataset.class_names()),
        target_(dataset.fields().back().sample),
        over_classes_(p_.classes > 0),
        width_(p_.width / p_.positions()),
        top_(over_classes_ ? std::max<int64_t>(top, 1) : 0),
        order_(static_cast<size_t>(width_)),
        target_bytes_(target_.bytes()) {
    if (over_classes_ && top > width_) {
      fail(ExitCode::usage, "--top-k {}: the model has {} classes", top, width_);
    }
    const auto tokenizer = dataset_.tokenizer();
    texts_ = tokenizer && p_.positions() > 1;
    for (int32_t id = 0; texts_ && id < p_.classes; ++id) {
      const std::string text = text_of_token(*tokenizer, id);
      names_.push_back(text.empty() ? fmt::format("<{}>", id) : text);
    }
  }

  std::string all(PredictionFormat format) {
    const bool csv = format == PredictionFormat::csv;
    std::string out = csv ? csv_header() + "\n" : "";
    for (int64_t i = 0; i < p_.samples * p_.positions(); ++i) {
      if (is_left_out(i)) continue;
      out += (csv ? csv_row(i) : json_row(i).text()) + "\n";
    }
    return out;
  }

  // Only these rows, with a column for the loss.
  std::string suspects(const std::vector<Suspect>& list, PredictionFormat format) {
    const bool csv = format == PredictionFormat::csv;
    std::string out = csv ? "loss," + csv_header() + "\n" : "";
    for (const Suspect& suspect : list) {
      const int64_t row = suspect.sample * p_.positions() + suspect.position;
      out += csv ? fmt::format("{},{}\n", number(suspect.loss), csv_row(row))
                 : json_row(row).add_loss("loss", suspect.loss).text() + "\n";
    }
    return out;
  }

 private:
  std::string class_name(int64_t label) const {
    const auto i = static_cast<size_t>(label);
    return label >= 0 && i < names_.size() ? names_[i] : std::to_string(label);
  }
  std::span<const float> values_of(int64_t row) const {
    return std::span(p_.values).subspan(static_cast<size_t>(row * width_),
                                        static_cast<size_t>(width_));
  }
  // The classes of a row, most likely first; equally likely ones by number.
  const std::vector<int64_t>& ranked(int64_t row) {
    const auto values = values_of(row);
    std::iota(order_.begin(), order_.end(), int64_t{0});
    std::partial_sort(order_.begin(), order_.begin() + top_, order_.end(),
                      [&](int64_t a, int64_t b) {
                        const float x = values[static_cast<size_t>(a)];
                        const float y = values[static_cast<size_t>(b)];
                        return x != y ? x > y : a < b;
                      });
    return order_;
  }
  int64_t targets_of_row() const {
    return dataset_.has_targets() ? target_.shape.elements() / p_.positions() : 0;
  }
  // Returns the targets of a row as texts: names or numbers, empty for targets that do not count;
  // none if the data has no targets.
  std::vector<std::string> targets(int64_t row) {
    std::vector<std::string> out(static_cast<size_t>(targets_of_row()));
    if (out.empty()) return out;
    const int64_t sample = row / p_.positions();
    dataset_.gather(dataset_.target_field(), {&sample, 1}, target_bytes_.data());
    const size_t first = static_cast<size_t>(row % p_.positions()) * out.size();
    for (size_t i = 0; i < out.size(); ++i) {
      if (target_.dtype == DType::i32) {
        const int32_t label = reinterpret_cast<const int32_t*>(target_bytes_.data())[first + i];
        if (label != kIgnoredLabel) out[i] = class_name(label);
        continue;
      }
      const float value = reinterpret_cast<const float*>(target_bytes_.data())[first + i];
      const bool label = of_two_.classes > 0 && (value == 0 || value == 1);
      out[i] = label ? class_name(static_cast<int64_t>(value)) : number(value);
    }
    return out;
  }
  // Padding, prompts and tokens that are not masked have no target.
  bool is_left_out(int64_t row) {
    return texts_ && dataset_.has_targets() && targets(row) == std::vector<std::string>(1);
  }
  const char* value_name() const {
    return p_.kind == TargetKind::binary ? "probability" : "output";
  }

  std::string csv_header() const {
    std::string out = p_.positions() > 1 ? "sample,source,place" : "sample,source";
    const auto columns = [&](const std::string& name, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        out += count == 1 ? "," + name : fmt::format(",{}_{}", name, i);
      }
    };
    columns("target", targets_of_row());
    if (!over_classes_) columns(value_name(), width_);
    for (int64_t k = 1; k <= top_; ++k) {
      out += k == 1 ? ",class,probability" : fmt::format(",class_{0},probability_{0}", k);
    }
    return out;
  }

  std::string csv_row(int64_t row) {
    const int64_t sample = row / p_.positions();
    std::string out =
        fmt::format("{},{}", sample, csv_field(printable(dataset_.location_of(sample))));
    if (p_.positions() > 1) out += fmt::format(",{}", row % p_.positions());
    for (const std::string& target : targets(row)) {
      out += fmt::format(",{}", csv_field(target));
    }
    const auto values = values_of(row);
    if (!over_classes_) {
      for (float value : values) out += fmt::format(",{}", number(value));
      return out;
    }
    const auto& best = ranked(row);
    for (int64_t k = 0; k < top_; ++k) {
      const int64_t label = best[static_cast<size_t>(k)];
      out += fmt::format(",{},{}", csv_field(class_name(label)),
                         number(values[static_cast<size_t>(label)]));
    }
    return out;
  }

  // A list, or the one element alone.
  static JsonObject& add_numbers(JsonObject& object, const char* key,
                                 const std::vector<double>& list) {
    return list.size() == 1 ? object.add_loss(key, list[0]) : object.add_loss(key, list);
  }

  JsonObject json_row(int64_t row) {
    const int64_t sample = row / p_.positions();
    JsonObject out;
    out.add("sample", sample).add("source", dataset_.location_of(sample));
    if (p_.positions() > 1) out.add("place", row % p_.positions());
    if (!dataset_.has_targets()) {
      // There is no target.
    } else if ((target_.dtype == DType::i32 || of_two_.classes > 0) && !names_.empty()) {
      const auto texts = targets(row);
      if (texts.size() == 1) {
        out.add("target", texts[0]);
      } else {
        out.add("target", texts);
      }
    } else {
      std::vector<double> numbers;
      for (const std::string& text : targets(row)) {
        numbers.push_back(text.empty() ? NAN : std::stod(text));
      }
      add_numbers(out, "target", numbers);
    }
    const auto values = values_of(row);
    if (!over_classes_) {
      return add_numbers(out, value_name(), std::vector<double>(values.begin(), values.end()));
    }
    const auto& best = ranked(row);
    const auto add_class = [&](JsonObject& object, int64_t label) {
      if (names_.empty()) {
        object.add("class", label);
      } else {
        object.add("class", class_name(label));
      }
      object.add_loss("probability", values[static_cast<size_t>(label)]);
    };
    add_class(out, best[0]);
    std::vector<JsonObject> top(static_cast<size_t>(top_));
    for (size_t k = 0; k < top.size(); ++k) add_class(top[k], best[k]);
    if (top_ > 1) out.add("top", top);
    return out;
  }

  const Predictions of_two_;  // of one logit; otherwise empty
  const Predictions& p_;
  const Dataset& dataset_;
  std::vector<std::string> names_;
  TensorSpec target_;
  bool texts_ = false;  // positions are tokens of texts
  bool over_classes_;
  int64_t width_;  // numbers a row
  int64_t top_;
  std::vector<int64_t> order_;
  std::vector<std::byte> target_bytes_;
};

}  // namespace

PredictionFormat prediction_format(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".csv") return PredictionFormat::csv;
  if (extension == ".jsonl" || extension == ".json") return PredictionFormat::jsonl;
  fail(ExitCode::usage, "{}: predictions are written as .csv or .jsonl", path.string());
}

std::string suspect_text(const Predictions& predictions, const Dataset& dataset,
                         const std::vector<Suspect>& suspects, PredictionFormat format) {
  return Rows(predictions, dataset, 1).suspects(suspects, format);
}

std::string prediction_text(const Predictions& predictions, const Dataset& dataset,
                            PredictionFormat format, int64_t top) {
  return Rows(predictions, dataset, top).all(format);
}

}  // namespace dltrain
