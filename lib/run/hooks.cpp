#include "run/hooks.h"

#include <cerrno>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/owned_files.h"
#include "base/run_lock.h"
#include "base/signals.h"
#include "comm/environment.h"

namespace dltrain {
namespace {

// A wait that is shorter than this is not told.
constexpr std::chrono::seconds kSilentWait{1};

// Starts `sh -c command` with both streams in `output`, as the leader of a process group, so that
// its children can be killed with it. Returns 0, or an errno.
int start_shell(const std::string& command, const Environment& variables,
                const std::filesystem::path& output, pid_t& pid) {
  std::string shell = "/bin/sh", flag = "-c", text = command;
  char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error =
      posix_spawn(&pid, shell.c_str(), &files, &attributes, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

Hooks::Hooks(const HooksConfig& config, std::filesystem::path run)
    : config_(config), run_(std::filesystem::absolute(run).lexically_normal()) {
  if (config_.any()) claim_files(run_, {kHooksFile});
}

Hooks::~Hooks() {
  {
    std::unique_lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kSilentWait, [this] { return left_ == 0; })) {
      log_info("waiting for {} command{} of hooks, each at most {:g} s (their output: {})", left_,
               left_ == 1 ? "" : "s", config_.timeout, (run_ / kHooksFile).string());
    }
  }
  if (thread_.joinable()) thread_.join();
}

void Hooks::checkpoint(const std::filesystem::path& path, int64_t step) {
  if (config_.checkpoint.empty()) return;
  const auto absolute = std::filesystem::absolute(path).lexically_normal();
  queue({.event = "checkpoint",
         .command = config_.checkpoint,
         .variables = {{"DLTRAIN_STEP", std::to_string(step)},
                       {"DLTRAIN_CHECKPOINT", absolute.string()}},
         .kept = keep_folder(absolute)});
}

void Hooks::evaluation(int64_t step, const std::string& result) {
  if (config_.evaluation.empty()) return;
  queue({.event = "evaluation",
         .command = config_.evaluation,
         .variables = {{"DLTRAIN_STEP", std::to_string(step)}, {"DLTRAIN_RESULT", result}},
         .kept = nullptr});
}

void Hooks::end(int exit_code) {
  if (config_.end.empty()) return;
  queue({.event = "end",
         .command = config_.end,
         .variables = {{"DLTRAIN_EXIT_CODE", std::to_string(exit_code)}},
         .kept = nullptr});
}

void Hooks::queue(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  ++left_;
  if (!thread_.joinable()) {
    const BlockSignals blocked;  // signals go to the training thread
    thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

void Hooks::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const std::string problem = run(job);
    if (!problem.empty()) {
      log_warning("hooks.{}: {} ({})", job.event, problem, (run_ / kHooksFile).string());
    }
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
}

// Returns what went wrong, or an empty text.
std::string Hooks::run(const Job& job) const {
  Environment variables = without_rank(process_environment());  // commands are no ranks of the run
  variables["DLTRAIN_RUN"] = run_.string();
  variables["DLTRAIN_EVENT"] = job.event;
  for (const auto& [name, value] : job.variables) variables[name] = value;
  pid_t pid = 0;
  if (const int error = start_shell(job.command, variables, run_ / kHooksFile, pid); error != 0) {
    return "cannot be started: " + errno_text(error);
  }
  const auto last =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(config_.timeout);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= last) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      return fmt::format("killed after {:g} s (hooks.timeout)", config_.timeout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace dltrain
