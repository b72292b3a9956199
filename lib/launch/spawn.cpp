#include "launch/spawn.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"

namespace dltrain {
namespace {

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    fail(ExitCode::usage, "cannot create a pipe: {} (ulimit -n)", std::strerror(errno));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// A set of CPUs in the format of sched_setaffinity.
std::vector<unsigned long> cpu_mask(const std::vector<int>& cpus) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(cpus.empty() ? 0 : static_cast<size_t>(cpus.back()) / kBits + 1);
  for (const int cpu : cpus) mask[static_cast<size_t>(cpu) / kBits] |= 1UL << cpu % kBits;
  return mask;
}

void write_error(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// Gives the signals their default actions, and blocks those that the launcher passes on.
void reset_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : kRunSignals) {
    // nohup applies to the ranks too.
    if (signal != SIGHUP || !is_ignored(signal)) std::signal(signal, SIG_DFL);
    sigaddset(&held, signal);
  }
  for (const int signal : {SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
  sigprocmask(SIG_SETMASK, &held, nullptr);
}

void make_nonblocking(int fd) {
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

ChildProcess spawn(const Command& command) {
  std::vector<std::string> arguments{command.executable};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> variables;
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);

  const std::vector<unsigned long> cpus = cpu_mask(command.cpus);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  FileDescriptor file;
  if (!command.output.empty()) {
    file = FileDescriptor(
        open(command.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file) fail_storage(command.output, "open", errno);
  }
  Pipe out = command.own_stdout || file ? Pipe{} : make_pipe();
  Pipe err = command.own_stderr || file ? Pipe{} : make_pipe();
  const std::string error_prefix = fmt::format("dltrain: cannot start '{}': ", command.executable);
  const char* const executable = command.executable.c_str();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    fail(ExitCode::memory, "cannot start a process: {}{}", std::strerror(error),
         error == EAGAIN ? " (ulimit -u)" : "");
  }
  if (pid == 0) {  // until exec only async-signal-safe calls are allowed
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent ended before the line above
    if (!cpus.empty()) {                  // if it fails, the rank uses the CPUs of the launcher
      sched_setaffinity(0, cpus.size() * sizeof(cpus[0]),
                        reinterpret_cast<const cpu_set_t*>(cpus.data()));
    }
    dup2(null.get(), STDIN_FILENO);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      if (file) dup2(file.get(), stream);
    }
    if (out.write) dup2(out.write.get(), STDOUT_FILENO);
    if (err.write) dup2(err.write.get(), STDERR_FILENO);
    reset_signals();
    execve(executable, argv.data(), envp.data());
    const char* reason = strerrordesc_np(errno);
    write_error(error_prefix.c_str());
    write_error(reason != nullptr ? reason : "unknown error");
    write_error("\n");
    _exit(static_cast<int>(ExitCode::usage));
  }
  setpgid(pid, pid);  // the child may not have done it before the first signal
  make_nonblocking(out.read.get());
  make_nonblocking(err.read.get());
  return {pid, std::move(out.read), std::move(err.read)};
}

std::string own_executable() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length > 0 && length < static_cast<ssize_t>(sizeof(path))) {
    const std::string result(path, static_cast<size_t>(length));
    if (access(result.c_str(), X_OK) == 0) return result;
  }
  return "/proc/self/exe";  // the file was replaced, but the link still opens the old one
}

}  // namespace dltrain
