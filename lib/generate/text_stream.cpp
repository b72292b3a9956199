#include "generate/text_stream.h"

#include <algorithm>

namespace dltrain {

std::string TextStream::take(std::string more) {
  if (stopped_) return {};
  held_ += more;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::move(held_);
  }
  // The longest end that a stop text begins with.
  size_t hold = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) hold = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return out;
}

std::string TextStream::finish() {
  std::string out = take(decoder_.finish());
  out += held_;
  held_.clear();
  return out;
}

}  // namespace dltrain
