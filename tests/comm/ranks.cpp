#include "ranks.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "catch.h"

namespace dltrain::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::seconds kMin{600};  // several times slower, on cores that are shared
#else
constexpr std::chrono::seconds kMin{0};
#endif

struct Child {
  pid_t pid = 0;
  int messages = -1;
};

// The store in a process of its own: the one that forks the ranks has no threads, without which the
// thread sanitizer could not follow them.
class StoreProcess {
 public:
  StoreProcess() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const StoreServer server("127.0.0.1", 0);
      const int port = server.port();
      if (write(ends[1], &port, sizeof port) != sizeof port) _exit(1);
      for (;;) pause();
    }
    close(ends[1]);
    const bool told = read(ends[0], &port_, sizeof port_) == sizeof port_;
    close(ends[0]);
    REQUIRE(told);
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  int port() const { return port_; }

 private:
  pid_t pid_ = 0;
  int port_ = 0;
};

[[noreturn]] void run_child(int out, RankContext context,
                            const std::function<void(RankContext&)>& body) {
  int code = 0;
  std::string message;
  try {
    body(context);
  } catch (const Error& e) {
    code = static_cast<int>(e.code());
    message = e.what();
  } catch (const std::exception& e) {
    code = 99;
    message = e.what();
  }
  if (write(out, message.data(), message.size()) < 0) code = 98;
  _exit(code);
}

RankResult collect(const Child& child, std::chrono::steady_clock::time_point deadline) {
  RankResult result;
  int status = 0;
  while (waitpid(child.pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(child.pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.signalled = WIFSIGNALED(status);
  result.code = result.signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  char block[4096];
  for (ssize_t n; (n = read(child.messages, block, sizeof(block))) > 0;) {
    result.message.append(block, static_cast<size_t>(n));
  }
  close(child.messages);
  return result;
}

}  // namespace

StoreClient RankContext::client() const {
  return StoreClient({.port = port, .prefix = "run/"});
}

std::unique_ptr<Collectives> RankContext::collectives(std::chrono::milliseconds timeout,
                                                      const std::string& group) const {
  // The group uses it until the process ends.
  auto& store = *new StoreClient({.port = port, .prefix = "run/"});
  return std::make_unique<HostCollectives>(
      store, HostGroupOptions{.rank = rank, .size = size, .group = group, .timeout = timeout});
}

std::vector<RankResult> run_ranks(int size, const std::function<void(RankContext&)>& body,
                                  std::chrono::seconds patience) {
  const StoreProcess server;
  std::vector<Child> children(size);
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    children[rank].pid = fork();
    if (children[rank].pid == 0) {
      run_child(ends[1], RankContext{rank, size, server.port(), {}}, body);
    }
    close(ends[1]);
    children[rank].messages = ends[0];
  }
  const auto deadline = std::chrono::steady_clock::now() + std::max(patience, kMin);
  std::vector<RankResult> results;
  for (const Child& child : children) results.push_back(collect(child, deadline));
  return results;
}

void expect(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

bool all_well(const std::vector<RankResult>& results) {
  bool well = true;
  for (size_t i = 0; i < results.size(); ++i) {
    const RankResult& r = results[i];
    if (!r.signalled && r.code == 0) continue;
    well = false;
    UNSCOPED_INFO("rank " << i << (r.signalled ? " signal " : " exit ") << r.code << ": "
                          << r.message);
  }
  return well;
}

}  // namespace dltrain::test
