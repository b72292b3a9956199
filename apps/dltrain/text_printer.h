// Prints texts that are generated in parallel one after another: the first unfinished one
// immediately, the others when the earlier ones are complete.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

class TextPrinter {
 public:
  // `begin` returns the beginning of a text (separator and prompt).
  TextPrinter(size_t texts, std::function<std::string(size_t text)> begin);

  // A further piece of a text. Returns false when standard output cannot be written any more.
  bool add(size_t text, std::string_view piece, bool done);

 private:
  struct Text {
    std::string held;
    bool done = false;
  };

  void print(std::string_view piece);

  std::function<std::string(size_t)> begin_;
  std::vector<Text> texts_;
  size_t current_ = 0;
  bool begun_ = false;   // the current text has its begin
  bool failed_ = false;  // standard output
};

}  // namespace dltrain
