#include "config/bind.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "config/key_index.h"
#include "config/override.h"
#include "config/parse_value.h"
#include "config/parts.h"
#include "config/paths.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

// The state of one bind(): the problems found so far, and an index of keys for suggestions.
struct Session {
  Diagnostics& diagnostics;
  ObjectRef root;
  std::vector<IndexedKey> everywhere = {};  // filled at the first unknown key
  // Keys of the map around a part, as suggestions for unknown keys of the next object.
  std::vector<std::string> outer_names = {};

  const std::vector<IndexedKey>& index() {
    if (everywhere.empty()) everywhere = all_keys(root);
    return everywhere;
  }
};

// Returns " in optimizer (type adamw)", or nothing at the top level.
std::string inside(const std::string& path, std::string_view kind) {
  if (path.empty()) return {};
  return kind.empty() ? fmt::format(" in {}", path) : fmt::format(" in {} (type {})", path, kind);
}

// A choice of a kind: the row of the table and the map of its keys.
struct VariantChoice {
  size_t row = KindTableRef::npos;
  ConfigNode body;  // a map, without `type`
};

void bind_object(ObjectRef object, const ConfigNode& map, const std::string& path,
                 std::string_view kind, Session& session);

// Reads one map into one object.
class Binder : public Fields {
 public:
  Binder(const ConfigNode& map, const std::string& path, std::string_view kind, Session& session)
      : map_(map),
        path_(path),
        kind_(kind),
        session_(session),
        known_(map.keys.size(), false),
        before_key_(session.diagnostics.reported()),
        outer_names_(std::exchange(session.outer_names, {})) {}

  // Called after describe(). The parts, if any, share the keys that were not described.
  void bind_parts(ObjectRef object) {
    if (!parts_) return;
    ConfigNode common = ConfigNode::make_map(map_.location);
    for (size_t i = 0; i < map_.keys.size(); ++i) {
      if (known_[i]) continue;
      known_[i] = true;
      common.set(map_.keys[i], map_.items[i]);
    }
    const ConfigNode replacing =
        check_common_keys(*parts_, map_, common, path_, session_.diagnostics);
    for (size_t i = 0; i < parts_->parts.size(); ++i) {
      const PartsSlot::Part& part = parts_->parts[i];
      begin_key(part.name);
      const ConfigNode* own = map_.find(part.name);
      const bool written = own && !own->is_null();
      if (!written && (i > 0 || (common.keys.empty() && !parts_required_))) continue;
      ConfigNode node = common;
      if (written) merge_into(node, *own);
      if (!replacing.keys.empty()) merge_into(node, replacing);
      if (i > 0 && refuse_borrowed_kind(*parts_, i, map_, node, path_, session_.diagnostics))
        continue;
      // A problem of a common key occurs in every part, but is reported once.
      Diagnostics diagnostics;
      Session session{diagnostics, session_.root, session_.everywhere};
      const std::string path = written ? join_path(path_, part.name) : path_;
      Binder binder(node, path, kind_, session);
      for (const IndexedKey& key : own_keys(object)) session.outer_names.push_back(key.name);
      auto made = binder.bind_kind(parts_->table, node, path, "");
      session_.diagnostics.add_at_new_locations(diagnostics);
      if (made) part.slot.set(std::move(made));
    }
  }

  // Called after describe(). Reports unknown and missing keys. A key that was misspelt is not
  // reported as missing.
  void report_keys(ObjectRef object) {
    begin_key("");
    std::vector<std::string> dropped;
    std::string of_type;
    for (size_t i = 0; i < map_.keys.size(); ++i) {
      if (known_[i]) continue;
      if (!map_.keys[i].of_type.empty()) {
        dropped.push_back(map_.keys[i].text);
        of_type = map_.keys[i].of_type;
        continue;
      }
      const std::string meant = unknown_key(map_.keys[i], object);
      if (!meant.empty()) wrong_.push_back(meant);
      std::erase(missing_, meant);
    }
    if (!dropped.empty())
      warn_of_dropped_keys(path_, of_type, kind_, dropped, session_.diagnostics);
    for (const std::string& name : missing_) {
      wrong_.push_back(name);
      session_.diagnostics.add(map_.location, "missing key '{}'{}", name, inside(path_, kind_));
    }
  }

  // validate() of an object with invalid keys sees their defaults, so its problems with these keys
  // are left out. Its problems with other keys are valid.
  void validate(ObjectRef object) {
    Diagnostics found;
    object.validate(found);
    for (const Diagnostic& diagnostic : found.all()) {
      if (!is_about_error(diagnostic))
        session_.diagnostics.add(diagnostic.location, diagnostic.message);
    }
  }

 protected:
  void on_value(std::string_view name, const ValueSlot& slot, const Key& key) override {
    const ConfigNode* node = take(name, key);
    if (!node) return;
    const std::string& argument = node->location.argument;
    const std::string path = argument.empty() ? join_path(path_, name) : argument;
    auto value = parse_value(*node, path, slot, key, session_.diagnostics);
    if (!value) return;
    if (key.is_path) {
      each_path(*value, [&](std::string& path) { path = find_path(node->location, path); });
    }
    slot.set(*value);
  }

  void on_section(std::string_view name, const SectionSlot& slot, const Key& key) override {
    const ConfigNode* node = take(name, key);
    if (!node) {
      // A section that is not written is bound too, so that its missing keys are reported.
      if (!slot.optional && !key.required) {
        bind_object(slot.open(), ConfigNode::make_map(map_.location), join_path(path_, name), {},
                    session_);
      }
      return;
    }
    if (node->is_null() && slot.optional) {
      slot.close();
      return;
    }
    bind_section(slot.open(), *node, join_path(path_, name));
  }

  void on_sections(std::string_view name, const SectionsSlot& slot, const Key& key) override {
    const ConfigNode* node = take(name, key);
    if (!node || (node->is_null() && !key.required && slot.size() == 0)) return;
    slot.clear();
    each(*node, name, key, [&](const ConfigNode& item, const std::string& path) {
      bind_section(slot.append(), item, path);
    });
  }

  void on_kind(std::string_view name, const KindSlot& slot, const Key& key) override {
    const ConfigNode* node = take(name, key);
    const ConfigVariant* initial = slot.get();
    if (!node && (key.required || !initial)) return;
    // A default kind that is not written is bound too, so that its missing keys are reported.
    const ConfigNode unwritten = ConfigNode::make_map(map_.location);
    if (!node) node = &unwritten;
    if (node->is_null() && !key.required && !initial) return;
    const std::string default_kind = initial ? initial->kind : "";
    if (auto made = bind_kind(slot.table, *node, join_path(path_, name), default_kind)) {
      slot.set(std::move(made));
    }
  }

  void on_kinds(std::string_view name, const KindsSlot& slot, const Key& key) override {
    const ConfigNode* node = take(name, key);
    if (!node || (node->is_null() && !key.required && slot.size() == 0)) return;
    slot.clear();
    each(*node, name, key, [&](const ConfigNode& item, const std::string& path) {
      if (auto made = bind_kind(slot.table, item, path, "")) slot.append(std::move(made));
    });
  }

  void on_parts(const PartsSlot& slot, const Key& key) override {
    parts_ = slot;
    parts_required_ = key.required;
    for (const PartsSlot::Part& part : slot.parts) take(part.name, {});
  }

 private:
  // Problems reported since the last call belong to the value of `reading_`.
  void begin_key(std::string_view name) {
    if (session_.diagnostics.reported() != before_key_) wrong_.push_back(reading_);
    before_key_ = session_.diagnostics.reported();
    reading_ = name;
  }

  // Returns whether the problem names a key whose value was already reported as invalid.
  bool is_about_error(const Diagnostic& diagnostic) const {
    return std::ranges::any_of(wrong_, [&](const std::string& name) {
      const ConfigNode* value = map_.find(name);
      return (value && value->location.is_same_place(diagnostic.location)) ||
             mentions_name(diagnostic.message, name);
    });
  }

  // Returns the node of a key and marks it as known; records a required key that is missing.
  const ConfigNode* take(std::string_view name, const Key& key) {
    begin_key(name);
    for (size_t i = 0; i < map_.keys.size(); ++i) {
      if (map_.keys[i].text != name) continue;
      known_[i] = true;
      return &map_.items[i];
    }
    if (key.required) missing_.emplace_back(name);
    return nullptr;
  }

  // Calls `use` with every element of a list and its path.
  template <typename Use>
  void each(const ConfigNode& node, std::string_view name, const Key& key, Use use) {
    const std::string path = join_path(path_, name);
    if (!node.is_list()) {
      session_.diagnostics.add(node.location, "expected a list in {}, got {}", path,
                               describe_found(node));
      return;
    }
    check_size(node, path, key, session_.diagnostics);
    for (size_t i = 0; i < node.items.size(); ++i) {
      // An element that rewrite() has made keeps the name of the user's key.
      const std::string& written = node.items[i].location.path;
      use(node.items[i], written.empty() ? fmt::format("{}[{}]", path, i) : written);
    }
  }

  void bind_section(ObjectRef object, const ConfigNode& node, const std::string& path) {
    const std::string_view bare = object.bare_key();
    if (node.is_map() && !node.keys.empty() && node.keys[0].of_scalar && !bare.empty()) {
      ConfigNode map = bare_map(bare, node.items[0]);
      merge_into(map, node);
      map.erase("type");
      bind_object(object, map, path, {}, session_);
    } else if (node.is_map()) {
      bind_object(object, node, path, {}, session_);
    } else if (node.is_null()) {
      bind_object(object, ConfigNode::make_map(node.location), path, {}, session_);
    } else if (!bare.empty()) {
      bind_object(object, bare_map(bare, node), path, {}, session_);
    } else {
      session_.diagnostics.add(node.location, "expected a map in {}, got {}", path,
                               describe_found(node));
    }
  }

  static ConfigNode bare_map(std::string_view key, const ConfigNode& value) {
    ConfigNode map = ConfigNode::make_map(value.location);
    map.set({std::string(key), value.location}, value);
    return map;
  }

  std::unique_ptr<ConfigVariant> bind_kind(const KindTableRef& table, const ConfigNode& node,
                                           const std::string& path,
                                           const std::string& default_kind) {
    const std::string& argument = node.location.argument;
    const std::string& shown = argument.empty() ? path : argument;
    const auto form = choose(table, node, shown, default_kind);
    if (!form) return nullptr;
    std::unique_ptr<ConfigVariant> object = table.make(form->row);
    bind_object(ObjectRef::of(*object), form->body, shown, object->kind, session_);
    return object;
  }

  // Reads the forms of a choice: `kind`, `{type: kind, …}`, `{kind: {…}, …}`, `{kind: VALUE}`, and
  // `{…}` where there is a default kind.
  std::optional<VariantChoice> choose(const KindTableRef& table, const ConfigNode& node,
                                      const std::string& path, const std::string& default_kind) {
    if (node.is_scalar()) {
      return named(table, node, path, ConfigNode::make_map(node.location));
    }
    if (node.is_null() && !default_kind.empty()) {
      return VariantChoice{table.index(default_kind), ConfigNode::make_map(node.location)};
    }
    if (!node.is_map()) {
      session_.diagnostics.add(node.location, "expected a map with 'type' in {}, got {}", path,
                               describe_found(node));
      return {};
    }
    if (const ConfigNode* type = node.find("type")) {
      if (!type->is_scalar()) {
        session_.diagnostics.add(type->location, "expected the name of a type in {}, got {}", path,
                                 describe_found(*type));
        return {};
      }
      ConfigNode body = node;
      body.erase("type");
      return named(table, *type, path, std::move(body));
    }
    const size_t first = node.keys.empty() ? KindTableRef::npos : table.index(node.keys[0].text);
    if (first != KindTableRef::npos) return keyed(table, first, node);
    if (!default_kind.empty()) return VariantChoice{table.index(default_kind), node};
    no_type(table, node, path);
    return {};
  }

  std::optional<VariantChoice> named(const KindTableRef& table, const ConfigNode& type,
                                     const std::string& path, ConfigNode body) {
    const size_t row = table.index(type.text);
    if (row != KindTableRef::npos) return VariantChoice{row, std::move(body)};
    unknown_type(table, type.text, type.location, path);
    return {};
  }

  // {linear: {features: 10}} and {linear: 10, bias: false}: the first key names the kind.
  std::optional<VariantChoice> keyed(const KindTableRef& table, size_t row,
                                     const ConfigNode& node) {
    const ConfigNode& value = node.items[0];
    const std::string_view bare = table.row(row).bare_key;
    ConfigNode body = ConfigNode::make_map(node.keys[0].location);
    if (value.is_map()) {
      body = value;
      body.location = node.keys[0].location;
    } else if (!value.is_null()) {
      if (bare.empty()) {
        session_.diagnostics.add(value.location, "expected a map of the keys of '{}', got {}",
                                 node.keys[0].text, describe_found(value));
        return {};
      }
      body.set({std::string(bare), value.location}, value);
    }
    for (size_t i = 1; i < node.keys.size(); ++i) {
      const ConfigNode::Key& key = node.keys[i];
      // A key may not occur twice in one text; from another text (-s, a later file) it is an
      // override.
      const ConfigNode* before = body.find(key.text);
      if (before && before->location.source == key.location.source) {
        session_.diagnostics.add(key.location, "duplicate key '{}', first given at {}", key.text,
                                 to_string(before->location));
        continue;
      }
      ConfigNode rest = ConfigNode::make_map(body.location);
      rest.set(key, node.items[i]);
      merge_into(body, std::move(rest));
    }
    return VariantChoice{row, std::move(body)};
  }

  void unknown_type(const KindTableRef& table, const std::string& name,
                    const SourceLocation& location, const std::string& path) {
    const std::vector<std::string> names = table.names();
    const std::string near = nearest_name(name, names);
    std::string message = fmt::format("unknown type '{}' in {}", name, path);
    message += near.empty() ? fmt::format("; known types: {}", join_names(names))
                            : fmt::format("; did you mean '{}'?", near);
    session_.diagnostics.add(location, std::move(message));
  }

  void no_type(const KindTableRef& table, const ConfigNode& node, const std::string& path) {
    const std::vector<std::string> names = table.names();
    if (node.keys.size() == 1) {
      const ConfigNode::Key& key = node.keys[0];
      if (!nearest_name(key.text, names).empty()) {
        return unknown_type(table, key.text, key.location, path);
      }
      if (path.ends_with(']')) {  // elements of lists may be short: `linear: 64`
        return session_.diagnostics.add(key.location,
                                        "missing key 'type' in {}, and '{}' is no type; known "
                                        "types: {}",
                                        path, key.text, join_names(names));
      }
    }
    session_.diagnostics.add(node.location, "missing key 'type' in {}; known types: {}", path,
                             join_names(names));
  }

  // Reports an unknown key. Returns the key that was probably meant, or an empty text.
  std::string unknown_key(const ConfigNode::Key& key, ObjectRef object) {
    if (session_.diagnostics.full()) {
      session_.diagnostics.add(key.location, "unknown key");
      return {};
    }
    const std::vector<IndexedKey> own = own_keys(object);
    std::string message = fmt::format("unknown key '{}'{}", key.text, inside(path_, kind_));
    std::string meant = meant_key(key.text, own);
    if (const std::string other = of_other_kinds(meant, key.text); !other.empty()) {
      message += other;
      meant.clear();
    }
    if (meant.empty() && key.text == "type" && kind_.empty() && !path_.empty()) {
      std::vector<std::string> names;
      for (const IndexedKey& known : own) names.push_back(known.name);
      message += fmt::format(", which has no types; its keys are {}", some_names(names));
    } else if (meant == key.text) {
      message += "; it belongs at the top level of the file";
    } else if (!meant.empty()) {
      message += fmt::format("; did you mean '{}'?", meant);
    }
    session_.diagnostics.add(key.location, std::move(message));
    return meant;
  }

  // Returns "; type jsonl has it" if the suggested key belongs to this map, but to other kinds.
  std::string of_other_kinds(const std::string& meant, const std::string& wrong) {
    const size_t dot = meant.rfind('.');
    if (kind_.empty() || dot == std::string::npos) return {};
    // The index lists common keys beside the parts.
    const std::string location = meant.substr(0, dot), name = meant.substr(dot + 1);
    if (location != path_ && location != path_.substr(0, path_.rfind('.'))) return {};
    const std::vector<std::string> kinds = kinds_with(meant, wrong, session_.index());
    if (kinds.empty() || contains(kinds, kind_)) return {};
    const bool one = kinds.size() == 1;
    return fmt::format("; {} {} {} it{}", one ? "type" : "types", join_names(kinds),
                       one ? "has" : "have", name == wrong ? "" : fmt::format(", as '{}'", name));
  }

  std::string meant_key(const std::string& wrong, const std::vector<IndexedKey>& own) {
    std::vector<std::string> names;
    for (const IndexedKey& key : own) {
      if (contains(key.known_as, wrong)) return key.name;
      names.push_back(key.name);
    }
    if (wrong == "type" && !path_.empty()) return {};  // many sections have types
    // The same name in another section is preferred to a similar name in this one.
    if (std::string elsewhere = find_in_other_sections(wrong, session_.index());
        !elsewhere.empty()) {
      return elsewhere;
    }
    if (!kind_.empty()) names.emplace_back("type");
    names.insert(names.end(), outer_names_.begin(), outer_names_.end());
    return nearest_name(wrong, names);
  }

  const ConfigNode& map_;
  const std::string& path_;
  std::string_view kind_;
  Session& session_;
  std::vector<bool> known_;
  std::vector<std::string> missing_;
  std::vector<std::string> wrong_;  // keys with errors in their values, and missing ones
  std::string reading_;             // the key whose value is being read
  size_t before_key_;               // problems reported before it
  std::vector<std::string> outer_names_;
  std::optional<PartsSlot> parts_;
  bool parts_required_ = false;
};

void bind_object(ObjectRef object, const ConfigNode& written, const std::string& path,
                 std::string_view kind, Session& session) {
  ConfigNode rewritten;
  if (object.rewrites()) {
    rewritten = written;
    if (!object.rewrite(rewritten, session.diagnostics)) return;
  }
  const ConfigNode& map = object.rewrites() ? rewritten : written;
  if (ConfigObject* located = object.located()) {
    located->location = map.location;
    located->location.path = path;
    located->given_keys.clear();
    for (size_t i = 0; i < map.keys.size(); ++i) {
      SourceLocation location = map.items[i].location;
      location.path = join_path(path, map.keys[i].text);
      located->given_keys.push_back({map.keys[i].text, std::move(location)});
    }
  }
  Binder binder(map, path, kind, session);
  object.describe(binder);
  binder.bind_parts(object);
  binder.report_keys(object);
  binder.validate(object);
}

}  // namespace

void bind(ObjectRef object, const ConfigNode& root, Diagnostics& diagnostics) {
  if (root.is_null()) return bind(object, ConfigNode::make_map(root.location), diagnostics);
  if (!root.is_map()) {
    diagnostics.add(root.location, "expected a map of sections, got {}", describe_found(root));
    return;
  }
  Session session{diagnostics, object};
  bind_object(object, root, "", {}, session);
}

}  // namespace dltrain
