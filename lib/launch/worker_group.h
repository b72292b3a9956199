// The processes of the ranks of one attempt on this host.
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

// The reason for the end of an attempt.
struct Failure {
  int code = 0;              // exit code of the launcher if there is no restart
  bool secondary = false;    // the rank only reported the loss of a peer
  std::string message = {};  // one sentence that names the rank; empty: an early stop (75)
  int rank = -1;             // the rank of the message, or the first one that stopped; −1: none
  std::vector<std::string> last_lines = {};  // of that rank's stderr
  std::string launcher = {};  // the id of the launcher that reports it to other nodes
};

// Returns true if a restart may succeed after this exit code.
bool is_recoverable(int code);

class WorkerGroup {
 public:
  // `options` and `signals` outlive it.
  WorkerGroup(const LaunchOptions& options, SignalSource& signals)
      : options_(options), signals_(signals) {}
  // Kills ranks that are still alive, which happens only if starting another rank failed.
  ~WorkerGroup();

  // Starts a rank for each environment, in the order of local ranks, bound to its CPUs. The first
  // one is global rank `first_rank`. `logs`: the folder for tee and redirects. Called once.
  void start(const std::vector<std::string>& arguments,
             const std::vector<Environment>& environments,
             const std::vector<std::vector<int>>& cpus, int first_rank,
             const std::filesystem::path& logs);

  bool alive() const;
  // Passes output and signals on and reaps ranks that have ended. Waits at most `at_most` for an
  // event.
  void process_events(std::chrono::milliseconds at_most);
  // Returns the failure that ends the attempt, once its cause is known. An early stop (75) is
  // returned only when all ranks have ended, or none has followed within the grace.
  std::optional<Failure> failure() const;
  // Sends SIGTERM now and SIGKILL after the grace, because the attempt has failed elsewhere.
  void stop();
  // Kills a rank that makes no progress; it becomes the cause of the failure.
  void kill_stuck(int rank, const std::string& reason);
  // Passes on what is left in the pipes after the last rank has ended.
  void drain();
  // Returns true if the last lines of the failing rank were printed last, or it writes to the
  // terminal itself.
  bool printed_last() const;

 private:
  struct Rank {
    int number = 0;
    pid_t pid = 0;
    bool alive = false;
    int signal = 0;  // the signal that killed it
    int code = 0;
    std::string stuck;                    // why kill_stuck() killed it; may be empty
    std::unique_ptr<LineRelay> out, err;  // nullptr if the rank writes to the terminal itself

    bool forwarded_signal = false;  // `signal` is an interruption that this launcher has passed on

    bool failed() const { return signal != 0 || code != 0; }
    int cause_priority() const;
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
  const LineRelay* last_printed_ = nullptr;  // the relay that has printed last
  bool decided_ = false;                     // cause_ is final
  bool stopping_ = false;                    // SIGTERM has been sent because of a failure
  bool killed_ = false;
  bool interrupted_ = false;                   // an interruption was passed on
  std::optional<Clock::time_point> deadline_;  // end of the blame window, then of the grace
};

// Prints a line of the launcher on stderr.
void print_line(const std::string& text);
// Prints the last lines of a rank.
void print_last_lines(int rank, const std::vector<std::string>& lines);

}  // namespace dltrain
