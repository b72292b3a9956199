#include "tensor/safetensors_header.h"

#include <iterator>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dltrain {
namespace {

constexpr size_t kMaxArray = 32;  // more than any tensor rank: bounds what a header makes us keep

// Reports how far the parser has read, since its events carry no place.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Accepts exactly {"__metadata__": {string: string…}, name: {"dtype": string, "shape": [unsigned…],
// "data_offsets": [unsigned, unsigned]}…}; anything else stops the parser with problem_ set.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(RawSafetensorsHeader& result, const char* begin, const char*& furthest)
      : result_(result), begin_(begin), furthest_(furthest) {}

  const std::string& problem() const { return problem_; }
  uint64_t error_offset() const { return error_offset_; }

  bool key(std::string& name) override {
    if (level_ == Level::top) {
      if (!names_.insert(name).second) return refuse(fmt::format("the name '{}' twice", name));
      current_ = {};
      current_.name = name;
      seen_ = 0;
    } else {
      key_ = name;
    }
    return true;
  }

  bool start_object(size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::top;
    } else if (level_ == Level::top) {
      level_ = current_.name == "__metadata__" ? Level::metadata : Level::entry;
    } else {
      return refuse("objects nested too deeply");
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::entry) {
      if (seen_ != 7) {
        return refuse(fmt::format("tensor '{}' lacks dtype, shape or data_offsets", current_.name));
      }
      current_.header_offset = offset();
      result_.entries.push_back(std::move(current_));
    }
    level_ = level_ == Level::top ? Level::outside : Level::top;
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == Level::metadata) {
      if (!result_.metadata.emplace(key_, value).second) {
        return refuse(fmt::format("the metadata key '{}' twice", key_));
      }
      return true;
    }
    if (level_ != Level::entry || key_ != "dtype" || !mark(1)) return refuse_value();
    current_.dtype = value;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::entry) return refuse_value();
    if (key_ == "shape" && mark(2)) {
      level_ = Level::shape;
    } else if (key_ == "data_offsets" && mark(4)) {
      level_ = Level::offsets;
      offsets_.clear();
    } else {
      return refuse_value();
    }
    return true;
  }

  bool end_array() override {
    if (level_ == Level::offsets) {
      if (offsets_.size() != 2) {
        return refuse(fmt::format("tensor '{}' has {} data offsets, expected 2", current_.name,
                                  offsets_.size()));
      }
      current_.begin = offsets_[0];
      current_.end = offsets_[1];
    }
    level_ = Level::entry;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::shape && level_ != Level::offsets) return refuse_value();
    std::vector<uint64_t>& list = level_ == Level::shape ? current_.shape : offsets_;
    if (list.size() == kMaxArray) {
      return refuse(
          fmt::format("tensor '{}' has a list of more than {} numbers", current_.name, kMaxArray));
    }
    list.push_back(value);
    return true;
  }

  bool null() override { return refuse_value(); }
  bool boolean(bool) override { return refuse_value(); }
  bool number_integer(number_integer_t) override { return refuse_value(); }
  bool number_float(number_float_t, const std::string&) override { return refuse_value(); }
  bool binary(nlohmann::json::binary_t&) override { return refuse_value(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    const std::string what = error.what();
    const size_t text = what.find(": ");
    return refuse("the header is not valid JSON" +
                  (text == std::string::npos ? std::string() : what.substr(text)));
  }

 private:
  enum class Level { outside, top, entry, metadata, shape, offsets };

  uint64_t offset() const { return static_cast<uint64_t>(furthest_ - begin_); }

  bool mark(int bit) {
    if (seen_ & bit) return false;
    seen_ |= bit;
    return true;
  }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    error_offset_ = offset();
    return false;
  }

  bool refuse_value() {
    switch (level_) {
      case Level::outside:
        return refuse("the header is not a JSON object");
      case Level::top:
        return refuse(fmt::format("'{}' is not an object", current_.name));
      case Level::metadata:
        return refuse(fmt::format("the metadata '{}' is no string", key_));
      default:
        return refuse(fmt::format("tensor '{}' has an unexpected or repeated value for '{}'",
                                  current_.name, key_));
    }
  }

  RawSafetensorsHeader& result_;
  const char* begin_;
  const char*& furthest_;
  Level level_ = Level::outside;
  std::unordered_set<std::string> names_;
  std::string key_;
  RawSafetensorsEntry current_;
  std::vector<uint64_t> offsets_;
  int seen_ = 0;  // 1 dtype, 2 shape, 4 data_offsets
  std::string problem_;
  uint64_t error_offset_ = 0;
};

}  // namespace

std::string read_safetensors_json(std::string_view json, RawSafetensorsHeader& result,
                                  uint64_t& error_offset) {
  error_offset = 0;
  if (json.empty() || json.front() != '{') return "the header does not begin with '{'";
  const char* furthest = json.data();
  HeaderHandler handler(result, json.data(), furthest);
  const bool read =
      nlohmann::json::sax_parse(CountingIterator(json.data(), &furthest),
                                CountingIterator(json.data() + json.size(), &furthest), &handler);
  error_offset = handler.error_offset();
  return read ? std::string() : handler.problem();
}

}  // namespace dltrain
