#include "config/key_index.h"

#include <set>

#include "config/suggest.h"

namespace dltrain {
namespace {

class KeyCollector : public Fields {
 public:
  KeyCollector(std::vector<IndexedKey>& keys, bool deep) : keys_(keys), deep_(deep) {}

  void visit(ObjectRef object, std::string path, bool addressable) {
    if (!active_.insert(object.type()).second) return;
    describe_in(object, std::move(path), {}, addressable);
    active_.erase(object.type());
  }

 protected:
  void on_value(std::string_view name, const ValueSlot&, const Key& key) override {
    add(name, key);
  }
  void on_section(std::string_view name, const SectionSlot& slot, const Key& key) override {
    add(name, key);
    if (!deep_) return;
    const bool present = slot.present();
    visit(slot.open(), join_path(path_, name), addressable_);
    if (!present) slot.close();
  }
  void on_sections(std::string_view name, const SectionsSlot& slot, const Key& key) override {
    add(name, key);
    if (!deep_) return;
    slot.prototype([&](ObjectRef object) { visit(object, join_path(path_, name), false); });
  }
  void on_kind(std::string_view name, const KindSlot& slot, const Key& key) override {
    add(name, key);
    if (deep_) kinds(name, slot.table, addressable_);
  }
  void on_kinds(std::string_view name, const KindsSlot& slot, const Key& key) override {
    add(name, key);
    if (deep_) kinds(name, slot.table, false);
  }

  void on_rewritten(std::string_view name, const RewrittenSlot& slot, const Key& key) override {
    if (!slot.free_names) add(name, key);
  }
  void on_parts(const PartsSlot& slot, const Key&) override {
    for (const PartsSlot::Part& part : slot.parts) add(part.name, {});
    if (deep_) kinds("", slot.table, addressable_);  // common keys are listed beside the parts
  }

 private:
  void describe_in(ObjectRef object, std::string path, std::string kind, bool addressable) {
    std::swap(path_, path);
    std::swap(kind_, kind);
    std::swap(addressable_, addressable);
    object.describe(*this);
    path_ = std::move(path);
    kind_ = std::move(kind);
    addressable_ = addressable;
  }
  void add(std::string_view name, const Key& key) {
    keys_.push_back({std::string(name), addressable_ ? join_path(path_, name) : "", key.known_as,
                     key.is_path, kind_});
  }
  void kinds(std::string_view name, const KindTableRef& table, bool addressable) {
    // A table inside its own kinds (layers in layers) adds no keys.
    if (!tables_.insert(table.id).second) return;
    for (size_t i = 0; i < table.size; ++i) {
      const auto made = table.make(i);
      describe_in(ObjectRef::of(*made), join_path(path_, name), made->kind, addressable);
    }
    tables_.erase(table.id);
  }

  std::vector<IndexedKey>& keys_;
  bool deep_;
  std::string path_;
  std::string kind_;  // the kind whose keys are described
  bool addressable_ = true;
  std::set<const void*> active_;
  std::set<const void*> tables_;
};

}  // namespace

std::vector<IndexedKey> own_keys(ObjectRef object) {
  std::vector<IndexedKey> keys;
  KeyCollector(keys, false).visit(object, "", true);
  return keys;
}

std::vector<IndexedKey> all_keys(ObjectRef object) {
  std::vector<IndexedKey> keys;
  KeyCollector(keys, true).visit(object, "", true);
  return keys;
}

std::string find_in_other_sections(std::string_view wrong, const std::vector<IndexedKey>& keys) {
  std::string found;
  for (const bool by_alias : {false, true}) {
    for (const IndexedKey& key : keys) {
      if (key.path.empty()) continue;
      if (key.path == wrong) return key.path;  // a section or key of the whole file
      const bool meant = by_alias ? contains(key.known_as, wrong) : key.name == wrong;
      if (!meant || key.path == found) continue;
      if (!found.empty()) return {};
      found = key.path;
    }
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<std::string> kinds_with(std::string_view path, std::string_view wrong,
                                    const std::vector<IndexedKey>& keys) {
  std::vector<std::string> kinds;
  for (const IndexedKey& key : keys) {
    if (key.path != path || key.kind.empty()) continue;
    if (key.name != wrong && !contains(key.known_as, wrong)) continue;
    if (!contains(kinds, key.kind)) kinds.push_back(key.kind);
  }
  return kinds;
}

}  // namespace dltrain
