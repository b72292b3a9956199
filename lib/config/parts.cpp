#include "config/parts.h"

#include <fmt/format.h>

#include "config/scalar.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

// Returns whether `over` replaces all of `below`.
bool covers(const ConfigNode& over, const ConfigNode& below) {
  if (!over.is_map() || !below.is_map()) return true;
  for (size_t i = 0; i < below.keys.size(); ++i) {
    const ConfigNode* value = over.find(below.keys[i].text);
    if (!value || !covers(*value, below.items[i])) return false;
  }
  return true;
}

}  // namespace

ConfigNode check_common_keys(const PartsSlot& parts, const ConfigNode& map,
                             const ConfigNode& common, const std::string& path,
                             Diagnostics& diagnostics) {
  ConfigNode replacing = ConfigNode::make_map(common.location);
  for (size_t i = 0; i < common.keys.size(); ++i) {
    const ConfigNode::Key& key = common.keys[i];
    const bool override = key.location.is_override();
    std::string instead, old;
    bool hidden = true, same_text = true, replaces = override && key.text != "type";
    for (size_t p = 0; hidden && p < parts.parts.size(); ++p) {
      const std::string& part = parts.parts[p].name;
      const ConfigNode* own = map.find(part);
      const bool written = own && !own->is_null();
      if (!written && p > 0) continue;  // there is no such part
      const ConfigNode* value = written ? own->find(key.text) : nullptr;
      hidden = value && covers(*value, common.items[i]);
      if (!hidden) break;
      same_text = same_text && value->location.source == key.location.source;
      replaces = replaces && !value->location.is_override() &&
                 (instead.empty() || flow_text(*value) == old);
      old = flow_text(*value);
      instead += (instead.empty() ? "" : ", ") + join_path(join_path(path, part), key.text);
    }
    if (!hidden || !(override || same_text)) continue;
    if (replaces) {
      replacing.set(key, common.items[i]);
      continue;
    }
    diagnostics.add(key.location, "{} has no effect, because every split has its own '{}'; set {}",
                    join_path(path, key.text), key.text, instead);
  }
  return replacing;
}

bool refuse_borrowed_kind(const PartsSlot& parts, size_t index, const ConfigNode& map,
                          const ConfigNode& node, const std::string& path,
                          Diagnostics& diagnostics) {
  const std::string &part = parts.parts[index].name, &first = parts.parts[0].name;
  const ConfigNode *own = map.find(part), *other = map.find(first);
  const ConfigNode* kind = other ? other->find("type") : nullptr;
  if (!own || !kind || !kind->is_scalar() || !node.is_map() || node.keys.empty() ||
      node.find("type") || parts.table.index(node.keys[0].text) != KindTableRef::npos) {
    return false;
  }
  diagnostics.add(own->location,
                  "missing key 'type' in {0}: the keys of {1} do not apply to it; give "
                  "{0} a type and all its keys, such as {0}.type={2}",
                  join_path(path, part), join_path(path, first), kind->text);
  return true;
}

}  // namespace dltrain
