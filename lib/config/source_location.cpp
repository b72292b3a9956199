#include "config/source_location.h"

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

// The source line and the underline below it, both shortened to a readable width.
struct Excerpt {
  std::string line;
  size_t indent = 0;
  size_t underline = 1;
};

Excerpt make_excerpt(const SourceLocation& location) {
  const std::string_view text = location.source->text;
  const size_t offset = std::min(location.offset, text.size());
  size_t begin = line_start(text, offset);
  size_t end = std::min(text.find('\n', begin), text.size());
  if (end > begin && text[end - 1] == '\r') --end;
  const size_t stop = std::clamp(offset + location.length, offset, std::max(offset, end));
  std::string before, after;
  if (offset - begin > kMaxShownColumns / 2) {
    begin = character_border(text, offset - kMaxShownColumns / 2);
    before = "…";
  }
  if (end > offset && end - offset > kMaxShownColumns) {
    end = character_border(text, offset + kMaxShownColumns);
    after = "…";
  }
  Excerpt excerpt;
  excerpt.line = before + excerpt_text(text.substr(begin, end > begin ? end - begin : 0)) + after;
  excerpt.indent = character_count(before) + character_count(text.substr(begin, offset - begin));
  const size_t shown = std::min(stop, end);
  const size_t underlined = shown > offset ? shown - offset : 0;
  excerpt.underline = std::max<size_t>(1, character_count(text.substr(offset, underlined)));
  return excerpt;
}

}  // namespace

const SourceLocation& SourceLocation::editable() const {
  const bool built_in = source && source->is_built_in && used_at;
  return built_in ? used_at->editable() : *this;
}

int SourceLocation::line() const {
  if (!source) return 0;
  const std::string_view text = source->text;
  const size_t at = std::min(offset, text.size());
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

int SourceLocation::column() const {
  if (!source) return 0;
  const std::string_view text = source->text;
  const size_t at = std::min(offset, text.size());
  const size_t begin = line_start(text, at);
  return 1 + static_cast<int>(character_count(text.substr(begin, at - begin)));
}

const SourceLocation& ConfigObject::location_of(std::string_view key) const {
  for (const KeyLocation& entry : given_keys) {
    if (entry.key == key) return entry.location;
  }
  return location;
}

bool ConfigObject::given(std::string_view key) const {
  return std::any_of(given_keys.begin(), given_keys.end(),
                     [&](const KeyLocation& entry) { return entry.key == key; });
}

std::string to_string(const SourceLocation& written) {
  const SourceLocation& location = written.editable();
  if (!location.source) return location.path;
  if (location.source->is_override) return excerpt_text(location.source->name);
  return fmt::format("{}:{}:{}", location.source->name, location.line(), location.column());
}

std::string describe_location(const SourceLocation& location, std::string_view message,
                              std::string_view severity) {
  const std::string where = to_string(location);
  std::string out = where.empty() ? fmt::format("dltrain: {}: {}", severity, message)
                                  : fmt::format("{}: {}: {}", where, severity, message);
  if (!location.source || location.source->text.empty()) return out;
  const Excerpt excerpt = make_excerpt(location);
  const std::string number = location.source->is_override ? "-s" : std::to_string(location.line());
  out += fmt::format("\n{:>5} | {}\n      | {}^{}", number, excerpt.line,
                     std::string(excerpt.indent, ' '), std::string(excerpt.underline - 1, '~'));
  if (location.used_at) {
    out += '\n';
    out += describe_location(*location.used_at, fmt::format("{} is used here", location.used_as),
                             "note");
  }
  return out;
}

}  // namespace dltrain
