#include "launch/relay.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>

#include <poll.h>
#include <unistd.h>

namespace dltrain {

LineRelay::LineRelay(FileDescriptor from, int to, std::string prefix, size_t remembered)
    : from_(std::move(from)), to_(to), prefix_(std::move(prefix)), remembered_(remembered) {}

bool LineRelay::pump() {
  bool passed = false;
  size_t taken = 0;
  char block[16384];
  while (open() && taken < kMaxAtOnce) {
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
    write_all(STDERR_FILENO, "dltrain: " + prefix_ + "cannot write its log file any more\n");
  }
  if (remembered_ == 0) return to_ >= 0;
  if (last_lines_.size() == remembered_) last_lines_.pop_front();
  last_lines_.push_back(std::move(line));
  return to_ >= 0;
}

namespace {

// Waits until `fd` is writable. Returns false if it stays full and the launcher gets an
// interruption (a pending signal, since they are blocked).
bool is_writable(int fd) {
  static std::atomic<bool> interrupted = false;
  pollfd entry{fd, POLLOUT, 0};
  while (poll(&entry, 1, 100) == 0) {
    sigset_t waiting;
    sigpending(&waiting);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      if (sigismember(&waiting, signal) == 1) interrupted = true;
    }
    if (interrupted) return false;
  }
  return true;
}

}  // namespace

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    if (!is_writable(fd)) return false;
    // A writable pipe accepts PIPE_BUF bytes without blocking.
    const size_t part = std::min<size_t>(text.size() - done, PIPE_BUF);
    const ssize_t written = write(fd, text.data() + done, part);
    if (written < 0 && errno != EAGAIN && errno != EINTR) return false;
    done += static_cast<size_t>(std::max<ssize_t>(written, 0));
  }
  return true;
}

}  // namespace dltrain
