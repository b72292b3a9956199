// Fields: a configuration struct describes its keys once, for the parser (bind.h), the resolved
// dump (dump.h), docs/config.md (reference.h), the JSON Schema (schema.h) and the suggestions for
// misspelt keys.
//
// A struct has a member `void describe(Fields& f)` that names each key, the member it fills, and
// its meaning. The member's initial value is the default. An example that compiles:
//
//   struct Optimizer : ConfigVariant {  // chosen by `type`; ConfigVariant has location and kind
//     double learning_rate = 1e-3;
//     void describe(Fields& f) override {
//       f.number("learning_rate", learning_rate,
//                {.doc = "Peak learning rate", .above = 0, .known_as = {"lr"}});
//     }
//   };
//   struct AdamW : Optimizer {
//     std::array<double, 2> betas{0.9, 0.999};
//     void describe(Fields& f) override {
//       Optimizer::describe(f);
//       f.numbers("betas", betas, {.doc = "Decay of both moments", .min = 0, .below = 1});
//     }
//   };
//   inline const KindTable<Optimizer>& optimizer_table() {
//     static const KindTable<Optimizer> table{
//         "optimizer", {{"adamw", "Adam with decoupled weight decay", make_kind_of<AdamW>},
//                       {"plain", "Gradient descent", make_kind_of<Optimizer>}}};
//     return table;
//   }
//   enum class Reduction { fast, fixed };
//   struct Training : ConfigObject {  // for the places of its keys
//     int64_t global_batch_size = 0;
//     std::optional<IntegerOrAuto> micro_batch_size;
//     Reduction reduction = Reduction::fast;
//     void describe(Fields& f) {
//       f.integer("global_batch_size", global_batch_size,
//                 {.doc = "Samples a step", .required = true, .min = 1});
//       f.integer("micro_batch_size", micro_batch_size, {.doc = "Samples at a time", .min = 1});
//       f.choice("reduction", reduction,
//                {{"fast", Reduction::fast}, {"fixed", Reduction::fixed}},
//                {.doc = "Order of sums"});
//     }
//     void validate(Diagnostics& diagnostics) const {  // called when the keys are valid
//       if (global_batch_size % 2) diagnostics.add(*this, "global_batch_size", "must be even");
//     }
//   };
//   struct Experiment {
//     std::string name = "run";
//     std::unique_ptr<Optimizer> optimizer = make_kind(optimizer_table(), "adamw");
//     std::vector<std::unique_ptr<Layer>> layers;
//     Training training;
//     void describe(Fields& f) {
//       f.text("name", name, {.doc = "Name of the run"});
//       f.one_of("optimizer", optimizer, optimizer_table(), {.doc = "The update rule"});
//       f.list_of("layers", layers, layer_table(), {.doc = "Applied in order"});
//       f.section("training", training, {.doc = "How long and how large"});
//     }
//   };
//
// std::optional members may be absent (or written `null`) and are empty by default. describe() must
// name the same keys for all values of the members, and no key twice.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "config/slots.h"

namespace dltrain {

// Properties of a key besides its name, member and type.
struct Key {
  std::string doc;                 // one sentence for docs/config.md, with the unit
  bool required = false;           // the key must be given
  std::optional<double> min = {};  // inclusive limits; of a list: of each element
  std::optional<double> max = {};
  std::optional<double> above = {};  // exclusive limits
  std::optional<double> below = {};
  std::optional<size_t> min_size = {};  // of lists
  std::optional<size_t> max_size = {};
  // A list of one element may be written as the element; a text map with one entry as its text,
  // with the name of the member's first default.
  bool scalar_ok = false;
  // The value is a path (config/paths.h), which is absolute in the resolved configuration.
  bool is_path = false;
  std::vector<std::string> known_as = {};  // other names, for which this one is suggested
};

// A part of Fields::parts().
template <typename Base>
struct Part {
  std::string name;
  std::unique_ptr<Base>& member;
  std::string doc = {};
};

template <typename E>
struct Choice {
  std::string name;
  E value;
  std::string doc = {};
};

// `bare_key`: in a list, `- name: VALUE` means {type: name, bare_key: VALUE} unless VALUE is a map.
template <typename Base>
struct KindRow {
  std::string_view name;
  std::string_view doc;
  std::unique_ptr<Base> (*make)();
  std::string_view bare_key = {};
};

// The registry of one family, an explicit table. Kinds are written `{type: name, …}`, or in short
// `name` (no keys), or in lists `name: {…}`, `name: VALUE` (see bare_key).
template <typename Base>
struct KindTable {
  std::string_view name;  // of the family, singular: "optimizer", "layer"
  std::vector<KindRow<Base>> rows;

  KindTableRef ref() const {
    KindTableRef ref;
    ref.id = this;
    ref.name = name;
    ref.size = rows.size();
    ref.row = [this](size_t i) {
      return KindTableRef::Row{rows[i].name, rows[i].doc, rows[i].bare_key};
    };
    ref.make = [this](size_t i) -> std::unique_ptr<ConfigVariant> {
      std::unique_ptr<Base> made = rows[i].make();
      made->kind = rows[i].name;
      return made;
    };
    return ref;
  }
};

// A table of the rows of several files.
template <typename Base>
KindTable<Base> joined_table(std::string_view name,
                             const std::vector<std::vector<KindRow<Base>>>& files) {
  KindTable<Base> table{name, {}};
  for (const auto& rows : files) table.rows.insert(table.rows.end(), rows.begin(), rows.end());
  return table;
}

// Converts rows of derived kinds, because KindTable is a template over Base.
template <typename T>
struct KindMaker {
  template <typename Base>
  using Function = std::unique_ptr<Base> (*)();
  template <typename Base>
  requires std::derived_from<T, Base>
  operator Function<Base>() const {
    return [] { return std::unique_ptr<Base>(std::make_unique<T>()); };
  }
};
template <typename T>
inline constexpr KindMaker<T> make_kind_of{};

// Returns a default object of the kind `name`. Throws Error(internal) for an unknown name.
template <typename Base>
std::unique_ptr<Base> make_kind(const KindTable<Base>& table, std::string_view name) {
  for (const KindRow<Base>& row : table.rows) {
    if (row.name != name) continue;
    std::unique_ptr<Base> made = row.make();
    made->kind = row.name;
    return made;
  }
  throw Error(ExitCode::internal, fmt::format("internal error: no {} '{}'", table.name, name));
}

// The type of a member's value: T for T and for std::optional<T>.
template <typename M>
struct MemberValueOf {
  using type = M;
};
template <typename T>
struct MemberValueOf<std::optional<T>> {
  using type = T;
};
template <typename M>
using MemberValue = typename MemberValueOf<M>::type;
template <typename M, typename T>
concept MemberOf = std::same_as<MemberValue<M>, T>;

namespace detail {

template <typename T>
inline constexpr size_t kArraySize = 0;
template <typename T, size_t N>
inline constexpr size_t kArraySize<std::array<T, N>> = N;

// The key with the size of an array as its limits.
template <typename M>
Key sized(Key key) {
  constexpr size_t kSize = kArraySize<MemberValue<M>>;
  if constexpr (0 < kSize) key.min_size = key.max_size = kSize;
  return key;
}

}  // namespace detail

class Fields {
 public:
  virtual ~Fields() = default;

  // Scalars: the member is a T or a std::optional<T>.
  template <MemberOf<bool> M>
  void boolean(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::boolean}, member, key);
  }
  template <MemberOf<std::string> M>
  void text(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::text}, member, key);
  }
  template <MemberOf<double> M>
  void number(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::number}, member, key);
  }
  // Any integer type, or IntegerOrAuto: a number or the word `auto`. A value that the type cannot
  // hold is refused; uint64_t takes 0 … 2^63−1.
  template <typename M>
  void integer(std::string_view name, M& member, const Key& key);
  // One of a list of names; E or std::optional<E>.
  template <typename M>
  void choice(std::string_view name, M& member,
              const std::type_identity_t<std::vector<Choice<MemberValue<M>>>>& choices,
              const Key& key);

  // Lists of scalars: a std::vector, an optional one, or a std::array, whose size is checked.
  template <typename M>
  void integers(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::integers}, member, detail::sized<M>(key));
  }
  template <typename M>
  void numbers(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::numbers}, member, detail::sized<M>(key));
  }
  template <MemberOf<std::vector<std::string>> M>
  void texts(std::string_view name, M& member, const Key& key) {
    put(name, {.type = ValueType::texts}, member, key);
  }
  // A map of free names to texts, in the order of the file.
  void text_map(std::string_view name, TextPairs& member, const Key& key) {
    put(name, {.type = ValueType::text_map}, member, key);
  }

  // Sub-structs: T or std::optional<T>.
  template <typename M>
  void section(std::string_view name, M& member, const Key& key);
  template <typename T>
  void list(std::string_view name, std::vector<T>& member, const Key& key);

  // Maps that choose a kind by `type`. The kind of a member that is initially not null is the
  // default kind (with the defaults of its table row); a member that is initially null and not
  // required may be absent.
  template <typename Base>
  void one_of(std::string_view name, std::unique_ptr<Base>& member, const KindTable<Base>& table,
              const Key& key);
  template <typename Base>
  void list_of(std::string_view name, std::vector<std::unique_ptr<Base>>& member,
               const KindTable<Base>& table, const Key& key);
  // Kinds with common keys, which are written once. In data: {type: text, path: a, eval_fraction:
  // 0.1, eval: {path: b}} the parts are `train` and `eval`. Every key of the map that nothing else
  // describes (type, path) is common and applies to each part unless the part has its own. A part
  // is created if it is written, the first one also if there are common keys. Others stay null. A
  // struct may have parts once, and must not be a kind itself.
  template <typename Base>
  void parts(std::initializer_list<Part<Base>> parts, const KindTable<Base>& table, const Key& key);

  // A key that the struct's rewrite() replaces (see ObjectRef), for documentation only.
  void rewritten(std::string_view name, const RewrittenSlot& slot, const Key& key) {
    on_rewritten(name, slot, key);
  }

  // Called before and after the keys that all kinds of a family have.
  virtual void begin_common() {}
  virtual void end_common() {}

 protected:
  virtual void on_value(std::string_view name, const ValueSlot& slot, const Key& key) = 0;
  virtual void on_section(std::string_view name, const SectionSlot& slot, const Key& key) = 0;
  virtual void on_sections(std::string_view name, const SectionsSlot& slot, const Key& key) = 0;
  virtual void on_kind(std::string_view name, const KindSlot& slot, const Key& key) = 0;
  virtual void on_kinds(std::string_view name, const KindsSlot& slot, const Key& key) = 0;
  virtual void on_parts(const PartsSlot& slot, const Key& key) = 0;
  virtual void on_rewritten(std::string_view, const RewrittenSlot&, const Key&) {}

 private:
  template <typename M>
  void put(std::string_view name, ValueSlot slot, M& member, const Key& key);
  // The same with the conversions between the member's type and Value.
  template <typename M, typename ToValue, typename FromValue>
  void put_as(std::string_view name, ValueSlot slot, M& member, const Key& key, ToValue to_value,
              FromValue from_value);
};

}  // namespace dltrain

#include "config/fields_inline.h"
