#include "ops/signature.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/rules.h"

namespace dltrain {

// The extents and the dtype that the tensors matched so far have.
class SignatureMatch {
 public:
  SignatureMatch(std::string_view op, const Signature& signature, const Attributes& attributes)
      : op_(op), attributes_(attributes) {
    extents_.fill(-1);
    for (const Signature::GivenExtent& given : signature.given_) {
      if (given.letter != 0) extent(given.letter) = attributes.integer(given.attribute, 1);
    }
  }

  // Begins with the next of the tensors of each name.
  void forget_extents() {
    extents_.fill(-1);
    star_.reset();
  }

  void input(const TensorPattern& pattern, const TensorSpec& found) {
    if (pattern.dtype == TensorPattern::step_state) return expect_step_state(op_, found);
    check_dtype(pattern, found);
    const std::string_view letters(pattern.extents.data(), pattern.extent_count);
    if (letters == ".") return;
    const int rank = found.shape.rank(), fixed = fixed_extents(letters);
    if (rank < fixed || (rank > fixed && fixed == static_cast<int>(letters.size()))) {
      refuse(pattern, found);
    }
    int axis = 0;
    for (const char letter : letters) {
      if (letter == '*') {
        const Shape here(found.shape.dims().subspan(static_cast<size_t>(axis),
                                                    static_cast<size_t>(rank - fixed)));
        if (!star_) star_ = here;
        if (!(*star_ == here)) refuse(pattern, found);
        axis += rank - fixed;
      } else {
        int64_t& known = extent(letter);
        if (known < 0) known = found.shape[axis];
        if (known != found.shape[axis]) refuse(pattern, found);
        ++axis;
      }
    }
  }

  TensorSpec output(const TensorPattern& pattern) {
    std::vector<int64_t> out;
    for (const char letter : std::string_view(pattern.extents.data(), pattern.extent_count)) {
      if (letter == '*') {
        out.insert(out.end(), star_->begin(), star_->end());
      } else {
        out.push_back(extent(letter));
      }
    }
    return {Shape(out), dtype_of(pattern)};
  }

 private:
  static int fixed_extents(std::string_view letters) {
    return static_cast<int>(letters.size() - static_cast<size_t>(std::ranges::count(letters, '*')));
  }

  int64_t& extent(char letter) {
    int64_t& known = extents_[static_cast<unsigned char>(letter)];
    if (letter >= '0' && letter <= '9') known = letter - '0';
    return known;
  }

  void check_dtype(const TensorPattern& pattern, const TensorSpec& found) {
    if (pattern.dtype == TensorPattern::any) return;
    if (pattern.dtype == TensorPattern::low) {
      check_internal(is_low_precision(found.dtype), "{}: {} is {}", op_, pattern.name,
                     to_string(found));
      return;
    }
    const bool own = pattern.dtype == TensorPattern::parameter && attributes_.has("rounding");
    if (own) return expect_dtype(op_, "a parameter without master", found, DType::bf16);
    if (pattern.dtype == TensorPattern::moment && attributes_.is_set("block")) {
      return expect_dtype(op_, pattern.name, found, DType::u8);
    }
    const bool first = pattern.dtype == TensorPattern::floating ||
                       pattern.dtype == TensorPattern::parameter ||
                       pattern.dtype == TensorPattern::moment;
    if (first && !floating_) {
      expect_one_float_dtype(op_, std::span(&found, 1));
      floating_ = found.dtype;
    }
    expect_dtype(op_, pattern.name, found, dtype_of(pattern));
  }

  DType dtype_of(const TensorPattern& pattern) const {
    switch (pattern.dtype) {
      case TensorPattern::sum:
        return accumulation_dtype(floating_.value());
      case TensorPattern::output_dtype:
        return dtype_from_name(attributes_.text("output_dtype"))
            .value_or(floating_.value_or(DType::f32));
      case TensorPattern::i32:
        return DType::i32;
      case TensorPattern::f64:
        return DType::f64;
      case TensorPattern::u8:
        return DType::u8;
      default:
        return floating_.value();
    }
  }

  // "layer_norm: weight has shape [4], expected [3]"; extents that are not known yet are letters.
  [[noreturn]] void refuse(const TensorPattern& pattern, const TensorSpec& found) {
    std::string expected;
    for (const char letter : std::string_view(pattern.extents.data(), pattern.extent_count)) {
      const auto add = [&](const auto& extent) {
        expected += fmt::format("{}{}", expected.empty() ? "" : ", ", extent);
      };
      if (letter == '*' && star_) {
        for (int64_t known : *star_) add(known);
      } else if (letter == '*') {
        add("…");
      } else if (extent(letter) >= 0) {
        add(extent(letter));
      } else {
        add(letter);
      }
    }
    fail(ExitCode::usage, "{}: {} has shape {}, expected [{}]", op_, pattern.name,
         to_string(found.shape), expected);
  }

  std::string_view op_;
  const Attributes& attributes_;
  std::array<int64_t, 128> extents_;  // by letter
  std::optional<Shape> star_;
  std::optional<DType> floating_;
};

Signature::Outputs Signature::match(std::string_view op, SpecSpan found,
                                    const Attributes& attributes) const {
  // The index of the first input of each pattern; nothing where the op has none.
  std::array<std::optional<size_t>, kMaxTensors> begins;
  const auto count =
      static_cast<size_t>(repeated_from_ < kMaxTensors ? attributes.integer("count", 1) : 1);
  const auto repeats = [&](size_t pattern) { return pattern >= repeated_from_ ? count : 1; };
  size_t least = 0, most = 0;
  for (size_t p = 0; p < inputs_; ++p) {
    if (!attributes.is_set(tensors_[p].with_attribute)) continue;
    begins[p] = most;
    most += repeats(p);
    if (!tensors_[p].optional) least = most;
  }
  expect_inputs(op, found, least, most);
  const auto present = [&](size_t pattern, size_t i) {
    return begins[pattern] && *begins[pattern] + i < found.size() &&
           !is_absent(found[*begins[pattern] + i]);
  };

  SignatureMatch match(op, *this, attributes);
  std::array<Outputs, kMaxTensors> made;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) match.forget_extents();
    for (size_t p = 0; p < inputs_; ++p) {
      const TensorPattern& pattern = tensors_[p];
      const bool may_be_absent = pattern.optional || pattern.dtype == TensorPattern::low;
      if (!begins[p] || (i > 0 && p < repeated_from_) || (may_be_absent && !present(p, i)))
        continue;
      match.input(pattern, found[*begins[p] + i]);
    }
    for (size_t o = inputs_; o < count_; ++o) {
      const TensorPattern& output = tensors_[o];
      const std::string_view source = output.in_place ? output.name : output.with_input;
      const auto input = static_cast<size_t>(
          std::ranges::find(tensors_, source, &TensorPattern::name) - tensors_.begin());
      if (!attributes.is_set(output.with_attribute) || (!source.empty() && !present(input, i))) {
        continue;
      }
      const size_t index = output.in_place ? *begins[input] + i : 0;
      made[o].specs.push_back(output.in_place ? found[index] : match.output(output));
      made[o].aliases.push_back(output.in_place ? static_cast<int>(index) : -1);
    }
  }
  Outputs out;
  for (const Outputs& of_pattern : made) {
    out.specs.insert(out.specs.end(), of_pattern.specs.begin(), of_pattern.specs.end());
    out.aliases.insert(out.aliases.end(), of_pattern.aliases.begin(), of_pattern.aliases.end());
  }
  return out;
}

}  // namespace dltrain
