// The signature of an op: shapes and dtypes of its tensors in one line, which is parsed when the
// program is compiled (a mistake in it does not compile).
//
//   "logits[*,C] targets[*]:i32 -> loss[1]:f64 log_sum_exp[*]:sum correct[1]:f64"
//
// Extents: a letter is the same extent wherever it occurs, `*` any number of extents, a digit
//   itself; [.] is a shape that the signature does not describe. After the tensors, "; V=rows"
//   gives a letter the value of an attribute.
// Dtypes: tensors without one share one floating dtype; `:sum` is its accumulation dtype; `:i32`,
//   `:f64`, `:u8`, `:any`; `:low` is 16-bit floating, or the tensor is absent; `:parameter` as
//   without one, but bf16 with the attribute `rounding` (ops/update.cpp); `:moment` as without
//   one, but u8 with the attribute `block`; `:output_dtype` that of the attribute, if it is given.
// Inputs: `step` is the step state (ops/step_state.h). `?` marks one that may be absent, and left
//   out at the end; `?@momentum` one that is given if the attribute is set (Attributes::is_set).
//   After "|" there are `count` (attribute) tensors of each name: all of the first, then all of the
//   next; letters and `*` are those of one of the `count`.
// Outputs: `state!` is the input of that name, written in place, and exists where that is present;
//   with `?bias` the output exists where the input `bias` is present, with `?@bias` where the
//   attribute is set. Without "->" the signature does not describe them (OpDef::infer does).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/attributes.h"
#include "tensor/shape.h"

namespace dltrain {

using SpecList = std::vector<TensorSpec>;
using SpecSpan = std::span<const TensorSpec>;

struct TensorPattern {
  enum DTypeRule : uint8_t {
    floating,
    sum,
    i32,
    f64,
    u8,
    any,
    low,
    parameter,
    output_dtype,
    moment,
    step_state
  };

  std::string_view name;
  std::array<char, Shape::kMaxRank + 1> extents{};  // letters, digits, '*'
  uint8_t extent_count = 0;
  DTypeRule dtype = floating;
  bool optional = false, in_place = false;
  std::string_view with_input = {}, with_attribute = {};  // only where these are given
};

class Signature {
 public:
  constexpr Signature() = default;
  consteval Signature(const char* text);  // NOLINT: implicit, for tables

  bool exists() const { return count_ > 0; }
  bool has_outputs() const { return has_outputs_; }
  struct Outputs {  // empty without "->"
    SpecList specs;
    std::vector<int> aliases;  // the index of the input that the output is written into, or −1
  };
  // Throws Error(usage) naming the op, the tensor, and the shapes or dtypes found and expected.
  Outputs match(std::string_view op, SpecSpan inputs, const Attributes& attributes) const;

 private:
  friend class SignatureMatch;
  static constexpr size_t kMaxTensors = 16;

  constexpr void parse();
  constexpr TensorPattern tensor();
  constexpr bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  constexpr void expect(std::string_view token) {
    if (!take(token)) throw "an error in the signature of an op";
  }
  constexpr std::string_view word() {
    size_t length = 0;
    while (length < rest_.size() &&
           std::string_view("[]:?!; =@").find(rest_[length]) == std::string_view::npos)
      ++length;
    if (length == 0) throw "a name is missing in the signature of an op";
    const std::string_view out = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return out;
  }

  struct GivenExtent {
    char letter = 0;
    std::string_view attribute;
  };

  std::string_view rest_;                             // while it is parsed
  std::array<TensorPattern, kMaxTensors> tensors_{};  // inputs, then outputs
  std::array<GivenExtent, 2> given_{};
  uint8_t inputs_ = 0, count_ = 0, repeated_from_ = kMaxTensors;
  bool has_outputs_ = false;
};

constexpr TensorPattern Signature::tensor() {
  TensorPattern out{.name = word()};
  if (out.name == "step") out.dtype = TensorPattern::step_state;
  if (take("[")) {
    while (!take("]")) {
      out.extents[out.extent_count++] = rest_.front();
      rest_.remove_prefix(1);
      take(",");
    }
  } else if (!take("!")) {
    if (out.name != "step") throw "a tensor without extents in the signature of an op";
  } else {
    out.in_place = true;
  }
  if (take(":")) {
    constexpr std::string_view kNames[] = {"",    "sum", "i32",       "f64",          "u8",
                                           "any", "low", "parameter", "output_dtype", "moment"};
    const std::string_view name = word();
    size_t rule = 1;
    while (kNames[rule] != name) ++rule;  // an unknown name is out of bounds: an error
    out.dtype = static_cast<TensorPattern::DTypeRule>(rule);
  }
  if (take("?@")) {
    out.with_attribute = word();
  } else if (take("?")) {
    out.optional = true;
    if (!rest_.empty() && rest_.front() != ' ') out.with_input = word();
  }
  return out;
}

constexpr void Signature::parse() {
  while (!rest_.empty()) {
    if (take("-> ")) has_outputs_ = true;
    if (take("| ")) repeated_from_ = count_;
    tensors_[count_++] = tensor();
    if (!has_outputs_) inputs_ = count_;
    for (size_t i = 0; take("; "); ++i) {
      given_[i].letter = word().front();
      expect("=");
      given_[i].attribute = word();
    }
    if (!rest_.empty()) expect(" ");
  }
}

consteval Signature::Signature(const char* text) : rest_(text) {
  parse();
}

}  // namespace dltrain
