// The user's commands at checkpoints, evaluations and the end of a run (section `hooks`): uploads,
// messages, evaluations by other programs.
//
// They run one after the other on a thread of their own, so that training never waits for them;
// only the end of the run waits for those that are left. A command that fails, or that runs longer
// than hooks.timeout and is killed with its children, is a warning. Their output goes to hooks.txt
// in the run folder. A checkpoint is not removed before its command has ended. Commands do not
// inherit the variables of the rank, so they can start dltrain and launchers.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "experiment/experiment.h"

namespace dltrain {

inline constexpr const char* kHooksFile = "hooks.txt";

class Hooks {
 public:
  Hooks(const HooksConfig& config, std::filesystem::path run);
  // Waits for the commands that are queued, and logs that it does.
  ~Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  void checkpoint(const std::filesystem::path& path, int64_t step);
  // `result`: the line of metrics.jsonl.
  void evaluation(int64_t step, const std::string& result);
  void end(int exit_code);

 private:
  struct Job {
    std::string event, command;
    std::map<std::string, std::string> variables;
    std::shared_ptr<void> kept;  // the checkpoint, until the command has ended
  };
  void queue(Job job);
  void work();
  std::string run(const Job& job) const;

  const HooksConfig& config_;
  std::filesystem::path run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  size_t left_ = 0;  // commands that have not ended
  bool ended_ = false;
  std::thread thread_;  // of the commands; started with the first one
};

}  // namespace dltrain
