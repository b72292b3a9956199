// The templates of fields.h, which includes this file. Each creates a slot for a member.
#pragma once

namespace dltrain {

inline void visit_common(Fields& fields, const std::function<void()>& describe) {
  fields.begin_common();
  describe();
  fields.end_common();
}

namespace detail {

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
  } else if constexpr (0 < kArraySize<T>) {
    return std::vector<typename T::value_type>(member.begin(), member.end());
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
  } else if constexpr (0 < kArraySize<T>) {
    const auto& list = std::get<std::vector<typename T::value_type>>(value);
    T out{};
    std::copy(list.begin(), list.end(), out.begin());
    return out;
  } else {
    return std::get<T>(value);
  }
}

}  // namespace detail

template <typename M, typename ToValue, typename FromValue>
void Fields::put_as(std::string_view name, ValueSlot slot, M& member, const Key& key,
                    ToValue to_value, FromValue from_value) {
  constexpr bool kOptional = !std::same_as<M, MemberValue<M>>;
  slot.optional = kOptional;
  slot.get = [&member, to_value] {
    if constexpr (kOptional) {
      return member ? to_value(*member) : Value();
    } else {
      return to_value(member);
    }
  };
  slot.set = [&member, from_value](const Value& value) {
    if constexpr (kOptional) {
      member.reset();
      if (std::holds_alternative<std::monostate>(value)) return;
    }
    member = from_value(value);
  };
  on_value(name, slot, key);
}

template <typename M>
void Fields::put(std::string_view name, ValueSlot slot, M& member, const Key& key) {
  using T = MemberValue<M>;
  put_as(name, std::move(slot), member, key, detail::to_value<T>, detail::from_value<T>);
}

template <typename M>
void Fields::integer(std::string_view name, M& member, const Key& key) {
  using T = MemberValue<M>;
  ValueSlot slot{.type = ValueType::integer, .allow_auto = std::same_as<T, IntegerOrAuto>};
  if constexpr (!std::same_as<T, IntegerOrAuto>) {
    static_assert(std::integral<T> && !std::same_as<T, bool>);
    constexpr auto highest = static_cast<uint64_t>(std::numeric_limits<T>::max());
    slot.lowest = static_cast<int64_t>(std::numeric_limits<T>::min());
    slot.highest = static_cast<int64_t>(std::min(highest, uint64_t{INT64_MAX}));
  }
  put(name, std::move(slot), member, key);
}

template <typename M>
void Fields::choice(std::string_view name, M& member,
                    const std::type_identity_t<std::vector<Choice<MemberValue<M>>>>& choices,
                    const Key& key) {
  using E = MemberValue<M>;
  ValueSlot slot{.type = ValueType::choice};
  for (const Choice<E>& choice : choices) slot.choices.push_back({choice.name, choice.doc});
  const auto find = [&choices](auto matches) -> const Choice<E>& {
    for (const Choice<E>& choice : choices) {
      if (matches(choice)) return choice;
    }
    throw Error(ExitCode::internal, "internal error: a value that is none of the choices");
  };
  put_as(
      name, std::move(slot), member, key,
      [find](const E& value) {
        return Value(find([&](const Choice<E>& choice) { return choice.value == value; }).name);
      },
      [find](const Value& value) {
        const auto& wanted = std::get<std::string>(value);
        return find([&](const Choice<E>& choice) { return choice.name == wanted; }).value;
      });
}

template <typename M>
void Fields::section(std::string_view name, M& member, const Key& key) {
  SectionSlot slot;
  if constexpr (std::same_as<M, MemberValue<M>>) {
    slot.present = [] { return true; };
    slot.open = [&member] { return ObjectRef::of(member); };
  } else {
    slot.optional = true;
    slot.present = [&member] { return member.has_value(); };
    slot.open = [&member] {
      if (!member) member.emplace();
      return ObjectRef::of(*member);
    };
    slot.close = [&member] { member.reset(); };
  }
  on_section(name, slot, key);
}

template <typename T>
void Fields::list(std::string_view name, std::vector<T>& member, const Key& key) {
  SectionsSlot slot;
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) { return ObjectRef::of(member[i]); };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member] { return ObjectRef::of(member.emplace_back()); };
  slot.prototype = [](const std::function<void(ObjectRef)>& use) {
    T object;
    use(ObjectRef::of(object));
  };
  on_sections(name, slot, key);
}
namespace detail {

template <typename Base>
KindSlot kind_slot(std::unique_ptr<Base>& member, const KindTable<Base>& table) {
  static_assert(std::derived_from<Base, ConfigVariant>);
  return {.table = table.ref(),
          .get = [&member]() -> ConfigVariant* { return member.get(); },
          .set =
              [&member](std::unique_ptr<ConfigVariant> made) {
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
  static_assert(std::derived_from<Base, ConfigVariant>);
  KindsSlot slot{.table = table.ref()};
  slot.size = [&member] { return member.size(); };
  slot.at = [&member](size_t i) -> ConfigVariant* { return member[i].get(); };
  slot.clear = [&member] { member.clear(); };
  slot.append = [&member](std::unique_ptr<ConfigVariant> made) {
    member.emplace_back(static_cast<Base*>(made.release()));
  };
  on_kinds(name, slot, key);
}

}  // namespace dltrain
