#include "telemetry/json_object.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace dltrain {
namespace {

std::string quoted(std::string_view text) {
  return json_text(nlohmann::json(text));
}

// Values that are not finite become null.
std::string rounded(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null";
}

template <typename T, typename Text>
std::string list_of(const std::vector<T>& values, Text text_of) {
  std::string list = "[";
  for (const T& value : values) list += (list.size() > 1 ? ", " : "") + text_of(value);
  return list + "]";
}

}  // namespace

JsonObject& JsonObject::raw(std::string_view key, std::string_view value) {
  if (!body_.empty()) body_ += ", ";
  body_ += quoted(key);
  body_ += ": ";
  body_ += value;
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text) {
  return raw(key, quoted(text));
}

JsonObject& JsonObject::add(std::string_view key, bool value) {
  return raw(key, value ? "true" : "false");
}

JsonObject& JsonObject::add(std::string_view key, double value) {
  return raw(key, std::isfinite(value) ? fmt::format("{}", value) : "null");
}

JsonObject& JsonObject::add_loss(std::string_view key, double value) {
  return add_rounded(key, value, 9);
}

JsonObject& JsonObject::add_loss(std::string_view key, const std::vector<double>& values) {
  return raw(key, list_of(values, [](double value) { return rounded(value, 9); }));
}

JsonObject& JsonObject::add_rounded(std::string_view key, double value, int digits) {
  return raw(key, rounded(value, digits));
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<std::string>& texts) {
  return raw(key, list_of(texts, quoted));
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<JsonObject>& values) {
  return raw(key, list_of(values, [](const JsonObject& value) { return value.text(); }));
}

}  // namespace dltrain
