// Typed access to the JSON objects of tokenizer files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/tokenizer.h"

namespace dltrain {

// Reads fields of JSON objects. A null value counts as absent. Throws Error(data) at the place
// `name` for values of another type.
class JsonFields {
 public:
  using Json = nlohmann::json;

  explicit JsonFields(const std::string& name) : name_(name) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ExitCode::data, fmt::format(format, std::forward<Args>(args)...), name_);
  }

  // `where` is the name of `owner` in the message.
  const Json& object(const Json& owner, const char* key, const char* where) const {
    const auto found = owner.find(key);
    if (found == owner.end() || !found->is_object()) refuse("{} has no {}", where, key);
    return *found;
  }
  std::string text(const Json& owner, const char* key, const char* absent) const {
    if (is_null(owner, key)) return absent;
    if (!owner[key].is_string()) refuse("{} is not a string", key);
    return owner[key].get<std::string>();
  }
  bool flag(const Json& owner, const char* key, bool absent) const {
    if (is_null(owner, key)) return absent;
    if (!owner[key].is_boolean()) refuse("{} is neither true nor false", key);
    return owner[key].get<bool>();
  }
  // The id of `token`.
  int32_t id(const Json& value, const std::string& token) const {
    if (!value.is_number_integer()) refuse("the id of token '{}' is not an integer", token);
    if (value < 0 || value >= kMaxTokens) refuse("has a token of id {}", json_text(value));
    return value.get<int32_t>();
  }
  static bool is_null(const Json& owner, const char* key) {
    const auto found = owner.find(key);
    return found == owner.end() || found->is_null();
  }

 private:
  const std::string& name_;
};

}  // namespace dltrain
