#include "ops/attributes.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace dltrain {
namespace {

template <typename T>
T get(const AttributeValue* value, std::string_view name, T fallback) {
  if (value == nullptr) return fallback;
  const T* typed = std::get_if<T>(value);
  check_internal(typed != nullptr, "attribute {} is of another kind", name);
  return *typed;
}

std::string show(const AttributeValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

}  // namespace

Attributes::Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Attributes::set(std::string name, AttributeValue value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const auto& entry, const auto& key) { return entry.first < key; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {std::move(name), std::move(value)});
  }
}

void Attributes::erase(std::string_view name) {
  std::erase_if(entries_, [&](const auto& entry) { return entry.first == name; });
}

const AttributeValue* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Attributes::is_set(std::string_view name) const {
  const AttributeValue* value = find(name);
  if (value == nullptr) return name.empty();
  if (const bool* flag = std::get_if<bool>(value)) return *flag;
  if (const int64_t* integer = std::get_if<int64_t>(value)) return *integer != 0;
  if (const std::string* text = std::get_if<std::string>(value)) return !text->empty();
  return number(name) != 0;
}

bool Attributes::boolean(std::string_view name, bool fallback) const {
  return get<bool>(find(name), name, fallback);
}
int64_t Attributes::integer(std::string_view name, int64_t fallback) const {
  return get<int64_t>(find(name), name, fallback);
}
double Attributes::number(std::string_view name, double fallback) const {
  return get<double>(find(name), name, fallback);
}
std::string Attributes::text(std::string_view name, std::string fallback) const {
  return get<std::string>(find(name), name, std::move(fallback));
}
std::vector<int64_t> Attributes::integers(std::string_view name,
                                          std::vector<int64_t> fallback) const {
  return get<std::vector<int64_t>>(find(name), name, std::move(fallback));
}
std::vector<double> Attributes::numbers(std::string_view name, std::vector<double> fallback) const {
  return get<std::vector<double>>(find(name), name, std::move(fallback));
}

std::string to_string(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes.entries_) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, show(value));
  }
  return out;
}

}  // namespace dltrain
