#include "comm/watch_keys.h"

#include <charconv>

namespace dltrain {

// "<rank> <stuck: 0 or 1> <message>\n<where>\n<code>"
std::string Verdict::to_text() const {
  return fmt::format("{} {} {}\n{}\n{}", rank, stuck ? 1 : 0, message, where,
                     static_cast<int>(code));
}

std::optional<Verdict> Verdict::from_text(const std::string& text) {
  Verdict out;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, out.rank);
  if (parsed.ec != std::errc() || end - parsed.ptr < 4 || out.rank < 0) return std::nullopt;
  const std::string flag(parsed.ptr, 3);
  if (flag != " 0 " && flag != " 1 ") return std::nullopt;
  out.stuck = flag == " 1 ";
  const std::string lines(parsed.ptr + 3, end);
  const size_t message_end = lines.find('\n'), where_end = lines.rfind('\n');
  if (message_end == where_end) return std::nullopt;
  out.message = lines.substr(0, message_end);
  out.where = lines.substr(message_end + 1, where_end - message_end - 1);
  int code = 0;
  const char* digits = lines.data() + where_end + 1;
  if (std::from_chars(digits, lines.data() + lines.size(), code).ec != std::errc()) {
    return std::nullopt;
  }
  out.code = static_cast<ExitCode>(code);
  return out;
}

}  // namespace dltrain
