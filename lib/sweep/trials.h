// The trials of a sweep and their results, as the folder of the sweep holds them. Several
// processes, also on different machines, may work on one folder.
//
//   config.yaml              the resolved experiment with its section `sweep`
//   trial-0007/run/          the run folder; trial-0007-2: the second of several repeats
//   trial-0007/trial.json    values and results; written when a run has ended
//   trial-0007/output.txt    the output of the run
//   trial-0007/.lock         held by the process that trains it
//   trials.csv               the ranking
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/run_lock.h"
#include "experiment/experiment.h"

namespace dltrain {

inline constexpr const char* kRankingFile = "trials.csv";

// How a run has ended, the worst last.
enum class TrialEnd : uint8_t { complete, timed_out, diverged, failed };

// The end of a run in one round (search: halving has several, others one).
struct TrialResult {
  int exit_code = 0;
  std::string message = {};                    // why it has no result
  std::map<std::string, double> figures = {};  // numbers of its summary.json
  bool timed_out = false;                      // training.max_time has ended it (75)

  TrialEnd end() const {
    return exit_code == 0   ? TrialEnd::complete
           : timed_out      ? TrialEnd::timed_out
           : exit_code == 4 ? TrialEnd::diverged
                            : TrialEnd::failed;
  }
  // Runs that failed are repeated by the next command; diverged ones would diverge again.
  bool is_final() const { return end() != TrialEnd::failed; }
  bool has_trained() const { return end() <= TrialEnd::timed_out; }
  // A figure, or NaN if there is none or the run has diverged or failed.
  double value(const std::string& metric) const;
};

// A number of steps, as a share of the whole run, and the number of trials that train so far.
struct SweepRound {
  double share = 1;
  int64_t trials = 0;
};

// A part of the work: train a run of a trial to the end of a round.
struct SweepJob {
  int64_t trial = 0, repeat = 0;
  size_t round = 0;
};

class Trials {
 public:
  // Opens the folder, and creates it if it is `writable`. Throws Error(usage) if it belongs to
  // another sweep or is not empty, Error(storage).
  Trials(const Experiment& experiment, std::filesystem::path folder, bool writable);

  const SweepConfig& sweep() const { return sweep_; }
  const std::string& metric() const { return metric_; }
  bool smaller_is_better() const { return smaller_; }
  const std::vector<SweepRound>& rounds() const { return rounds_; }
  int64_t count() const { return static_cast<int64_t>(results_.size()); }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path folder_of(int64_t trial, int64_t repeat) const;

  // The values of a trial; empty as long as they depend on results that are missing. Those of a
  // trial that has been trained are the ones with which it was.
  std::optional<std::vector<std::string>> values(int64_t trial);
  const std::optional<TrialResult>& result(const SweepJob& job) const;
  // Stores a result, in memory only if the run has to be repeated.
  void store(const SweepJob& job, TrialResult result);
  bool any_stored() const;
  void write_ranking(const std::string& csv) const;
  // Read what other processes have stored, of all runs or of one.
  void refresh();
  void refresh(int64_t trial, int64_t repeat);

  // The next job that can begin now, of those for which `free` returns true, in a fixed order.
  // Nothing: all are done, or the others wait for results.
  template <typename Free>
  std::optional<SweepJob> next(Free free);
  bool done();

  // The result of a trial in a round over its repeats, smaller is better: infinite if a run has
  // failed, NaN as long as one is missing.
  double score(int64_t trial, size_t round) const;
  // The trials of a round, the best of the round before; empty as long as that is not complete.
  std::vector<int64_t> members(size_t round) const;

 private:
  void check_own() const;
  int64_t stored_trials() const;
  // Waits for other processes that open the same folder or write to it.
  std::unique_ptr<RunLock> lock_folder() const;
  std::optional<TrialResult>& slot(const SweepJob& job);
  void compare(const std::string& before, const std::string& now, bool trains) const;

  const SweepConfig& sweep_;
  std::filesystem::path folder_;
  std::string metric_;
  bool smaller_ = true;
  std::vector<SweepRound> rounds_;
  std::vector<std::vector<std::string>> values_;  // of trials; empty: not known yet
  // [trial][repeat × rounds + round]
  std::vector<std::vector<std::optional<TrialResult>>> results_;
};

template <typename Free>
std::optional<SweepJob> Trials::next(Free free) {
  for (size_t round = 0; round < rounds_.size(); ++round) {
    for (const int64_t trial : members(round)) {
      if (!values(trial)) break;
      for (int64_t repeat = 0; repeat < sweep_.repeats; ++repeat) {
        const SweepJob job{.trial = trial, .repeat = repeat, .round = round};
        if (!result(job) && free(job)) return job;
      }
    }
  }
  return std::nullopt;
}

}  // namespace dltrain
