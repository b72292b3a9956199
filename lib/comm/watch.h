// Watches the ranks of a run, so that one that dies, stops, hangs or is slow is named everywhere.
//
// Every rank has one RankWatch: a thread with a connection of its own to the store, which tells
// every kBeat (a quarter of the timeout, if that is less) where the rank stands: step, number of
// collectives and messages issued, how long it has been waiting in one. Rank 0's watch reads what
// the others say, theirs read what rank 0 says. The first finding is the verdict that all ranks
// learn (and a launcher of ours):
//
//   a rank ended without a word     the store's last will says so at once
//   a rank failed                   it says why itself: report()
//   no sign of life for `timeout`   SIGSTOP, a lost host
//   a rank hangs                    others have waited for it in an operation for `timeout`
//   a GPU hangs                     so have other GPUs; or it is in an operation for that long
//                                   which the others are done with, or which nobody comes out of
//
// An operation that fails asks explain() for the reason. A rank that does not notice, because it is
// not in a collective, is ended by `on_lost`.
//
// Stragglers: a rank whose own time a step (without waiting for others) was more than
// `straggler_factor` times the median in two windows in a row is reported once on rank 0.
//
// Threads: at_…, begun, saved, told_stop and the observer's calls by the training thread, what a
// device does by any; the callbacks come from the watch's own. Cost: about 100 ns for each
// collective; nothing is allocated there.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/observer.h"
#include "comm/store.h"
#include "comm/watch_keys.h"
#include "comm/watch_position.h"

namespace dltrain {

struct WatchOptions {
  static constexpr std::chrono::milliseconds kNoticeTime{300};

  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{600'000};
  double straggler_factor = 2;  // 0: stragglers are not reported
  std::chrono::milliseconds straggler_window{5'000};
  // How long the training thread has to notice a verdict by itself.
  std::chrono::milliseconds notice_time = kNoticeTime;
  // The run is over and the training thread has not noticed: end the process with code 6.
  std::function<void(const std::string& message)> on_lost = {};
  std::function<void(const std::string& message)> on_straggler = {};
  // Before that: what is found is the loss of the store, of which this rank alone knows.
  std::function<void()> on_lost_touch = {};
};

class RankWatch final : public CollectiveObserver {
 public:
  static constexpr std::chrono::milliseconds kBeat{250};
  // Groups over host memory have the numbers from 0, those over devices from kFirstDeviceGroup on.
  static constexpr int kMaxGroups = 32, kFirstDeviceGroup = kMaxGroups / 2;

  // `store`: of the ranks; the watch connects by itself. Throws Error(rank).
  RankWatch(StoreOptions store, WatchOptions options);
  // Without finish() or report() before, the other ranks are told that this one was lost.
  ~RankWatch() override;

  // Around the work of a step, counted from 0; what comes between steps is not counted as slow.
  void at_step_begin(int64_t step);
  void at_step_end(int64_t step);
  // Rank 0: the run folder is this run's; a checkpoint is complete; it has told that the run was
  // stopped in order. For the launcher.
  void begun();
  void saved(int64_t step);
  void told_stop();

  // This rank fails by itself: the others learn why, and a launcher of ours what it will end with,
  // however long it takes to.
  void report(const std::string& message, ExitCode code = ExitCode::rank);
  // This rank is about to end as it should; from now on nobody waits for it.
  void finish();

  void joined(int group, std::span<const int> ranks) override;
  void issued(int group, const ObservedOperation& operation) override;
  void waiting(int group, const ObservedOperation& operation) override;
  void done_waiting() override;
  void on_device(int group, const ObservedOperation& operation) override;
  void device_done(int group, const ObservedOperation& operation) override;
  int64_t step() override;
  std::string describe(const ObservedOperation& operation) override;
  // Waits a moment for the verdict; without one the reason itself becomes it.
  std::string explain(const std::string& reason, bool certain) override;

 private:
  using Milliseconds = std::chrono::milliseconds;
  struct Peer {  // what is known of another rank
    std::optional<WatchPosition> position = {};
    Clock::time_point changed = Clock::now();
    WatchPosition window_begin = {};  // of straggling
  };

  void run();
  void beat();
  WatchPosition own_position();
  static std::string words(const ObservedOperation& operation);
  WatchMessages& messages_with(int group, int peer);
  void look_at(int rank);
  void find_silent(int rank);
  void find_hanging();
  bool find_keeper(int waiter, bool of_device);
  void find_hanging_devices();
  struct Sequence;
  static std::vector<Sequence> sequences_of(int rank, const WatchWait& wait);
  std::vector<int> members_of(const Sequence& sequence, const WatchWait& wait) const;
  // Whether nobody but this rank keeps the waiting one from going on.
  static bool keeps(int rank, const WatchPosition& other, const Sequence& sequence, bool of_device);
  void find_stragglers();
  void decide(const Verdict& verdict);
  bool wait_for_next();
  void end_if_unnoticed();
  std::string who(int rank) const;
  static std::string where(const WatchPosition& position);
  static std::string where_device(const WatchPosition& position);

  StoreOptions store_options_;
  WatchOptions options_;
  std::string self_;  // "rank 2 (process 77 on host)"
  Milliseconds interval_;
  StoreClient client_;

  // Of the watch's thread.
  std::vector<Peer> peers_;
  uint64_t beats_ = 0;
  int64_t told_step_ = 0;
  Clock::time_point window_ = Clock::now();
  int slow_rank_ = -1, reported_rank_ = -1;

  std::mutex telling_;  // of what the store is told; taken before the other
  std::mutex mutex_;    // of everything below
  std::condition_variable changed_;
  int64_t step_ = -1, steps_done_ = 0;
  Clock::time_point step_begin_{}, wait_begin_{};
  bool in_step_ = false, waiting_ = false;
  int waiting_group_ = 0;
  ObservedOperation last_, awaited_;
  std::array<uint64_t, kMaxGroups> issued_{};
  std::array<bool, kMaxGroups> joined_{true};         // group 0 is there from the beginning
  std::array<std::vector<int>, kMaxGroups> members_;  // empty: all ranks
  int device_group_ = -1;  // of the operation that the device is in; −1: none
  ObservedOperation device_last_;
  Clock::time_point device_begin_{};
  std::array<uint64_t, kMaxGroups> done_{};  // on the device
  std::vector<WatchMessages> messages_;      // [group and peer, as they were first seen]
  Clock::duration waited_{}, busy_{};
  std::optional<Verdict> verdict_;
  bool noticed_ = false;  // the training thread has asked for the verdict
  bool urgent_ = false;   // it is waiting for it now
  std::atomic<bool> finished_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace dltrain
