#include "base/json_error.h"

namespace dltrain {
namespace {

// Erases the text from `from` to the end of the next `to`.
void cut(std::string& text, std::string_view from, std::string_view to) {
  const size_t begin = text.find(from);
  const size_t end = begin == std::string::npos ? begin : text.find(to, begin);
  if (end != std::string::npos) text.erase(begin, end + to.size() - begin);
}

}  // namespace

std::string json_error(std::string_view what) {
  std::string text(what);
  if (text.starts_with("[json.exception")) cut(text, "[json.exception", "] ");
  if (text.starts_with("parse error at ")) cut(text, "parse error at ", "at ");
  cut(text, "syntax error while parsing ", "- ");
  return text;
}

}  // namespace dltrain
