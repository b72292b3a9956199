#include "launch/signal_source.h"

#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"

namespace dltrain {

SignalSource::SignalSource() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  descriptor_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  check_internal(static_cast<bool>(descriptor_), "signalfd: {}", std::strerror(errno));
}

SignalSource::~SignalSource() {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

int SignalSource::take() {
  signalfd_siginfo info{};
  if (read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
  const auto signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGINT || signal == SIGTERM) ++interruptions_;
  return signal;
}

}  // namespace dltrain
