#include "config/place.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

constexpr size_t kMaxShownColumns = 160;  // longer lines are shortened around the caret

// Returns the start of the line that contains `offset`.
size_t line_start(std::string_view text, size_t offset) {
  const size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  return newline == std::string_view::npos ? 0 : newline + 1;
}

size_t code_points(std::string_view bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Replaces a tab by one space, and other control characters and invalid bytes by question marks, so
// that columns stay aligned.
std::string excerpt_text(std::string_view bytes) {
  std::string out(bytes);
  for (char& c : out) {
    if (c == '\t') {
      c = ' ';
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      c = '?';
    }
  }
  while (const auto invalid = find_invalid_utf8(out)) out[*invalid] = '?';
  return out;
}

bool continuation(std::string_view text, size_t at) {
  return at < text.size() && (text[at] & 0xC0) == 0x80;
}

// The source line and the underline below it, both shortened to a readable width.
struct Excerpt {
  std::string line;
  size_t indent = 0;
  size_t underline = 1;
};

Excerpt make_excerpt(const Place& place) {
  const std::string_view text = place.source->text;
  const size_t offset = std::min(place.offset, text.size());
  size_t begin = line_start(text, offset);
  size_t end = std::min(text.find('\n', begin), text.size());
  if (end > begin && text[end - 1] == '\r') --end;
  const size_t stop = std::clamp(offset + place.length, offset, std::max(offset, end));
  std::string before, after;
  if (offset - begin > kMaxShownColumns / 2) {
    begin = offset - kMaxShownColumns / 2;
    while (begin < offset && continuation(text, begin)) ++begin;
    before = "…";
  }
  if (end > offset && end - offset > kMaxShownColumns) {
    end = offset + kMaxShownColumns;
    while (end > offset && continuation(text, end)) --end;
    after = "…";
  }
  Excerpt excerpt;
  excerpt.line = before + excerpt_text(text.substr(begin, end > begin ? end - begin : 0)) + after;
  excerpt.indent = code_points(before) + code_points(text.substr(begin, offset - begin));
  const size_t shown = std::min(stop, end);
  const size_t underlined = shown > offset ? shown - offset : 0;
  excerpt.underline = std::max<size_t>(1, code_points(text.substr(offset, underlined)));
  return excerpt;
}

}  // namespace

const Place& Place::editable() const {
  const bool built_in = source && source->is_built_in && used_at;
  return built_in ? used_at->editable() : *this;
}

int Place::line() const {
  if (!source) return 0;
  const std::string_view text = source->text;
  const size_t at = std::min(offset, text.size());
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

int Place::column() const {
  if (!source) return 0;
  const std::string_view text = source->text;
  const size_t at = std::min(offset, text.size());
  const size_t begin = line_start(text, at);
  return 1 + static_cast<int>(code_points(text.substr(begin, at - begin)));
}

const Place& Located::place_of(std::string_view key) const {
  for (const KeyPlace& entry : given_keys) {
    if (entry.key == key) return entry.place;
  }
  return place;
}

bool Located::given(std::string_view key) const {
  return std::any_of(given_keys.begin(), given_keys.end(),
                     [&](const KeyPlace& entry) { return entry.key == key; });
}

std::string to_string(const Place& written) {
  const Place& place = written.editable();
  if (!place.source) return place.path;
  if (place.source->is_override) return excerpt_text(place.source->name);
  return fmt::format("{}:{}:{}", place.source->name, place.line(), place.column());
}

std::string describe_place(const Place& place, std::string_view message,
                           std::string_view severity) {
  const std::string where = to_string(place);
  std::string out = where.empty() ? fmt::format("dltrain: {}: {}", severity, message)
                                  : fmt::format("{}: {}: {}", where, severity, message);
  if (!place.source) return out;
  const Excerpt excerpt = make_excerpt(place);
  const std::string number = place.source->is_override ? "-s" : std::to_string(place.line());
  out += fmt::format("\n{:>5} | {}\n      | {}^{}", number, excerpt.line,
                     std::string(excerpt.indent, ' '), std::string(excerpt.underline - 1, '~'));
  if (place.used_at) {
    out += '\n';
    out += describe_place(*place.used_at, fmt::format("{} is used here", place.used_as), "note");
  }
  return out;
}

}  // namespace dltrain
