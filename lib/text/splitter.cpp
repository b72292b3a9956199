#include "text/splitter.h"

#include <algorithm>
#include <array>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "text/tokenizer.h"

namespace dltrain {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMaxSteps = 10'000'000;
constexpr size_t kStack = 32 << 10, kMaxStack = 8 << 20;

// The Unicode property White_Space as a bracket expression. PCRE2's own \s differs by U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string with_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

// The patterns of GPT-2, cl100k, Llama 3, Qwen 2 and o200k. None of them joins a single line break
// to the text that follows it.
constexpr std::array kKnownPatterns{
    kGpt2Pattern,
    std::string_view(
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    std::string_view(
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    std::string_view(
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // The patterns of Hugging Face's pre-tokenizer Digits: single digits, and runs of digits.
    std::string_view(R"(\p{N})"), std::string_view(R"(\p{N}+)")};

}  // namespace

struct Splitter::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

struct Splitter::Walker::Memory {
  const pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~Memory() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

bool is_white_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

Splitter::Splitter(const std::string& name, const std::string& pattern)
    : code_(std::make_shared<Code>()),
      cuts_at_lines_(std::find(kKnownPatterns.begin(), kKnownPatterns.end(), pattern) !=
                     kKnownPatterns.end()) {
  if (pattern.size() > kMaxPattern) {
    throw Error(ExitCode::data, fmt::format("has a pattern of {} bytes", pattern.size()), name);
  }
  const std::string changed = with_white_space(pattern);
  int error = 0;
  size_t offset = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(changed.data()), changed.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code_->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    throw Error(ExitCode::data,
                fmt::format("its pattern is not a regular expression: {} (byte {} of the pattern)",
                            reinterpret_cast<const char*>(message), offset),
                name);
  }
  // If there is no JIT compiler for this machine, the pattern is interpreted.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Splitter::Walker::Walker(const Splitter& splitter) : memory_(std::make_shared<Memory>()) {
  memory_->code = splitter.code_->code;
  memory_->match = pcre2_match_data_create_from_pattern(memory_->code, nullptr);
  memory_->context = pcre2_match_context_create(nullptr);
  memory_->stack = pcre2_jit_stack_create(kStack, kMaxStack, nullptr);
  if (memory_->match == nullptr || memory_->context == nullptr || memory_->stack == nullptr) {
    fail(ExitCode::memory, "out of memory for the pattern of a tokenizer");
  }
  pcre2_set_match_limit(memory_->context, kMaxSteps);
  pcre2_jit_stack_assign(memory_->context, nullptr, memory_->stack);
}

void Splitter::Walker::start(std::string_view text, size_t offset) {
  text_ = text;
  offset_ = offset;
  at_ = match_begin_ = match_end_ = 0;
}

std::string_view Splitter::Walker::next() {
  if (at_ == text_.size()) return {};
  if (at_ == match_end_) {
    // Empty matches would be pieces without text. The caller has checked the UTF-8.
    const int found =
        pcre2_match(memory_->code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at_,
                    PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, memory_->match, memory_->context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw EncodeError("the tokenizer's pattern needs too many steps for this text",
                        offset_ + at_);
    }
    const size_t* offsets = pcre2_get_ovector_pointer(memory_->match);
    match_begin_ = found < 0 ? text_.size() : offsets[0];
    match_end_ = found < 0 ? text_.size() : offsets[1];
    // \K can change the begin of a match.
    if (match_begin_ < at_ || match_end_ <= match_begin_) match_begin_ = match_end_ = text_.size();
  }
  const size_t begin = std::exchange(at_, at_ < match_begin_ ? match_begin_ : match_end_);
  return text_.substr(begin, at_ - begin);
}

}  // namespace dltrain
