// Attributes of an op: a small ordered list of named constants (stride, epsilon, transpose_b, …).
// They are part of a node's identity: nodes are compared with them, also as text (to_string).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dltrain {

using AttributeValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> entries);

  // Replaces an existing entry of that name.
  void set(std::string name, AttributeValue value);
  void erase(std::string_view name);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Returns true if the attribute is true, a number other than 0 or a text that is not empty; also
  // for an empty name.
  bool is_set(std::string_view name) const;

  // The value of `name`, or the fallback when it is not set. A value of another kind is a bug and
  // throws Error(internal).
  bool boolean(std::string_view name, bool fallback = false) const;
  int64_t integer(std::string_view name, int64_t fallback = 0) const;
  double number(std::string_view name, double fallback = 0) const;
  std::string text(std::string_view name, std::string fallback = {}) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  std::vector<double> numbers(std::string_view name, std::vector<double> fallback = {}) const;

  bool operator==(const Attributes&) const = default;
  bool empty() const { return entries_.empty(); }

 private:
  friend std::string to_string(const Attributes& attributes);
  const AttributeValue* find(std::string_view name) const;
  std::vector<std::pair<std::string, AttributeValue>> entries_;  // sorted by name
};

// "epsilon=1e-05, stride=[2, 2], transpose_b=true"
std::string to_string(const Attributes& attributes);

}  // namespace dltrain
