// A JSON object with its keys in the order of addition: lines of metrics.jsonl, summary.json, the
// file of --result.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

class JsonObject {
 public:
  // The caller ensures that keys are unique.
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, const char* text) {
    return add(key, std::string_view(text));
  }
  JsonObject& add(std::string_view key, bool value);
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    return raw(key, std::to_string(value));
  }
  // Writes the shortest text that reads back as the same double. Values that are not finite become
  // null.
  JsonObject& add(std::string_view key, double value);
  // 9 significant digits: exact for a float, comparable by eye.
  JsonObject& add_loss(std::string_view key, double value);
  JsonObject& add_loss(std::string_view key, const std::vector<double>& values);
  // `digits` significant digits, for times and rates.
  JsonObject& add_rounded(std::string_view key, double value, int digits = 6);
  JsonObject& add(std::string_view key, const JsonObject& value) { return raw(key, value.text()); }
  JsonObject& add(std::string_view key, const std::vector<JsonObject>& values);
  JsonObject& add(std::string_view key, const std::vector<std::string>& texts);

  // {"step": 1, "loss": 2.5}
  std::string text() const { return "{" + body_ + "}"; }
  bool empty() const { return body_.empty(); }

 private:
  JsonObject& raw(std::string_view key, std::string_view value);

  std::string body_;
};

}  // namespace dltrain
