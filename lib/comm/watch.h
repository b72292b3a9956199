// Watches the ranks of a run, so that every rank learns which one has died, stopped, hung or is
// slow.
//
// Every rank has one RankWatch with a thread. Every kHeartbeatInterval (or a quarter of the
// timeout, if that is less) it sends one message to the store, with the position of the rank: step,
// number of issued operations, time that it has been waiting in one. The watch of rank 0 reads the
// positions of all ranks, the others and the launcher read that of rank 0. The first finding
// becomes the reported failure, which all ranks and the launcher read:
//
//   a rank's process has ended      reported at once by the last will of its connection
//   a rank has failed               the rank reports the reason itself: report()
//   no update for `timeout`         SIGSTOP, a lost host
//   a rank hangs                    others have waited for it in an operation for `timeout`
//   a GPU hangs                     likewise among GPUs; or it has executed one operation for
//                                   `timeout` that the others have completed, or that none
//                                   completes
//
// An operation that fails calls explain() for the reason. If the training thread does not notice
// the reported failure, because it is in no operation, `on_lost` is called.
//
// Stragglers: a rank whose own time per step (without waiting for others) exceeds
// `straggler_factor` times the median in two consecutive windows is reported once, on rank 0.
//
// Threads: track() and untrack() by any thread; the other methods by the training thread. The
// callbacks are called by the thread of the watch. An operation costs about 100 ns; nothing is
// allocated for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/store.h"
#include "comm/watch_records.h"
#include "device/collective_backend.h"
#include "device/collectives.h"

namespace dltrain {

// One operation of a group. All ranks of a group count the same collectives, so `number` shows
// which rank is behind.
struct ObservedOperation {
  const char* name = "";  // "all_reduce"
  size_t count = 0;
  DType dtype = DType::u8;
  // The number of the group's collectives until this operation, from 1; 0: unknown.
  uint64_t number = 0;
  uint64_t ticket = 0;  // in the sequence of this rank's operations in the group
  // The other one of two ranks, in the group; the watch makes it the rank among all. −1: a
  // collective.
  int peer = -1;
  OperationSubject subject = nullptr;
  int64_t step = -1;  // set by the watch

  // "all_reduce 9 of 1000 f32 (gradient.h.0.mlp.weight)", "send of 1000 f32 with rank 3"
  std::string text() const;
};

// " at step 3, in all_reduce 9 of 1000 f32"
std::string where(const WatchPosition& position);

inline ObservedOperation observed_operation(const CollectiveCall& call, uint64_t number,
                                            uint64_t ticket) {
  return {.name = collective_name(call.kind),
          .count = call.count,
          .dtype = call.dtype,
          .number = number,
          .ticket = ticket,
          .peer = call.is_between_two() ? call.peer : -1,
          .subject = call.subject};
}

struct WatchOptions {
  static constexpr std::chrono::milliseconds kNoticeTime{300};

  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{600'000};
  double straggler_factor = 2;  // 0: stragglers are not reported
  std::chrono::milliseconds straggler_window{5'000};
  // The time that the training thread has to notice a reported failure before on_lost is called.
  std::chrono::milliseconds notice_time = kNoticeTime;
  // The run is lost and the training thread has not noticed: end the process with exit code 6.
  std::function<void(const std::string& message)> on_lost = {};
  std::function<void(const std::string& message)> on_straggler = {};
  // Called before on_lost if the connection to the store is lost. Only this rank knows that.
  std::function<void()> on_store_lost = {};
};

// The newest heartbeat of a rank.
struct WatchedRank {
  std::optional<WatchPosition> position = {};
  Clock::time_point changed = Clock::now();

  // Takes over a position that is new.
  void note(WatchPosition now);
  // Returns the message if there was no heartbeat for `timeout`, otherwise an empty text.
  std::string silence(int rank, std::chrono::duration<double> timeout) const;
};

class RankWatch {
 public:
  static constexpr std::chrono::milliseconds kHeartbeatInterval{250};
  // Groups over host memory are numbered from 0, groups of devices from kFirstDeviceGroup.
  static constexpr int kFirstDeviceGroup = 1'000;

  // `store`: of the ranks, outlives the watch, which uses the last will of the connection.
  RankWatch(StoreClient& store, WatchOptions options);
  // Unless finish() or report() was called before, the other ranks learn that this one was lost.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Enclose the work of a step, counted from 0. The time between steps does not count as slow.
  void at_step_begin(int64_t step);
  void at_step_end(int64_t step);
  // Rank 0 informs the launcher (watch_keys).
  void begun() { store_.set(watch_keys::kBegun, "1"); }
  void stop_logged() { store_.set(watch_keys::kStopLogged, "1"); }

  // This rank fails. The other ranks learn the reason, the launcher also the exit code, although
  // the process may still take a while to end.
  void report(const std::string& message, ExitCode code = ExitCode::rank);
  // This rank ends normally; the other ranks do not wait for it any more.
  void finish();

  // Announces a group that this rank is a member of. Group 0 has all ranks and is not announced.
  void joined(int group, std::span<const int> ranks);
  void issued(int group, ObservedOperation operation);
  // The training thread starts to wait for an operation, and has stopped waiting.
  void waiting(int group, ObservedOperation operation);
  void done_waiting();
  // Follows the progress of a group whose operations a device executes. The backend must live until
  // untrack().
  void track(int group, CollectiveBackend& backend);
  void untrack(int group);

  // The current step, counted from 0; −1: none.
  int64_t step();
  // Returns the message for a failed operation: waits a moment for the reported failure; without
  // one, `reason` becomes the reported failure.
  std::string explain(const std::string& reason);

 private:
  struct Peer : WatchedRank {
    WatchPosition window_begin = {};  // of straggling
  };
  // A group of devices. The operation of a ticket is in ring[ticket % size], unless a later one has
  // replaced it.
  struct TrackedGroup {
    int group;
    CollectiveBackend* backend;
    std::vector<ObservedOperation> ring;
    uint64_t issued = 0, done = 0;  // tickets
  };

  void run();
  RankFailure store_failure(const Error& error) const;
  void find_peer(int group, ObservedOperation& operation) const;
  void send_heartbeat();
  WatchPosition own_position();
  void poll_devices();
  void note_position(const std::string& text);
  void find_unresponsive(int rank);
  void find_hanging();
  bool find_missing(int waiter, bool of_device);
  void find_hanging_devices();
  std::vector<int> members_of(int rank, const WatchWait& wait);
  void find_stragglers();
  void declare_failure(int rank, const std::string& message);
  void end_if_unnoticed();

  WatchOptions options_;
  std::string self_;  // "rank 2 (process 77 on host)"
  std::chrono::milliseconds interval_;
  StoreClient& store_;

  // Used by the thread of the watch only.
  std::vector<Peer> peers_;
  uint64_t heartbeats_ = 0;
  int64_t written_step_ = 0;
  Clock::time_point window_ = Clock::now();
  int slow_rank_ = -1, reported_rank_ = -1;

  std::mutex writing_;  // of the position in the store; locked before mutex_
  std::mutex mutex_;    // protects the members below
  std::condition_variable changed_;
  int64_t step_ = -1, steps_done_ = 0;
  Clock::time_point step_begin_{}, wait_begin_{};
  bool waiting_ = false;
  int waiting_group_ = 0;
  ObservedOperation last_, awaited_;
  // Numbers of collectives by group. Group 0 exists from the beginning.
  std::map<int, uint64_t> issued_{{0, 0}}, done_;
  std::map<int, std::vector<int>> members_;  // of the groups of some ranks
  std::list<TrackedGroup> tracked_;
  int device_group_ = -1;  // of the operation that the device executes; −1: none
  ObservedOperation device_last_;
  Clock::time_point device_begin_{};
  Clock::duration waited_{}, busy_{};
  std::optional<RankFailure> failure_;
  bool noticed_ = false;  // the training thread has asked for the reported failure
  std::atomic<bool> finished_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace dltrain
