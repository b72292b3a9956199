#include "launch/relay.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace dltrain {

LineRelay::LineRelay(FileDescriptor from, int to, std::string prefix, size_t remembered)
    : from_(std::move(from)), to_(to), prefix_(std::move(prefix)), remembered_(remembered) {}

bool LineRelay::pump() {
  bool passed = false;
  size_t taken = 0;
  char block[16384];
  while (open() && taken < kMostAtOnce) {
    const ssize_t got = read(from_.get(), block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return passed;
    if (got <= 0) {
      from_.reset();
      if (!partial_.empty()) passed |= pass_on(std::move(partial_));
      return passed;
    }
    taken += static_cast<size_t>(got);
    partial_.append(block, static_cast<size_t>(got));
    size_t begin = 0;
    for (;;) {
      const size_t end = partial_.find('\n', begin);
      if (end != partial_.npos) {
        passed |= pass_on(partial_.substr(begin, end - begin));
        begin = end + 1;
      } else if (partial_.size() - begin >= kMaxLine) {
        passed |= pass_on(partial_.substr(begin, kMaxLine));
        begin += kMaxLine;
      } else {
        break;
      }
    }
    partial_.erase(0, begin);
  }
  return passed;
}

bool LineRelay::pass_on(std::string line) {
  if (to_ >= 0 && !write_all(to_, prefix_ + line + "\n")) to_ = -1;
  if (file_ && !write_all(file_.get(), line + "\n")) {
    file_.reset();
    write_all(STDERR_FILENO, "dltrain: " + prefix_ + "its log file cannot be written any more\n");
  }
  if (remembered_ == 0) return to_ >= 0;
  if (last_lines_.size() == remembered_) last_lines_.pop_front();
  last_lines_.push_back(std::move(line));
  return to_ >= 0;
}

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace dltrain
