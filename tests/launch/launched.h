// A launcher in a process of its own, for the tests of one node and of several.
#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "helper.h"
#include "launch/launcher.h"

namespace dltrain::test {

using std::chrono::milliseconds;

// A launcher in a process of its own, with its output in pipes.
class Launched {
 public:
  // `first`: what the process does before it launches.
  explicit Launched(
      LaunchOptions options, void (*first)() = [] {}) {
    int out[2], err[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    std::fflush(nullptr);  // or both processes write what is buffered
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      int code = 1;
      first();
      try {
        code = launch(options, {});
      } catch (const Error& e) {
        code = static_cast<int>(e.code());
        dprintf(STDERR_FILENO, "%s\n", e.what());
      }
      _exit(code);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Launched() {
    if (running_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  // Whether it ends while nobody reads what it writes.
  bool ends_unread() const {
    siginfo_t info{};
    for (int i = 0; i < 1000 && info.si_pid == 0; ++i) {
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      std::this_thread::sleep_for(milliseconds(10));
    }
    return info.si_pid == pid_;
  }
  // Reads stdout until it holds `count` lines that contain `text`.
  bool wait_for_output(const std::string& text, int count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      int found = 0;
      for (size_t at = 0; (at = output.find(text, at)) != output.npos; ++at) ++found;
      if (found >= count) return true;
      pollfd entry{out_, POLLIN, 0};
      if (poll(&entry, 1, 100) > 0 && !read_some(out_, output)) return false;
    }
    return false;
  }
  // Reads both outputs to their end and returns the exit status (or minus the signal).
  int finish() {
    std::thread reader([&] {
      while (read_some(err_, errors)) {
      }
    });
    while (read_some(out_, output)) {
    }
    reader.join();
    int status = 0;
    waitpid(pid_, &status, 0);
    running_ = false;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::multiset<std::string> output_lines() const { return lines(output); }
  std::multiset<std::string> error_lines() const { return lines(errors); }
  bool says(const std::string& text) const { return errors.find(text) != errors.npos; }

  std::string output, errors;

 private:
  static bool read_some(int fd, std::string& to) {
    char block[4096];
    const ssize_t got = read(fd, block, sizeof(block));
    if (got > 0) to.append(block, static_cast<size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
  }
  static std::multiset<std::string> lines(const std::string& text) {
    std::multiset<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.insert(line);
    return result;
  }

  pid_t pid_ = 0;
  bool running_ = true;
  int out_ = -1, err_ = -1;
};

inline LaunchOptions ranks(int count, const std::string& behaviour) {
  return {.processes = count, .variables = {{kBehaviour, behaviour}}, .grace = milliseconds(3000)};
}

// A zombie that nobody has waited for yet has ended, too.
inline bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != text.npos && text.compare(name_end, 3, ") Z") != 0;
}

// Waits until so many children of a process are stopped.
inline bool count_stopped_children(pid_t parent, int count) {
  const std::string number = std::to_string(parent);
  for (int i = 0; i < 1000; ++i) {
    std::ifstream children("/proc/" + number + "/task/" + number + "/children");
    int stopped = 0;
    for (std::string child; children >> child;) {
      std::ifstream file("/proc/" + child + "/stat");
      std::string text;
      std::getline(file, text);
      stopped += text.find(") T") != text.npos ? 1 : 0;
    }
    if (stopped == count) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

// The process numbers that ranks printed as "pid N".
inline std::vector<pid_t> printed_pids(const std::string& output) {
  std::vector<pid_t> pids;
  for (size_t at = 0; (at = output.find("pid ", at)) != output.npos; ++at) {
    pids.push_back(std::stoi(output.substr(at + 4)));
  }
  return pids;
}

inline bool all_gone_soon(const std::vector<pid_t>& pids) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (const pid_t pid : pids) {
    while (is_running(pid)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  return true;
}

}  // namespace dltrain::test
