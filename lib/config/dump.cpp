#include "config/dump.h"

#include <filesystem>

#include <fmt/format.h>

#include "config/environment.h"
#include "config/paths.h"
#include "config/scalar.h"

namespace dltrain {
namespace {

std::string absolute_path(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

std::string scalar_text(std::string_view text) {
  return quoted_when_needed(escape_references(text));
}

struct ValueText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(Auto) const { return "auto"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::string& value) const { return scalar_text(value); }
  template <typename T>
  std::string operator()(const std::vector<T>& list) const {
    std::string out = "[";
    for (const T& element : list) out += (out.size() > 1 ? ", " : "") + (*this)(element);
    return out + "]";
  }
  std::string operator()(const TextPairs& pairs) const {
    std::string out = "{";
    for (const auto& [name, text] : pairs) {
      out += (out.size() > 1 ? ", " : "") + quoted_when_needed(name) + ": " + (*this)(text);
    }
    return out + "}";
  }
};

class Dumper : public Fields {
 public:
  explicit Dumper(std::string& out) : out_(out) {}

  // Writes the keys of one object, one per line. The caller writes `{}` for an object without keys.
  void body(ObjectRef object, std::string_view kind, int indent) {
    const int before = std::exchange(indent_, indent);
    const bool outer_common = std::exchange(common_, false);
    if (!kind.empty()) line("type", scalar_text(kind));
    object.describe(*this);
    indent_ = before;
    common_ = outer_common;
  }

  void begin_common() override { common_ = true; }
  void end_common() override { common_ = false; }

 protected:
  void on_value(std::string_view name, const ValueSlot& slot, const Key& key) override {
    Value value = slot.get();
    if (key.is_path) each_path(value, [](std::string& path) { path = absolute_path(path); });
    // Common keys without a value are omitted, because every object of the family would have them.
    if (common_ && std::holds_alternative<std::monostate>(value)) return;
    line(name, value_text(value));
  }
  void on_section(std::string_view name, const SectionSlot& slot, const Key&) override {
    if (!slot.present()) return line(name, "null");
    nested(name, slot.open(), {});
  }
  void on_sections(std::string_view name, const SectionsSlot& slot, const Key&) override {
    if (slot.size() == 0) return line(name, "[]");
    open(name);
    for (size_t i = 0; i < slot.size(); ++i) element(slot.at(i), {});
    close();
  }
  void on_kind(std::string_view name, const KindSlot& slot, const Key&) override {
    ConfigVariant* chosen = slot.get();
    if (!chosen && common_) return;
    if (!chosen) return line(name, "null");
    nested(name, ObjectRef::of(*chosen), chosen->kind);
  }
  void on_kinds(std::string_view name, const KindsSlot& slot, const Key&) override {
    if (slot.size() == 0) return line(name, "[]");
    open(name);
    for (size_t i = 0; i < slot.size(); ++i) {
      element(ObjectRef::of(*slot.at(i)), slot.at(i)->kind);
    }
    close();
  }
  void on_parts(const PartsSlot& slot, const Key& key) override {
    for (const PartsSlot::Part& part : slot.parts) on_kind(part.name, part.slot, key);
  }

 private:
  void line(std::string_view name, std::string_view value) {
    out_ += fmt::format("{:{}}{}: {}\n", "", indent_, name, value);
  }
  void open(std::string_view name) {
    out_ += fmt::format("{:{}}{}:\n", "", indent_, name);
    indent_ += 2;
  }
  void close() { indent_ -= 2; }

  void nested(std::string_view name, ObjectRef object, std::string_view kind) {
    const size_t before = out_.size();
    open(name);
    const size_t start = out_.size();
    body(object, kind, indent_);
    close();
    if (out_.size() == start) {
      out_.resize(before);
      line(name, "{}");
    }
  }
  void element(ObjectRef object, std::string_view kind) {
    const size_t start = out_.size();
    body(object, kind, indent_ + 2);
    if (out_.size() == start) {
      out_ += fmt::format("{:{}}- {{}}\n", "", indent_);
    } else {
      out_[start + static_cast<size_t>(indent_)] = '-';
    }
  }

  std::string& out_;
  int indent_ = 0;
  bool common_ = false;
};

}  // namespace

std::string value_text(const Value& value) {
  return std::visit(ValueText{}, value);
}

std::string dump_config(ObjectRef object) {
  std::string out;
  Dumper(out).body(object, {}, 0);
  return out;
}

}  // namespace dltrain
