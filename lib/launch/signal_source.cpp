#include "launch/signal_source.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"

namespace dltrain {

bool is_interruption(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

namespace {
// Used in a signal handler.
std::string_view stop_message(int signal) {
  static_assert(SIGHUP == 1 && SIGINT == 2 && SIGTERM == 15);
  return signal == SIGHUP   ? "dltrain: stopped by signal 1 before the first step\n"
         : signal == SIGINT ? "dltrain: stopped by signal 2 before the first step\n"
                            : "dltrain: stopped by signal 15 before the first step\n";
}
}  // namespace

void end_on_interruption() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (signal != SIGHUP || !is_ignored(signal)) {
      std::signal(signal, [](int number) {
        const std::string_view text = stop_message(number);
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
        _exit(static_cast<int>(ExitCode::stopped));
      });
    }
  }
  for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, [](int) {});
  std::signal(SIGPIPE, SIG_IGN);  // the ranks continue when the reader of the output ends
}

SignalSource::SignalSource() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kRunSignals) {
    // A signalfd receives blocked signals even if they are ignored.
    if (signal != SIGHUP || !is_ignored(signal)) sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
  std::signal(SIGPIPE, SIG_IGN);
  descriptor_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  check_internal(static_cast<bool>(descriptor_), "signalfd: {}", std::strerror(errno));
}

SignalSource::~SignalSource() {
  read_all();  // pending signals must not change the exit code
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void SignalSource::read_all() {
  signalfd_siginfo info{};
  while (read(descriptor_.get(), &info, sizeof(info)) == sizeof(info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (is_interruption(signal) && ++interruptions_ == 1) first_interruption_ = signal;
    waiting_.push_back(signal);
  }
}

int SignalSource::take() {
  read_all();
  if (waiting_.empty()) return 0;
  const int signal = waiting_.front();
  waiting_.pop_front();
  return signal;
}

int SignalSource::interruptions() {
  read_all();
  return interruptions_;
}

}  // namespace dltrain
