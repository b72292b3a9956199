// A config.json of Hugging Face's transformers, read key by key. A key that is neither read nor
// known to have no effect is an error, so that no model is silently changed.
#pragma once

#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace dltrain {

// The range of a number, and its description in messages.
struct NumberRange {
  const char* expected = "a number";
  double above = -std::numeric_limits<double>::infinity();
  double from = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();

  bool holds(double value) const { return value > above && value >= from && value < below; }
};
inline constexpr double kNoBound = std::numeric_limits<double>::infinity();
inline constexpr NumberRange kEpsilon{"a number above 0 and below 1", 0, -kNoBound, 1};
inline constexpr NumberRange kDropout{"a number from 0 to below 1", -kNoBound, 0, 1};

class ConfigJson {
 public:
  // `location` names the file in messages. Throws Error(usage) for text that is not a JSON object.
  ConfigJson(std::string location, const std::string& text);

  // Return whether a key exists and is not null, and whether it exists and is null.
  bool has(const char* key) const;
  bool is_null(const char* key) const { return map_.contains(key) && map_[key].is_null(); }
  // Return the value of a key, or `absent` if it is missing or null. Another type is an error, as
  // are integers below `least` or above `most` (at most 2^31 - 1) and numbers that are not finite
  // or out of range.
  int64_t integer(const char* key, int64_t absent, int64_t most = 2147483647, int64_t least = 1);
  int64_t required_integer(const char* key, int64_t most = 2147483647);
  double number(const char* key, double absent, const NumberRange& range = {});
  bool boolean(const char* key, bool absent);
  std::string text(const char* key, const std::string& absent);
  // Returns a map, which is read by the same rules; empty if it is missing.
  ConfigJson map(const char* key);
  // Return the elements of a list of texts and the size of a map or list; empty if it is missing.
  std::vector<std::string> texts(const char* key);
  // Returns a list of integers above 0, or `absent` if it is missing.
  std::vector<int64_t> integers(const char* key, std::vector<int64_t> absent);
  int64_t size(const char* key);
  // Marks keys whose value has no effect.
  void ignore(std::initializer_list<const char*> keys);
  // Reports any other value of this key, because it would change the model.
  void only(const char* key, const nlohmann::json& value);
  // Reports a `part` that does not divide `whole`.
  void must_divide(const char* key, int64_t part, const char* whole_key, int64_t whole);

  // Adds an error once, because keys may be read several times.
  void add_error(std::string message);
  // Reports the keys that were not read, and the errors of a map that was read.
  void refuse_unknown();
  void adopt(ConfigJson&& map);

  const std::string& location() const { return location_; }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  explicit ConfigJson(std::string location) : location_(std::move(location)) {}
  // Returns the value unless it is null, and marks the key as known.
  const nlohmann::json* take(const char* key);
  template <typename T, typename Fits>
  T typed(const char* key, const T& absent, std::string_view expected, Fits fits);
  void wrong(const char* key, std::string_view expected, const nlohmann::json& found);

  std::string location_;
  std::string prefix_ = {};  // of keys in messages: "rope_scaling."
  nlohmann::json map_ = nlohmann::json::object();
  std::set<std::string, std::less<>> known_ = {};
  std::vector<std::string> errors_ = {};
};

}  // namespace dltrain
