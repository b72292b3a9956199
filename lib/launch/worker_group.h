// The ranks of one attempt on this host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "launch/launcher.h"
#include "launch/relay.h"
#include "launch/signal_source.h"
#include "launch/spawn.h"

namespace dltrain {

// Why an attempt ended.
struct Failure {
  int code = 0;              // of the launcher, should there be no restart
  bool curable = false;      // a restart may change it
  bool secondary = false;    // only the loss of a peer was noticed
  std::string message = {};  // one sentence that names the rank; empty: an early stop (75)
};

class WorkerGroup {
 public:
  // `options` and `signals` outlive it.
  WorkerGroup(const LaunchOptions& options, SignalSource& signals)
      : options_(options), signals_(signals) {}
  // Kills what is still alive: only when starting another rank failed.
  ~WorkerGroup();

  // Starts a rank for each environment, in the order of local ranks, bound to its CPUs; the first
  // is global rank `first_rank`. `logs`: the folder for tee and redirects. Once.
  void start(const std::vector<std::string>& arguments,
             const std::vector<Environment>& environments,
             const std::vector<std::vector<int>>& cpus, int first_rank,
             const std::filesystem::path& logs);

  bool alive() const;
  // Passes output and signals on and takes ranks that have ended, waiting at most so long for
  // something to happen.
  void turn(std::chrono::milliseconds at_most);
  // The failure that ends the attempt, once it is clear which one; an early stop (75) only when all
  // ranks have ended, or none followed for the grace.
  std::optional<Failure> failure() const;
  // SIGTERM now, SIGKILL after the grace: the attempt has failed elsewhere.
  void stop();
  // This rank is the cause: it neither works nor ends. It is killed at once.
  void condemn(int rank, const std::string& reason);
  // After the last rank: what is still in the pipes. Then the last lines of the failing rank are
  // repeated, if they do not stand right above.
  void drain();
  void repeat_last_lines() const;
  // Whether `rank` is one of this group.
  bool holds(int rank) const;

 private:
  struct Rank {
    int number = 0;
    pid_t pid = 0;
    bool alive = false;
    int signal = 0;  // that killed it
    int code = 0;
    std::string condemned;                // why; empty: it was not
    std::unique_ptr<LineRelay> out, err;  // nullptr where the rank writes to the terminal itself

    bool obeyed = false;  // `signal` is an interruption that this launcher has passed on

    bool failed() const { return signal != 0 || code != 0; }
    int blame() const;
  };

  void start_rank(size_t local, Command& command, const std::filesystem::path& logs);
  void pump(std::chrono::milliseconds timeout);
  void handle_signals();
  void reap();
  void ended(Rank& r);
  void signal_all(int signal);

  const LaunchOptions& options_;
  SignalSource& signals_;
  std::vector<Rank> ranks_;
  const Rank* cause_ = nullptr;
  const LineRelay* last_speaker_ = nullptr;  // whose lines were passed on last
  bool decided_ = false;                     // cause_ is final
  bool stopping_ = false;                    // SIGTERM has been sent because of a failure
  bool killed_ = false;
  bool interrupted_ = false;                   // an interruption was passed on
  std::optional<Clock::time_point> deadline_;  // of the blame window, then of the grace
};

// A line of the launcher's own on stderr.
void say(const std::string& text);

}  // namespace dltrain
