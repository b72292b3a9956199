// A config.json of Hugging Face's transformers, read key by key: every key is taken, known to be
// without meaning here, or refused by its name, so that no model is silently another one.
#pragma once

#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace dltrain {

// Which numbers a key can have, and how a mistake says it.
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
  // `place` names the file in mistakes. Throws Error(usage) for text that is no JSON object.
  ConfigJson(std::string place, const std::string& text);

  // Whether a key is there and is not null, and whether it is there and is null.
  bool has(const char* key) const;
  bool is_null(const char* key) const { return map_.contains(key) && map_[key].is_null(); }
  // The value of a key, or `absent` where it is missing or null. A value of another type is a
  // mistake, as are integers below `least` or above `most` (2^31 - 1 at most) and numbers that are
  // not finite or not in their range.
  int64_t integer(const char* key, int64_t absent, int64_t most = 2147483647, int64_t least = 1);
  int64_t required_integer(const char* key, int64_t most = 2147483647);
  double number(const char* key, double absent, const NumberRange& range = {});
  bool boolean(const char* key, bool absent);
  std::string text(const char* key, const std::string& absent);
  // A map, read by the same rules; empty where it is missing.
  ConfigJson map(const char* key);
  // The elements of a list of texts, and how many a map or list has; none where it is missing.
  std::vector<std::string> texts(const char* key);
  int64_t size(const char* key);
  // Keys whose value changes nothing that is computed here.
  void ignore(std::initializer_list<const char*> keys);
  // A key that may only have this value: it would change the model otherwise.
  void only(const char* key, const nlohmann::json& value);
  // A mistake where `part` does not divide `whole`, named with what the whole is.
  void must_divide(const char* key, int64_t part, const char* whole_key, int64_t whole);

  // Once each: keys may be read several times.
  void mistake(std::string message);
  // Adds the keys that nobody asked for, then those of a map that was read, to the mistakes.
  void refuse_unknown();
  void adopt(ConfigJson&& map);

  const std::string& place() const { return place_; }
  const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  explicit ConfigJson(std::string place) : place_(std::move(place)) {}
  // The value that is not null, marked as known.
  const nlohmann::json* take(const char* key);
  void wrong(const char* key, std::string_view expected, const nlohmann::json& found);

  std::string place_;
  std::string prefix_ = {};  // of keys in messages: "rope_scaling."
  nlohmann::json map_ = nlohmann::json::object();
  std::set<std::string, std::less<>> known_ = {};
  std::vector<std::string> mistakes_ = {};
};

}  // namespace dltrain
