#include "base/json.h"

#include <nlohmann/json.hpp>

namespace dltrain {
namespace {

// Erases the text from `from` to the end of the next `to`.
void cut(std::string& text, std::string_view from, std::string_view to) {
  const size_t begin = text.find(from);
  const size_t end = begin == std::string::npos ? begin : text.find(to, begin);
  if (end != std::string::npos) text.erase(begin, end + to.size() - begin);
}

template <typename Json>
std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text);
}

nlohmann::json try_parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::ordered_json try_parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const nlohmann::json& json, int indent) {
  return to_text(json, indent);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return to_text(json, indent);
}

std::string json_error(std::string_view what) {
  std::string text(what);
  if (text.starts_with("[json.exception")) cut(text, "[json.exception", "] ");
  if (text.starts_with("parse error at ")) cut(text, "parse error at ", "at ");
  cut(text, "syntax error while parsing ", "- ");
  return text;
}

}  // namespace dltrain
