// Text as it comes: whole characters, and nothing of what may become a stop text.
#include "generate/text_stream.h"

#include "catch.h"
#include "text/formats.h"
#include "text/simple_tokenizers.h"

namespace dltrain {
namespace {

// Pieces of a text, byte by byte; "|" between them.
std::string pieces(const std::string& text, const std::vector<std::string>& stop,
                   bool* stopped = nullptr) {
  const auto tokenizer = byte_tokenizer("bytes", {});
  TextStream stream(*tokenizer, stop);
  std::string out;
  for (char c : text) {
    out += stream.next(static_cast<unsigned char>(c)) + "|";
    if (stream.stopped()) break;
  }
  out += stream.finish();
  if (stopped != nullptr) *stopped = stream.stopped();
  return out;
}

TEST_CASE("characters come whole") {
  CHECK(pieces("aé!", {}) == "a||é|!|");
  CHECK(pieces("a\xC3", {}) == "a||\xEF\xBF\xBD");
}

TEST_CASE("a stop text ends the text, and none of it comes out") {
  bool stopped = false;
  CHECK(pieces("abXYcd", {"XY"}, &stopped) == "a|b|||");
  CHECK(stopped);
  CHECK(pieces("abXcd", {"XY"}, &stopped) == "a|b||Xc|d|");
  CHECK_FALSE(stopped);
  CHECK(pieces("aXXY", {"XY", "Q"}, &stopped) == "a||X||");
  CHECK(stopped);
  CHECK(pieces("abX", {"XY"}, &stopped) == "a|b||X");  // the end: it was no stop text
  CHECK_FALSE(stopped);
  CHECK(pieces("abc", {"bcd", "b"}, &stopped) == "a||");
  CHECK(stopped);
}

TEST_CASE("what was skipped gives no text") {
  const auto tokenizer = byte_tokenizer("bytes", {});
  TextStream stream(*tokenizer, {});
  stream.skip('a');
  stream.skip(0xC3);
  CHECK(stream.next(0xA9) == "é");
}

}  // namespace
}  // namespace dltrain
