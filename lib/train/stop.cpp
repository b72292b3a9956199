#include "train/stop.h"

#include <csignal>
#include <initializer_list>

namespace dltrain {
namespace {

volatile std::sig_atomic_t stop_flag = 0;

void on_signal(int signal) {
  stop_flag = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void install_stop_handlers() {
  for (int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigaction(signal, &action, nullptr);
  }
}

int stop_signal() {
  return stop_flag;
}

void request_stop(int signal) {
  stop_flag = signal;
}

}  // namespace dltrain
