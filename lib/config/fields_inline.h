// The bodies of the templates of fields.h, which includes this file: each makes a slot of a member.
#pragma once

namespace dltrain {

inline void visit_common(Fields& fields, const std::function<void()>& describe) {
  fields.begin_common();
  describe();
  fields.end_common();
}

namespace detail {

// Member types whose Value holds them as they are.
template <typename T>
Value to_value(const T& member) {
  if constexpr (std::same_as<T, bool>) {
    return member;
  } else if constexpr (std::integral<T>) {
    return static_cast<int64_t>(member);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<double>(member);
  } else if constexpr (std::same_as<T, IntegerOrAuto>) {
    return std::visit([](auto v) { return Value(v); }, member);
  } else {
    return member;
  }
}

template <typename T>
T from_value(const Value& value) {
  if constexpr (std::same_as<T, bool>) {
    return std::get<bool>(value);
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(std::get<int64_t>(value));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(std::get<double>(value));
  } else if constexpr (std::same_as<T, IntegerOrAuto>) {
    if (std::holds_alternative<Auto>(value)) return Auto{};
    return std::get<int64_t>(value);
  } else {
    return std::get<T>(value);
  }
}

template <typename E>
ValueSlot choice_slot(const std::vector<Choice<E>>& choices) {
  ValueSlot slot{.type = ValueType::choice};
  for (const Choice<E>& choice : choices) slot.choices.push_back({choice.name, choice.doc});
  return slot;
}

template <typename E>
Value choice_name(const std::vector<Choice<E>>& choices, const E& value) {
  for (const Choice<E>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  throw Error(ExitCode::internal, "internal error: a choice's default is not among its names");
}

template <typename E>
E choice_value(const std::vector<Choice<E>>& choices, const Value& name) {
  for (const Choice<E>& choice : choices) {
    if (choice.name == std::get<std::string>(name)) return choice.value;
  }
  throw Error(ExitCode::internal, "internal error: unknown choice");
}

template <std::integral T>
ValueSlot integer_slot() {
  static_assert(!std::same_as<T, bool>);
  constexpr auto highest = static_cast<uint64_t>(std::numeric_limits<T>::max());
  return {.type = ValueType::integer,
          .lowest = static_cast<int64_t>(std::numeric_limits<T>::min()),
          .highest = static_cast<int64_t>(highest > INT64_MAX ? uint64_t{INT64_MAX} : highest)};
}

template <typename T, size_t N>
std::function<Value()> array_get(std::array<T, N>& member) {
  return [&member] { return Value(std::vector<T>(member.begin(), member.end())); };
}

template <typename T, size_t N>
std::function<void(const Value&)> array_set(std::array<T, N>& member) {
  return [&member](const Value& value) {
    const auto& list = std::get<std::vector<T>>(value);
    std::copy(list.begin(), list.end(), member.begin());
  };
}

}  // namespace detail

template <typename T>
void Fields::put(std::string_view name, ValueSlot slot, T& member, const Key& key) {
  slot.get = [&member] { return detail::to_value(member); };
  slot.set = [&member](const Value& value) { member = detail::from_value<T>(value); };
  on_value(name, slot, key);
}

template <typename T>
void Fields::put(std::string_view name, ValueSlot slot, std::optional<T>& member, const Key& key) {
  slot.optional = true;
  slot.get = [&member] { return member ? detail::to_value(*member) : Value(); };
  slot.set = [&member](const Value& value) {
    member.reset();
    if (!std::holds_alternative<std::monostate>(value)) member = detail::from_value<T>(value);
  };
  on_value(name, slot, key);
}

inline void Fields::boolean(std::string_view name, bool& member, const Key& key) {
  put(name, {.type = ValueType::boolean}, member, key);
}
inline void Fields::boolean(std::string_view name, std::optional<bool>& member, const Key& key) {
  put(name, {.type = ValueType::boolean}, member, key);
}
inline void Fields::text(std::string_view name, std::string& member, const Key& key) {
  put(name, {.type = ValueType::text}, member, key);
}
inline void Fields::text(std::string_view name, std::optional<std::string>& member,
                         const Key& key) {
  put(name, {.type = ValueType::text}, member, key);
}
inline void Fields::number(std::string_view name, double& member, const Key& key) {
  put(name, {.type = ValueType::number}, member, key);
}
inline void Fields::number(std::string_view name, std::optional<double>& member, const Key& key) {
  put(name, {.type = ValueType::number}, member, key);
}

template <std::integral T>
void Fields::integer(std::string_view name, T& member, const Key& key) {
  put(name, detail::integer_slot<T>(), member, key);
}
template <std::integral T>
void Fields::integer(std::string_view name, std::optional<T>& member, const Key& key) {
  put(name, detail::integer_slot<T>(), member, key);
}
inline void Fields::integer(std::string_view name, IntegerOrAuto& member, const Key& key) {
  put(name, {.type = ValueType::integer, .allow_auto = true}, member, key);
}
inline void Fields::integer(std::string_view name, std::optional<IntegerOrAuto>& member,
                            const Key& key) {
  put(name, {.type = ValueType::integer, .allow_auto = true}, member, key);
}

template <typename E>
void Fields::choice(std::string_view name, E& member,
                    const std::type_identity_t<std::vector<Choice<E>>>& choices, const Key& key) {
  ValueSlot slot = detail::choice_slot<E>(choices);
  slot.get = [&] { return detail::choice_name<E>(choices, member); };
  slot.set = [&](const Value& value) { member = detail::choice_value<E>(choices, value); };
  on_value(name, slot, key);
}
template <typename E>
void Fields::choice(std::string_view name, std::optional<E>& member,
                    const std::type_identity_t<std::vector<Choice<E>>>& choices, const Key& key) {
  ValueSlot slot = detail::choice_slot<E>(choices);
  slot.optional = true;
  slot.get = [&] { return member ? detail::choice_name<E>(choices, *member) : Value(); };
  slot.set = [&](const Value& value) {
    member.reset();
    if (!std::holds_alternative<std::monostate>(value)) {
      member = detail::choice_value<E>(choices, value);
    }
  };
  on_value(name, slot, key);
}

inline void Fields::integers(std::string_view name, std::vector<int64_t>& member, const Key& key) {
  put(name, {.type = ValueType::integers}, member, key);
}
inline void Fields::integers(std::string_view name, std::optional<std::vector<int64_t>>& member,
                             const Key& key) {
  put(name, {.type = ValueType::integers}, member, key);
}
inline void Fields::numbers(std::string_view name, std::vector<double>& member, const Key& key) {
  put(name, {.type = ValueType::numbers}, member, key);
}
inline void Fields::texts(std::string_view name, std::vector<std::string>& member, const Key& key) {
  put(name, {.type = ValueType::texts}, member, key);
}
inline void Fields::texts(std::string_view name, std::optional<std::vector<std::string>>& member,
                          const Key& key) {
  put(name, {.type = ValueType::texts}, member, key);
}
inline void Fields::text_map(std::string_view name, TextPairs& member, const Key& key) {
  put(name, {.type = ValueType::text_map}, member, key);
}

template <size_t N>
void Fields::integers(std::string_view name, std::array<int64_t, N>& member, const Key& key) {
  Key sized = key;
  sized.min_size = sized.max_size = N;
  on_value(name,
           {.type = ValueType::integers,
            .get = detail::array_get(member),
            .set = detail::array_set(member)},
           sized);
}
template <size_t N>
void Fields::numbers(std::string_view name, std::array<double, N>& member, const Key& key) {
  Key sized = key;
  sized.min_size = sized.max_size = N;
  on_value(name,
           {.type = ValueType::numbers,
            .get = detail::array_get(member),
            .set = detail::array_set(member)},
           sized);
}

template <typename T>
void Fields::section(std::string_view name, T& member, const Key& key) {
  on_section(name,
             {.optional = false,
              .present = [] { return true; },
              .open = [&member] { return ObjectRef::of(member); },
              .close = [] {}},
             key);
}
template <typename T>
void Fields::section(std::string_view name, std::optional<T>& member, const Key& key) {
  on_section(name,
             {.optional = true,
              .present = [&member] { return member.has_value(); },
              .open =
                  [&member] {
                    if (!member) member.emplace();
                    return ObjectRef::of(*member);
                  },
              .close = [&member] { member.reset(); }},
             key);
}

template <typename T>
void Fields::list(std::string_view name, std::vector<T>& member, const Key& key) {
  SectionsSlot slot;
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) { return ObjectRef::of(member[i]); };
  slot.name = [](size_t) { return std::string(); };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member](const std::string&) { return ObjectRef::of(member.emplace_back()); };
  slot.prototype = [](const std::function<void(ObjectRef)>& use) {
    T object;
    use(ObjectRef::of(object));
  };
  on_sections(name, slot, key);
}
template <typename T>
void Fields::map(std::string_view name, std::vector<std::pair<std::string, T>>& member,
                 const Key& key) {
  SectionsSlot slot;
  slot.is_map = true;
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) { return ObjectRef::of(member[i].second); };
  slot.name = [&member](size_t i) { return member[i].first; };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member](const std::string& entry) {
    return ObjectRef::of(member.emplace_back(entry, T{}).second);
  };
  slot.prototype = [](const std::function<void(ObjectRef)>& use) {
    T object;
    use(ObjectRef::of(object));
  };
  on_sections(name, slot, key);
}

namespace detail {

template <typename Base>
KindSlot kind_slot(std::unique_ptr<Base>& member, const KindTable<Base>& table) {
  static_assert(std::derived_from<Base, Chosen>);
  return {.table = table.ref(),
          .get = [&member]() -> Chosen* { return member.get(); },
          .set =
              [&member](std::unique_ptr<Chosen> made) {
                member.reset(static_cast<Base*>(made.release()));
              }};
}

}  // namespace detail

template <typename Base>
void Fields::parts(std::initializer_list<Part<Base>> parts, const KindTable<Base>& table,
                   const Key& key) {
  PartsSlot slot{.table = table.ref()};
  for (const Part<Base>& part : parts) {
    slot.parts.push_back({part.name, part.doc, detail::kind_slot(part.member, table)});
  }
  on_parts(slot, key);
}

template <typename Base>
void Fields::one_of(std::string_view name, std::unique_ptr<Base>& member,
                    const KindTable<Base>& table, const Key& key) {
  on_kind(name, detail::kind_slot(member, table), key);
}

template <typename Base>
void Fields::list_of(std::string_view name, std::vector<std::unique_ptr<Base>>& member,
                     const KindTable<Base>& table, const Key& key) {
  static_assert(std::derived_from<Base, Chosen>);
  KindsSlot slot{.table = table.ref()};
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) -> Chosen* { return member[i].get(); };
  slot.name = [](size_t) { return std::string(); };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member](const std::string&, std::unique_ptr<Chosen> made) {
    member.emplace_back(static_cast<Base*>(made.release()));
  };
  on_kinds(name, slot, key);
}

template <typename Base>
void Fields::map_of(std::string_view name,
                    std::vector<std::pair<std::string, std::unique_ptr<Base>>>& member,
                    const KindTable<Base>& table, const Key& key) {
  static_assert(std::derived_from<Base, Chosen>);
  KindsSlot slot{.table = table.ref(), .is_map = true};
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) -> Chosen* { return member[i].second.get(); };
  slot.name = [&member](size_t i) { return member[i].first; };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member](const std::string& entry, std::unique_ptr<Chosen> made) {
    member.emplace_back(entry, static_cast<Base*>(made.release()));
  };
  on_kinds(name, slot, key);
}

}  // namespace dltrain
