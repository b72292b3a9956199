// The type-erased view of a described struct for implementations of Fields. Configuration structs
// need only fields.h.
//
// Slots point into the described object and are valid during the describe() call that made them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/diagnostics.h"
#include "config/source_location.h"

namespace dltrain {

class Fields;

// The value `auto` of a number that the program can choose.
struct Auto {
  bool operator==(const Auto&) const = default;
};
using IntegerOrAuto = std::variant<Auto, int64_t>;

// An ordered map of text to text, as written.
using TextPairs = std::vector<std::pair<std::string, std::string>>;

// monostate: an optional without a value.
using Value =
    std::variant<std::monostate, Auto, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, TextPairs>;

enum class ValueType {
  boolean,
  integer,
  number,
  text,
  choice,  // text, one of `choices`
  integers,
  numbers,
  texts,
  text_map,
};

struct ChoiceName {
  std::string name = {};
  std::string doc = {};
};

// One scalar, list of scalars or map of texts.
struct ValueSlot {
  ValueType type;
  bool optional = false;    // may hold nothing
  bool allow_auto = false;  // may hold Auto
  std::vector<ChoiceName> choices = {};
  int64_t lowest = INT64_MIN, highest = INT64_MAX;  // the range of the member's integer type
  std::function<Value()> get = {};
  std::function<void(const Value&)> set = {};
};

// A reference to a struct with `void describe(Fields&)`. Optional members of the struct:
//   * it derives from ConfigObject: the parser stores the place there
//   * `void validate(Diagnostics&) const`: called after its keys have been read
//   * `void describe_common(Fields&)`: keys that every kind of its family has, documented once
//   * `static bool rewrite(ConfigNode& map, Diagnostics&)`: called before any key is read; may
//     replace short forms by the keys of describe(). It returns false after reporting problems
//   * `static constexpr std::string_view kBareKey`: `x: VALUE` means `x: {kBareKey: VALUE}` where
//     VALUE is not a map
struct ConfigNode;
// Calls describe() between begin_common() and end_common() of the visitor.
void visit_common(Fields& fields, const std::function<void()>& describe);

class ObjectRef {
 public:
  template <typename T>
  static ObjectRef of(T& object) {
    ObjectRef ref;
    ref.object_ = &object;
    ref.describe_ = [](void* self, Fields& fields) { static_cast<T*>(self)->describe(fields); };
    if constexpr (std::derived_from<T, ConfigObject>) ref.located_ = &object;
    if constexpr (requires(const T& t, Diagnostics& p) { t.validate(p); }) {
      ref.validate_ = [](const void* self, Diagnostics& diagnostics) {
        static_cast<const T*>(self)->validate(diagnostics);
      };
    }
    if constexpr (requires(T & t, Fields & f) { t.describe_common(f); }) {
      ref.describe_common_ = [](void* self, Fields& fields) {
        static_cast<T*>(self)->describe_common(fields);
      };
    }
    if constexpr (requires(ConfigNode & n, Diagnostics & p) { T::rewrite(n, p); }) {
      ref.rewrite_ = [](ConfigNode& map, Diagnostics& diagnostics) {
        return T::rewrite(map, diagnostics);
      };
    }
    if constexpr (requires { T::kBareKey; }) ref.bare_key_ = T::kBareKey;
    return ref;
  }

  void describe(Fields& fields) const {
    describe_(object_, fields);
    if (describe_common_) visit_common(fields, [&] { describe_common_(object_, fields); });
  }
  bool rewrites() const { return rewrite_ != nullptr; }
  bool rewrite(ConfigNode& map, Diagnostics& diagnostics) const {
    return rewrite_(map, diagnostics);
  }
  void validate(Diagnostics& diagnostics) const {
    if (validate_) validate_(object_, diagnostics);
  }
  ConfigObject* located() const { return located_; }
  std::string_view bare_key() const { return bare_key_; }
  // Equal for all objects of one type; detects recursion in documentation.
  const void* type() const { return reinterpret_cast<const void*>(describe_); }

 private:
  void* object_ = nullptr;
  void (*describe_)(void*, Fields&) = nullptr;
  void (*describe_common_)(void*, Fields&) = nullptr;
  bool (*rewrite_)(ConfigNode&, Diagnostics&) = nullptr;
  void (*validate_)(const void*, Diagnostics&) = nullptr;
  ConfigObject* located_ = nullptr;
  std::string_view bare_key_;
};

// A key that rewrite() removes from the map: it is documented, but never bound.
struct RewrittenSlot {
  std::string type = {};    // "map of names to blocks"
  std::string schema = {};  // JSON
  // The row describes keys with arbitrary names.
  bool free_names = false;
};

// A sub-struct, possibly absent.
struct SectionSlot {
  bool optional = false;
  std::function<bool()> present = {};
  std::function<ObjectRef()> open = {};  // makes it present
  std::function<void()> close = {};      // makes it absent; only an optional one has it
};

// A list of sub-structs.
struct SectionsSlot {
  std::function<size_t()> size = {};
  std::function<ObjectRef(size_t)> at = {};
  std::function<void()> clear = {};
  std::function<ObjectRef()> append = {};
  std::function<void(const std::function<void(ObjectRef)>&)> prototype = {};
};

// Base of objects that are chosen by `type` from a table: layers, optimizers, schedules, datasets.
struct ConfigVariant : ConfigObject {
  std::string kind;  // the row's name; the parser and make_kind() set it

  virtual ~ConfigVariant() = default;
  virtual void describe(Fields& fields) = 0;
  virtual void describe_common(Fields&) {}
  virtual void validate(Diagnostics&) const {}
};

// A KindTable without its base type.
struct KindTableRef {
  struct Row {
    std::string_view name, doc, bare_key;
  };
  const void* id = nullptr;    // equal for equal tables
  std::string_view name = {};  // "optimizer"
  size_t size = 0;
  std::function<Row(size_t)> row = {};
  std::function<std::unique_ptr<ConfigVariant>(size_t)> make = {};  // `kind` is set

  // Returns the index of a kind, or npos if the table has no such row.
  size_t index(std::string_view kind) const {
    for (size_t i = 0; i < size; ++i) {
      if (row(i).name == kind) return i;
    }
    return npos;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (size_t i = 0; i < size; ++i) out.emplace_back(row(i).name);
    return out;
  }
  static constexpr size_t npos = static_cast<size_t>(-1);
};

// One object of a chosen kind. A non-null initial value is the default, and its kind the default
// kind.
struct KindSlot {
  KindTableRef table = {};
  std::function<ConfigVariant*()> get = {};
  std::function<void(std::unique_ptr<ConfigVariant>)> set = {};
};

// Several objects of one family in one map, which may have keys common to all of them.
struct PartsSlot {
  struct Part {
    std::string name, doc;
    KindSlot slot;
  };
  KindTableRef table = {};
  std::vector<Part> parts = {};
};

// A list of objects of chosen kinds.
struct KindsSlot {
  KindTableRef table = {};
  std::function<size_t()> size = {};
  std::function<ConfigVariant*(size_t)> at = {};
  std::function<void()> clear = {};
  std::function<void(std::unique_ptr<ConfigVariant>)> append = {};
};

}  // namespace dltrain
