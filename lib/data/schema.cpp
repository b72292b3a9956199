#include "data/schema.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/utf8.h"
#include "data/csv.h"

namespace dltrain {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr const char* kKindNames[] = {"number", "category", "target", "ignored"};

SchemaJson column_json(const ColumnSchema& column) {
  SchemaJson out{{"name", column.name}, {"kind", kKindNames[static_cast<size_t>(column.kind)]}};
  if (!column.categories.empty()) out["categories"] = column.categories;
  if (column.marks_empty) out["marks_empty"] = true;
  if (column.statistics) {
    out["mean"] = column.statistics->mean;
    out["std"] = column.statistics->std;
  }
  return out;
}

Statistics statistics_from(const SchemaJson& json) {
  const Statistics out{json.at("mean").get<double>(), json.at("std").get<double>()};
  if (!std::isfinite(out.mean) || !(out.std > 0)) throw std::runtime_error("std must be above 0");
  return out;
}

ColumnSchema column_from(const SchemaJson& json) {
  ColumnSchema out{.name = json.at("name").get<std::string>()};
  const auto kind = json.at("kind").get<std::string>();
  size_t i = 0;
  while (i < std::size(kKindNames) && kKindNames[i] != kind) ++i;
  if (i == std::size(kKindNames)) throw std::runtime_error("unknown kind '" + kind + "'");
  out.kind = static_cast<ColumnSchema::Kind>(i);
  if (json.contains("categories")) {
    out.categories = json["categories"].get<std::vector<std::string>>();
  }
  out.marks_empty = json.value("marks_empty", false);
  if (json.contains("mean")) out.statistics = statistics_from(json);
  return out;
}

bool near(const Statistics& a, const Statistics& b) {
  const double tolerance = 1e-6 * std::max(a.std, b.std);
  return std::abs(a.mean - b.mean) <= tolerance + 1e-9 * std::abs(a.mean) &&
         std::abs(a.std - b.std) <= tolerance;
}

// Describes the first difference of two lists of categories or classes; empty if they are
// equivalent.
std::string names_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto [x, y] =
      std::mismatch(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
        return category_text(one) == category_text(other);
      });
  if (x == a.end() && y == b.end()) return {};
  const auto shown = [](auto at, const auto& of) {
    return at == of.end() ? "missing" : fmt::format("'{}'", shown_line(*at, kShownCell));
  };
  return fmt::format(
      "({} in the checkpoint, {} in this data): number {} is {} in the checkpoint and {} in this "
      "data",
      a.size(), b.size(), x - a.begin(), shown(x, a), shown(y, b));
}

std::string column_difference(const ColumnSchema& a, const ColumnSchema& b) {
  if (a.name != b.name)
    return fmt::format("column '{}' is called '{}' in this data", a.name, b.name);
  if (a.kind != b.kind) {
    return fmt::format("column '{}' is a {} in the checkpoint and a {} in this data", a.name,
                       kKindNames[static_cast<size_t>(a.kind)],
                       kKindNames[static_cast<size_t>(b.kind)]);
  }
  if (a.marks_empty != b.marks_empty) {
    return fmt::format("column '{}' has an input or category for empty cells in {} only", a.name,
                       a.marks_empty ? "the checkpoint" : "this data");
  }
  if (const auto found = names_difference(a.categories, b.categories); !found.empty()) {
    return fmt::format("column '{}' has other categories {}", a.name, found);
  }
  return {};
}

}  // namespace

std::vector<int> DataSchema::number_columns() const {
  std::vector<int> out;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSchema& column = columns[i];
    if (column.kind == ColumnSchema::Kind::number) {
      out.push_back(static_cast<int>(i));
      if (column.marks_empty) out.push_back(-1);
    } else if (column.kind == ColumnSchema::Kind::category && !embedded) {
      out.insert(out.end(), column.categories.size() + (column.marks_empty ? 1 : 0), -1);
    }
  }
  return out;
}

std::vector<std::string> DataSchema::input_names() const {
  std::vector<std::string> out, called;
  for (const ColumnSchema& column : columns) called.push_back(column.name);
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSchema& column = columns[i];
    const bool is_number = column.kind == ColumnSchema::Kind::number;
    if (!is_number && (column.kind != ColumnSchema::Kind::category || embedded)) continue;
    const std::string name = shown_column(called, i);
    if (is_number) out.push_back(name);
    for (const std::string& category : column.categories) {
      out.push_back(fmt::format("{}, category '{}'", name, shown_line(category, kShownCell)));
    }
    if (column.marks_empty) out.push_back(name + ", empty cells");
  }
  return out;
}

std::string_view category_text(std::string_view text, char decimal_mark) {
  if (text.size() < 3 || text.back() != '0' || text[text.size() - 2] != decimal_mark) return text;
  const std::string_view whole = text.substr(0, text.size() - 2);
  return parse_number<int64_t>(whole) ? whole : text;
}

std::string to_json(const DataSchema& schema) {
  if (!schema.recorded()) return {};
  SchemaJson out{{"format", "dltrain.data"}, {"version", kSchemaVersion}};
  if (!schema.columns.empty()) {
    out["embedded"] = schema.embedded;
    out["columns"] = SchemaJson::array();
    for (const ColumnSchema& column : schema.columns) {
      out["columns"].push_back(column_json(column));
    }
  }
  out["normalized"] = schema.normalized;
  out["fills"] = schema.fills;
  for (const auto& [field, channels] : schema.channels) {
    SchemaJson& of = out["channels"][field] = SchemaJson::array();
    for (const Statistics& s : channels) of.push_back({{"mean", s.mean}, {"std", s.std}});
  }
  return json_text(out);
}

DataSchema schema_from_json(const std::string& json, const std::string& location) {
  try {
    const auto in = parse_ordered_json(json);
    if (in.at("format") != "dltrain.data" || in.at("version") != kSchemaVersion) {
      throw std::runtime_error(
          fmt::format("only version {} of dltrain.data is supported", kSchemaVersion));
    }
    DataSchema out;
    out.embedded = in.value("embedded", false);
    out.normalized = in.at("normalized").get<bool>();
    out.fills = in.at("fills").get<bool>();
    for (const auto& column : in.value("columns", SchemaJson::array())) {
      out.columns.push_back(column_from(column));
    }
    const SchemaJson channels = in.value("channels", SchemaJson::object());
    for (const auto& [field, list] : channels.items()) {
      out.channels.emplace_back(field, std::vector<Statistics>());
      for (const auto& s : list) out.channels.back().second.push_back(statistics_from(s));
    }
    return out;
  } catch (const std::exception& error) {
    throw Error(ExitCode::storage, fmt::format("the schema of the data: {}", error.what()),
                location);
  }
}

std::string schema_difference(const DataSchema& a, const DataSchema& b) {
  if (const auto found = names_difference(a.class_names, b.class_names); !found.empty()) {
    return "the classes differ " + found;
  }
  if (a.columns.size() != b.columns.size()) {
    return fmt::format("the checkpoint has {} columns, this data has {}", a.columns.size(),
                       b.columns.size());
  }
  for (size_t i = 0; i < a.columns.size(); ++i) {
    const auto is_here = [&](const ColumnSchema& column) {
      return column.name == a.columns[i].name;
    };
    if (!is_here(b.columns[i]) && std::ranges::any_of(b.columns, is_here)) {
      return fmt::format(
          "the columns are in another order: column {} is '{}' in the checkpoint "
          "and '{}' in this data",
          i + 1, a.columns[i].name, b.columns[i].name);
    }
    const std::string found = column_difference(a.columns[i], b.columns[i]);
    if (!found.empty()) return found;
  }
  for (size_t i = 0; i < a.columns.size(); ++i) {
    const auto &x = a.columns[i].statistics, &y = b.columns[i].statistics;
    if (!x || !y || near(*x, *y)) continue;
    return fmt::format("column '{}' has mean {:.6g} in the checkpoint and {:.6g} in this data",
                       a.columns[i].name, x->mean, y->mean);
  }
  if (a.embedded != b.embedded) return "the encoding of categories differs";
  if (a.normalized != b.normalized || a.fills != b.fills)
    return "data.normalize or data.empty differs";
  if (a.channels.size() != b.channels.size()) return "other inputs are normalized";
  for (size_t i = 0; i < a.channels.size(); ++i) {
    const auto &x = a.channels[i].second, &y = b.channels[i].second;
    if (x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), near)) continue;
    return fmt::format("the mean or std of the input '{}' differs", a.channels[i].first);
  }
  return {};
}

bool only_statistics_differ(DataSchema a, DataSchema b) {
  if (schema_difference(a, b).empty()) return false;
  for (DataSchema* schema : {&a, &b}) {
    for (ColumnSchema& column : schema->columns) column.statistics.reset();
    for (auto& [field, channels] : schema->channels) std::ranges::fill(channels, Statistics());
  }
  return schema_difference(a, b).empty();
}

}  // namespace dltrain
