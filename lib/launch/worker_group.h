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
  int rank = -1;             // that the message names, or that stopped first; −1: none
  std::vector<std::string> last_lines = {};  // of that rank's stderr
  bool obeyed = false;                       // the rank died of a signal that was passed on
};

// Whether another start can go better than one that ended with this code.
bool is_curable(int code);

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
  // Something took so much longer than it can, and now it is over: where that is long this process
  // stood still (SIGSTOP), and ranks that are found to have ended now have missed it.
  void was_late(Clock::duration late);
  // After the last rank: what is still in the pipes.
  void drain();
  // How long this process stood still just before the ranks that have caused the failure were found
  // to have lost the run (code 6); 0: it did not, or they have ended otherwise.
  std::chrono::milliseconds missed() const;
  // Whether that holds for this rank, if it is one of these.
  bool has_left(int rank) const;
  // Whether the last lines of the failing rank stand right above, or it has a terminal of its own.
  bool has_just_spoken() const;

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
    bool left = false;    // found to have ended with code 6 just after this launcher stood still

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
  const LineRelay* last_speaker_ = nullptr;  // whose lines came last, here and not to a file alone
  bool decided_ = false;                     // cause_ is final
  bool stopping_ = false;                    // SIGTERM has been sent because of a failure
  bool killed_ = false;
  bool interrupted_ = false;                   // an interruption was passed on
  std::chrono::milliseconds stood_still_{0};   // this process, at last
  Clock::time_point awake_{};                  // since when it does not any more
  Clock::time_point waited_{};                 // when the last wait for signals or output ended
  std::optional<Clock::time_point> deadline_;  // of the blame window, then of the grace
};

// A line of the launcher's own on stderr.
void say(const std::string& text);
// And the last lines of a rank below it.
void say_last_lines(int rank, const std::vector<std::string>& lines);

}  // namespace dltrain
