#include "config/reference.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "config/dump.h"
#include "config/parse_value.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

// A cell of a Markdown table: no line ends, no bars.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string type_text(const ValueSlot& slot, const Key& key) {
  const std::string or_auto = slot.allow_auto ? " or `auto`" : "";
  const std::string or_one = key.scalar_ok ? ", or one alone" : "";
  switch (slot.type) {
    case ValueType::boolean:
      return "boolean";
    case ValueType::integer:
      return "integer" + or_auto;
    case ValueType::number:
      return "number" + or_auto;
    case ValueType::text:
      return key.is_path ? "path" : "text";
    case ValueType::choice:
      return "choice";
    case ValueType::integers:
      return "list of integers" + or_one;
    case ValueType::numbers:
      return "list of numbers" + or_one;
    case ValueType::texts:
      return "list of texts" + or_one;
    case ValueType::text_map:
      return "map of texts";
  }
  return {};
}

std::string limits_text(const ValueSlot& slot, const Key& key) {
  if (slot.type == ValueType::choice) {
    std::string out;
    for (const ChoiceName& choice : slot.choices) {
      if (!out.empty()) out += ", ";
      out += code(choice.name);
      if (!choice.doc.empty()) out += fmt::format(" ({})", choice.doc);
    }
    return out;
  }
  const bool integer = slot.type == ValueType::integer;
  const std::string range = describe_range(key, integer ? &slot : nullptr);
  const std::string size = describe_size(key);
  return size + (size.empty() || range.empty() ? "" : ", each ") + range;
}

constexpr std::string_view kTableHead =
    "| key | type | default | limits | meaning |\n"
    "|---|---|---|---|---|\n";

std::string markdown(const KeyRow& row) {
  return fmt::format("| {} | {} | {} | {} | {} |\n", row.name, row.type, cell(row.initial),
                     cell(row.limits), cell(row.doc));
}

// Removes the Markdown.
std::string plain(std::string text) {
  std::erase(text, '`');
  const size_t link = text.find(" ([kinds]");
  return link == std::string::npos ? text : text.substr(0, link);
}

// The keys of an object, and the chapters of the sections inside it.
struct Keys {
  std::vector<std::string> names, rows;  // rows: lines of the table, one for each name
  std::vector<std::pair<std::string, std::string>> sections;  // path and chapter
};

std::string text_of(const Keys& keys) {
  std::string out;
  if (!keys.rows.empty()) out = fmt::format("{}{}\n", kTableHead, fmt::join(keys.rows, ""));
  for (const auto& [path, chapter] : keys.sections) out += chapter;
  return out;
}

class ReferenceWriter : public Fields {
 public:
  std::string write(ObjectRef object) {
    std::string out = text_of(keys_of(object, ""));
    for (size_t i = 0; i < families_.size(); ++i) {
      // The text of a family may append further families (layers inside datasets).
      const KindTableRef family = families_[i];
      out += family_text(family);
    }
    return out;
  }

  // Returns the object's own keys, then those that its family shares.
  std::vector<KeyRow> rows_of(ObjectRef object) {
    object.describe(*this);
    table_.insert(table_.end(), common_.begin(), common_.end());
    for (KeyRow& row : table_) {
      row = {plain(row.name), plain(row.type), plain(row.initial), plain(row.limits),
             plain(row.doc)};
    }
    return table_;
  }

  // Common keys of a family are listed once, above its kinds.
  void begin_common() override { kinds_own_ = std::exchange(table_, {}); }
  void end_common() override { common_ = std::exchange(table_, std::exchange(kinds_own_, {})); }

 protected:
  void on_rewritten(std::string_view name, const RewrittenSlot& slot, const Key& key) override {
    row(slot.free_names ? "…" : name, slot.type, key.required ? "required" : "none", "", key);
  }
  void on_value(std::string_view name, const ValueSlot& slot, const Key& key) override {
    const std::string initial =
        std::holds_alternative<std::monostate>(slot.get()) ? "none" : code(value_text(slot.get()));
    row(name, type_text(slot, key), key.required ? "required" : initial, limits_text(slot, key),
        key);
  }
  void on_section(std::string_view name, const SectionSlot& slot, const Key& key) override {
    const char* initial = slot.present() ? "its defaults" : "none";
    row(name, "section", key.required ? "required" : initial, "", key);
    add_section(join_path(path_, name), key.doc, slot.open());
  }
  void on_sections(std::string_view name, const SectionsSlot& slot, const Key& key) override {
    row(name, "list of sections", key.required ? "required" : "empty", describe_size(key), key);
    slot.prototype(
        [&](ObjectRef object) { add_section(join_path(path_, name) + "[]", key.doc, object); });
  }
  void on_kind(std::string_view name, const KindSlot& slot, const Key& key) override {
    const ConfigVariant* initial = slot.get();
    row(name, fmt::format("{0} ([kinds](#{0}))", slot.table.name),
        key.required ? "required" : (initial ? code(initial->kind) : "none"), "", key);
    add_family(slot.table);
  }
  void on_kinds(std::string_view name, const KindsSlot& slot, const Key& key) override {
    row(name, fmt::format("list of {0} ([kinds](#{0}))", slot.table.name),
        key.required ? "required" : "empty", describe_size(key), key);
    add_family(slot.table);
  }
  void on_parts(const PartsSlot& slot, const Key& key) override {
    for (const PartsSlot::Part& part : slot.parts) {
      Key own = key;
      own.doc = part.doc;
      own.required = false;
      on_kind(part.name, part.slot, own);
    }
    table_.push_back({"…", fmt::format("keys of a {0} ([kinds](#{0}))", slot.table.name),
                      key.required ? "required" : "none", "", key.doc});
  }

 private:
  void row(std::string_view name, std::string_view type, std::string_view initial,
           std::string_view limits, const Key& key) {
    table_.push_back(
        {code(name), std::string(type), std::string(initial), std::string(limits), key.doc});
  }

  Keys keys_of(ObjectRef object, const std::string& path) {
    std::vector<KeyRow> outer_table = std::exchange(table_, {});
    std::string outer_path = std::exchange(path_, path);
    auto outer_sections = std::exchange(sections_, {});
    object.describe(*this);
    Keys out{.names = {}, .rows = {}, .sections = std::move(sections_)};
    for (const KeyRow& row : table_) {
      out.names.push_back(row.name);
      out.rows.push_back(markdown(row));
    }
    table_ = std::move(outer_table);
    path_ = std::move(outer_path);
    sections_ = std::move(outer_sections);
    return out;
  }

  void add_section(const std::string& path, const std::string& doc, ObjectRef object) {
    if (!active_.insert(object.type()).second) return;
    const std::string text = text_of(keys_of(object, path));
    sections_.emplace_back(path, fmt::format("### {}\n\n{}\n\n{}", code(path), doc, text));
    active_.erase(object.type());
  }

  void add_family(const KindTableRef& family) {
    if (known_families_.insert(family.id).second) families_.push_back(family);
  }

  // Common keys, and keys that at least kShared kinds describe alike, are listed once, above the
  // kinds.
  std::string family_text(const KindTableRef& family) {
    std::string out = fmt::format("## {}\n\nKinds: ", family.name);
    std::vector<Keys> kinds;
    std::map<std::string, int> uses;  // of a row or chapter
    common_.clear();
    for (size_t i = 0; i < family.size; ++i) {
      out += (i > 0 ? ", " : "") + code(family.row(i).name);
      kinds.push_back(keys_of(ObjectRef::of(*family.make(i)), ""));
      for (const std::string& row : kinds.back().rows) ++uses[row];
      for (const auto& [path, chapter] : kinds.back().sections) ++uses[chapter];
    }
    out += ".\n\n";
    if (!common_.empty()) {
      out += fmt::format("Every {} also has these keys:\n\n{}", family.name, kTableHead);
      for (const KeyRow& row : std::exchange(common_, {})) out += markdown(row);
      out += "\n";
    }
    const int enough = std::max(3, static_cast<int>(family.size) / 4);
    Keys shared;
    std::set<std::string> written;
    std::string kinds_text;
    for (size_t i = 0; i < family.size; ++i) {
      const KindTableRef::Row row = family.row(i);
      kinds_text += fmt::format("### {} {}\n\n{}\n\n", family.name, code(row.name), row.doc);
      if (!row.bare_key.empty()) {
        kinds_text += fmt::format("In short: `{}: VALUE` sets `{}`.\n\n", row.name, row.bare_key);
      }
      Keys own;
      std::string others;
      for (size_t k = 0; k < kinds[i].rows.size(); ++k) {
        const bool is_shared = uses[kinds[i].rows[k]] >= enough;
        if (is_shared) others += (others.empty() ? "" : ", ") + kinds[i].names[k];
        if (is_shared && !written.insert(kinds[i].rows[k]).second) continue;
        Keys& to = is_shared ? shared : own;
        to.names.push_back(kinds[i].names[k]);
        to.rows.push_back(kinds[i].rows[k]);
      }
      for (const auto& section : kinds[i].sections) {
        const bool is_shared = uses[section.second] >= enough;
        if (!is_shared || written.insert(section.second).second) {
          (is_shared ? shared : own).sections.push_back(section);
        }
      }
      kinds_text += text_of(own);
      if (!others.empty()) {
        kinds_text += fmt::format("Keys described above: {}.\n\n", others);
      } else if (own.rows.empty()) {
        kinds_text += "No keys.\n\n";
      }
    }
    if (!shared.rows.empty()) out += "Keys of several kinds:\n\n" + text_of(shared);
    return out + kinds_text;
  }

  std::vector<KeyRow> table_;
  std::vector<KeyRow> kinds_own_, common_;  // of a kind, and of its family
  std::string path_;
  std::vector<std::pair<std::string, std::string>> sections_;
  std::set<const void*> active_;
  std::vector<KindTableRef> families_;
  std::set<const void*> known_families_;
};

}  // namespace

std::string config_reference(ObjectRef object) {
  std::string out = ReferenceWriter().write(object);
  while (out.size() > 1 && out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::vector<KeyRow> key_rows(ObjectRef object) {
  return ReferenceWriter().rows_of(object);
}

}  // namespace dltrain
