#include "comm/links.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/error.h"

namespace dltrain {
namespace {

// Looks at the sockets, ten microseconds or so, before the thread sleeps: a peer that is about to
// send is heard in a third of the time that waking up takes.
constexpr int kLooks = 20;

// What is left of a header and the bytes behind it, of which `done` bytes have passed.
struct Rest {
  iovec parts[2];
  msghdr message{};

  Rest(void* header, size_t header_bytes, void* data, size_t bytes, size_t done) {
    const size_t of_header = std::min(done, header_bytes), of_data = done - of_header;
    parts[0] = {static_cast<char*>(header) + of_header, header_bytes - of_header};
    parts[1] = {static_cast<char*>(data) + of_data, bytes - of_data};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
  }
};

bool try_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Links::Links(std::vector<FileDescriptor> sockets, std::vector<int> names,
             std::chrono::milliseconds timeout)
    : sockets_(std::move(sockets)), names_(std::move(names)), timeout_(timeout) {
  check_internal(sockets_.size() == names_.size(), "{} links to {} ranks", sockets_.size(),
                 names_.size());
  progress_.resize(sockets_.size());
  polled_.reserve(sockets_.size());
}

void Links::close() {
  closed_ = true;
  for (const FileDescriptor& socket : sockets_) {
    if (socket) shutdown(socket.get(), SHUT_RDWR);
  }
}

void Links::lost(const Letter& letter, const char* reason) const {
  if (closed_) fail(ExitCode::rank, "this rank has given its connections up");
  fail_lost(names_[static_cast<size_t>(letter.peer)], reason);
}

// Whether any bytes went.
bool Links::push(const Letter& letter, Progress& progress) {
  const size_t total = sizeof(Header) + letter.out_bytes;
  if (progress.sent == total || progress.send_error != 0) return false;
  Rest rest(&progress.out, sizeof(Header), const_cast<void*>(letter.out), letter.out_bytes,
            progress.sent);
  const ssize_t sent = sendmsg(sockets_[static_cast<size_t>(letter.peer)].get(), &rest.message,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    progress.sent += static_cast<size_t>(sent);
    return sent > 0;
  }
  if (!try_later(errno)) progress.send_error = errno;
  return false;
}

// Whether any bytes came.
bool Links::pull(const Letter& letter, Progress& progress) {
  const size_t total = sizeof(Header) + letter.in_bytes;
  if (progress.received == total) return false;
  Rest rest(&progress.in, sizeof(Header), letter.in, letter.in_bytes, progress.received);
  const ssize_t got =
      recvmsg(sockets_[static_cast<size_t>(letter.peer)].get(), &rest.message, MSG_DONTWAIT);
  if (got < 0) {
    const int error = errno;
    if (try_later(error)) return false;
    lost(letter, std::strerror(error));
  }
  if (got == 0) lost(letter, "it has closed its connection");
  const bool had_header = progress.received >= sizeof(Header);
  progress.received += static_cast<size_t>(got);
  if (!had_header && progress.received >= sizeof(Header) &&
      (progress.in.slot != progress.out.slot || progress.in.bytes != letter.in_bytes)) {
    throw OtherOperation(names_[static_cast<size_t>(letter.peer)]);
  }
  return true;
}

void Links::wait_for_any(std::span<const Letter> letters, Clock::time_point last_progress) {
  polled_.clear();
  int silent = -1;
  for (size_t i = 0; i < letters.size(); ++i) {
    const bool sends = progress_[i].sent < sizeof(Header) + letters[i].out_bytes;
    const bool receives = progress_[i].received < sizeof(Header) + letters[i].in_bytes;
    if (!sends && !receives) continue;
    const auto peer = static_cast<size_t>(letters[i].peer);
    if (silent < 0) silent = names_[peer];
    const auto events = static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    polled_.push_back({sockets_[peer].get(), events, 0});
  }
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(last_progress + timeout_ - Clock::now());
    const int ready = poll(polled_.data(), polled_.size(),
                           static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) return;  // the next call on the socket tells the error
    if (ready == 0 && Clock::now() >= last_progress + timeout_) fail_silent(silent, timeout_);
  }
}

void Links::exchange(uint64_t slot, std::span<const Letter> letters) {
  for (size_t i = 0; i < letters.size(); ++i) {
    progress_[i] = {
        .out = {slot, letters[i].out_bytes}, .in = {}, .sent = 0, .received = 0, .send_error = 0};
  }
  Clock::time_point last_progress = Clock::now();
  int looks = 0;
  for (;;) {
    bool moved = false, done = true;
    for (size_t i = 0; i < letters.size(); ++i) {
      const bool pushed = push(letters[i], progress_[i]), pulled = pull(letters[i], progress_[i]);
      // What has come first may say why nobody takes what is sent.
      if (progress_[i].send_error != 0 && !pulled) {
        lost(letters[i], std::strerror(progress_[i].send_error));
      }
      moved = moved || pushed || pulled;
      done = done && progress_[i].sent == sizeof(Header) + letters[i].out_bytes &&
             progress_[i].received == sizeof(Header) + letters[i].in_bytes;
    }
    if (done) return;
    if (moved) {
      last_progress = Clock::now();
      looks = 0;
    }
    if (++looks > kLooks) wait_for_any(letters, last_progress);
  }
}

}  // namespace dltrain
