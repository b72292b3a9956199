#include "dltrain/text_printer.h"

#include <cstdio>

namespace dltrain {

TextPrinter::TextPrinter(size_t texts, std::function<std::string(size_t)> begin)
    : begin_(std::move(begin)), texts_(texts) {}

void TextPrinter::print(std::string_view piece) {
  if (piece.empty()) return;
  if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) failed_ = true;
}

bool TextPrinter::add(size_t text, std::string_view piece, bool done) {
  texts_[text].held += piece;
  texts_[text].done |= done;
  while (current_ < texts_.size()) {
    Text& now = texts_[current_];
    if (now.held.empty() && !now.done && current_ != text) break;
    if (!begun_) print(begin_(current_));
    begun_ = true;
    print(now.held);
    now.held.clear();
    if (!now.done) break;
    print("\n");
    begun_ = false;
    ++current_;
  }
  if (std::fflush(stdout) != 0) failed_ = true;
  return !failed_;
}

}  // namespace dltrain
