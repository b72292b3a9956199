#include "config/schema.h"

#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/parse_value.h"

namespace dltrain {
namespace {

using Json = nlohmann::ordered_json;

// Any scalar may be a reference to the environment.
Json or_reference(Json schema) {
  return {{"anyOf", Json::array({std::move(schema), {{"$ref", "#/$defs/reference"}}})}};
}

Json or_null(Json schema) {
  return {{"anyOf", Json::array({std::move(schema), {{"type", "null"}}})}};
}

Json limited(Json schema, const Key& key) {
  if (key.min) schema["minimum"] = *key.min;
  if (key.max) schema["maximum"] = *key.max;
  if (key.above) schema["exclusiveMinimum"] = *key.above;
  if (key.below) schema["exclusiveMaximum"] = *key.below;
  return schema;
}

Json sized_schema(Json schema, const Key& key) {
  if (key.min_size) schema["minItems"] = *key.min_size;
  if (key.max_size) schema["maxItems"] = *key.max_size;
  return schema;
}

Json list_schema(const Json& element, const Key& key) {
  Json list = sized_schema({{"type", "array"}, {"items", element}}, key);
  if (!key.scalar_ok) return list;
  return {{"anyOf", Json::array({element, std::move(list)})}};
}

const Json kText = {{"type", Json::array({"string", "number"})}};

// The schema of a scalar, or of one element of a list.
Json scalar_schema(const ValueSlot& slot, const Key& key) {
  switch (slot.type) {
    case ValueType::boolean:
      return or_reference({{"type", "boolean"}});
    case ValueType::integer:
    case ValueType::integers: {
      Key bounded = key;
      if (!key.min && !key.above && slot.lowest == 0) bounded.min = 0;
      return or_reference(limited({{"type", "integer"}}, bounded));
    }
    case ValueType::number:
    case ValueType::numbers:
      return or_reference(limited({{"type", "number"}}, key));
    case ValueType::choice: {
      Json names = Json::array();
      for (const ChoiceName& choice : slot.choices) names.push_back(choice.name);
      return or_reference({{"enum", std::move(names)}});
    }
    case ValueType::text:
    case ValueType::texts:
    case ValueType::text_map:
      return kText;
  }
  return Json::object();
}

Json value_schema(const ValueSlot& slot, const Key& key) {
  Json schema = scalar_schema(slot, key);
  if (slot.type == ValueType::integers || slot.type == ValueType::numbers ||
      slot.type == ValueType::texts) {
    schema = list_schema(schema, key);
  } else if (slot.type == ValueType::text_map) {
    schema = {{"type", "object"}, {"additionalProperties", kText}};
    if (key.scalar_ok) schema = {{"anyOf", Json::array({std::move(schema), kText})}};
  }
  if (slot.allow_auto) schema = {{"anyOf", Json::array({schema, {{"const", "auto"}}})}};
  return may_be_null(slot, key) ? or_null(std::move(schema)) : schema;
}

struct DefaultJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(Auto) const { return "auto"; }
  Json operator()(const TextPairs& pairs) const {
    Json object = Json::object();
    for (const auto& [name, text] : pairs) object[name] = text;
    return object;
  }
  template <typename T>
  Json operator()(const T& value) const {
    return value;
  }
};

class SchemaWriter : public Fields {
 public:
  // The schema of one object's map; `kind` adds `type`.
  Json object_schema(ObjectRef object) {
    Json outer = std::exchange(properties_, Json::object());
    const bool outer_free = std::exchange(free_names_, false);
    const bool outer_common = std::exchange(common_, false);
    object.describe(*this);
    Json schema = {{"type", "object"},
                   {"properties", std::exchange(properties_, std::move(outer))},
                   {"additionalProperties", std::exchange(free_names_, outer_free)}};
    common_ = outer_common;
    return schema;
  }
  Json take_definitions() { return std::move(definitions_); }

  // The common keys of a family are definitions, to which every kind refers.
  void begin_common() override { common_ = true; }
  void end_common() override { common_ = false; }

 protected:
  void on_value(std::string_view name, const ValueSlot& slot, const Key& key) override {
    Json schema = value_schema(slot, key);
    if (!key.required) schema["default"] = std::visit(DefaultJson{}, slot.get());
    add(name, std::move(schema), key);
  }
  void on_section(std::string_view name, const SectionSlot& slot, const Key& key) override {
    add(name, or_null(section_schema(slot.open())), key);
  }
  void on_sections(std::string_view name, const SectionsSlot& slot, const Key& key) override {
    Json element;
    slot.prototype([&](ObjectRef object) { element = or_null(section_schema(object)); });
    add_list(name, std::move(element), slot.size(), key);
  }
  void on_kind(std::string_view name, const KindSlot& slot, const Key& key) override {
    Json schema = {{"$ref", family(slot.table)}};
    if (slot.get()) schema = with_default_kind(slot);
    add(name, or_null(std::move(schema)), key);
  }
  void on_kinds(std::string_view name, const KindsSlot& slot, const Key& key) override {
    add_list(name, {{"$ref", family(slot.table)}}, slot.size(), key);
  }
  void on_rewritten(std::string_view name, const RewrittenSlot& slot, const Key& key) override {
    if (slot.free_names) {
      free_names_ = true;
    } else {
      add(name, parse_ordered_json(slot.schema), key);
    }
  }
  // Allows the parts and, beside them, every key of every kind.
  void on_parts(const PartsSlot& slot, const Key& key) override {
    Json common = {{"type", {{"enum", slot.table.names()}}}};
    for (size_t i = 0; i < slot.table.size; ++i) {
      const Json kind = object_schema(ObjectRef::of(*slot.table.make(i)));
      for (const auto& [name, schema] : kind["properties"].items()) {
        if (!common.contains(name)) {
          common[name] = schema;
        } else if (common[name] != schema) {
          common[name] = Json::object();  // kinds differ: any value is allowed
        }
      }
    }
    for (const PartsSlot::Part& part : slot.parts) {
      Key own = key;
      own.doc = part.doc;
      add(part.name,
          or_null({{"type", "object"}, {"properties", common}, {"additionalProperties", false}}),
          own);
    }
    for (const auto& [name, schema] : common.items()) {
      if (!properties_.contains(name)) properties_[name] = schema;
    }
  }

 private:
  void add_list(std::string_view name, Json element, size_t size, const Key& key) {
    Json list = sized_schema({{"type", "array"}, {"items", std::move(element)}}, key);
    add(name, key.required || size > 0 ? std::move(list) : or_null(std::move(list)), key);
  }

  void add(std::string_view name, Json schema, const Key& key) {
    if (!key.doc.empty()) schema["description"] = key.doc;
    if (common_) {
      const std::string definition = "common." + std::string(name);
      definitions_[definition] = std::move(schema);
      schema = {{"$ref", "#/$defs/" + definition}};
    }
    properties_[std::string(name)] = std::move(schema);
  }

  // A section that contains itself becomes a definition; all others are written in place.
  Json section_schema(ObjectRef object) {
    const size_t next = section_numbers_.size();
    const size_t number = section_numbers_.try_emplace(object.type(), next).first->second;
    const std::string name = fmt::format("section{}", number);
    const Json reference = {{"$ref", "#/$defs/" + name}};
    if (!active_.insert(object.type()).second) {
      recursive_.insert(object.type());
      return reference;
    }
    Json schema = object_schema(object);
    active_.erase(object.type());
    if (!object.bare_key().empty()) {
      const Json bare = schema["properties"][std::string(object.bare_key())];
      schema = {{"anyOf", Json::array({std::move(schema), bare})}};
    }
    if (!recursive_.contains(object.type())) return schema;
    definitions_[name] = std::move(schema);
    return reference;
  }

  // Returns the schema of one kind; `type` may be omitted for a default kind.
  Json kind_schema(const KindTableRef& table, size_t row, bool needs_type) {
    Json body = object_schema(ObjectRef::of(*table.make(row)));
    Json properties = {{"type", {{"const", table.row(row).name}}}};
    properties.update(body["properties"]);
    Json schema = {{"type", "object"}, {"description", table.row(row).doc}};
    schema["properties"] = std::move(properties);
    if (needs_type) schema["required"] = Json::array({"type"});
    schema["additionalProperties"] = body["additionalProperties"];
    return schema;
  }

  // `{linear: {features: 3}}`, `{linear: 3, bias: false}`.
  Json keyed_schema(const KindTableRef& table, size_t row, const Json& kind) {
    const KindTableRef::Row info = table.row(row);
    Json properties = kind["properties"];
    properties.erase("type");
    Json nested = {{"type", "object"},
                   {"properties", properties},
                   {"additionalProperties", kind["additionalProperties"]}};
    Json values = Json::array({std::move(nested), {{"type", "null"}}});
    if (!info.bare_key.empty()) values.push_back(properties[std::string(info.bare_key)]);
    const std::string name(info.name);
    Json schema = {{"type", "object"}, {"description", info.doc}};
    properties[name] = {{"anyOf", std::move(values)}};
    schema["properties"] = std::move(properties);
    schema["required"] = Json::array({name});
    schema["additionalProperties"] = kind["additionalProperties"];
    return schema;
  }

  // Returns the reference to a family's definition, which the first call writes.
  std::string family(const KindTableRef& table) {
    const std::string name(table.name);
    const std::string reference = "#/$defs/" + name;
    if (!families_.insert(table.id).second) return reference;
    Json names = Json::array();
    Json forms = Json::array();
    for (size_t i = 0; i < table.size; ++i) {
      names.push_back(table.row(i).name);
      Json kind = kind_schema(table, i, true);
      Json keyed = keyed_schema(table, i, kind);
      forms.push_back(std::move(kind));
      forms.push_back(std::move(keyed));
    }
    forms.insert(forms.begin(), or_reference({{"enum", std::move(names)}}));
    definitions_[name] = {{"anyOf", std::move(forms)}};
    return reference;
  }

  Json with_default_kind(const KindSlot& slot) {
    const std::string reference = family(slot.table);
    const size_t row = slot.table.index(slot.get()->kind);
    Json without_type = kind_schema(slot.table, row, false);
    return {{"anyOf", Json::array({{{"$ref", reference}}, std::move(without_type)})}};
  }

  Json properties_ = Json::object();
  bool free_names_ = false;  // of the object that is being written
  bool common_ = false;
  Json definitions_ = Json::object();
  std::set<const void*> families_;
  std::set<const void*> active_, recursive_;
  std::map<const void*, size_t> section_numbers_;
};

}  // namespace

std::string config_schema(ObjectRef object, const std::string& title) {
  SchemaWriter writer;
  Json body = writer.object_schema(object);
  Json definitions = writer.take_definitions();
  definitions["reference"] = {{"type", "string"}, {"pattern", "\\$\\{[A-Za-z_]"}};
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  const Json text = {{"type", "string"}};
  Json extends = {{"anyOf", Json::array({text, {{"type", "array"}, {"items", text}}})},
                  {"description", "Files that this one extends, relative to it"}};
  schema["type"] = "object";
  schema["properties"] = {{"extends", std::move(extends)}};
  schema["properties"].update(body["properties"]);
  schema["patternProperties"] = {{"^x-", Json::object()}};
  schema["additionalProperties"] = false;
  schema["$defs"] = std::move(definitions);
  return json_text(schema, 2) + "\n";
}

}  // namespace dltrain
