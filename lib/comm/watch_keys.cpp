#include "comm/watch_keys.h"

#include <charconv>

namespace dltrain {

// "<rank> <stuck: 0 or 1> <message>[\n<where>]"
std::string Verdict::to_text() const {
  return std::to_string(rank) + (stuck ? " 1 " : " 0 ") + message +
         (where.empty() ? "" : "\n" + where);
}

std::optional<Verdict> Verdict::from_text(const std::string& text) {
  Verdict out;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, out.rank);
  if (parsed.ec != std::errc() || end - parsed.ptr < 4 || out.rank < 0) return std::nullopt;
  const std::string flag(parsed.ptr, 3);
  if (flag != " 0 " && flag != " 1 ") return std::nullopt;
  out.stuck = flag == " 1 ";
  out.message.assign(parsed.ptr + 3, end);
  if (const size_t line_end = out.message.find('\n'); line_end != std::string::npos) {
    out.where = out.message.substr(line_end + 1);
    out.message.resize(line_end);
  }
  return out;
}

}  // namespace dltrain
