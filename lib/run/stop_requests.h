// Requests to the training loop to stop or to save: by signals, the time limit and
// checkpoint.save_minutes. If one rank has a request, all ranks agree on it.
#pragma once

#include <chrono>
#include <cstdint>

#include "run/trainer.h"

namespace dltrain {

// Says when the ranks communicate again about something that they are asked in each of many calls:
// about every 20 ms. They agree on the number of calls until then.
class AskingPause {
 public:
  // Counts a call. Returns whether it falls into the pause.
  bool covers_call() { return calls_++ < length_; }
  int32_t calls() const { return calls_; }
  // The number of calls that this rank makes in that time.
  int32_t proposal() const;
  void restart(int32_t length = 0);

 private:
  int32_t calls_ = 0, length_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class StopRequests {
 public:
  StopRequests(const Session& session, const TrainOptions& options)
      : session_(session), options_(options) {}

  // Returns whether this rank is to stop. The time limit applies after begin_time_limit() only.
  bool own_stop() const { return own_request() != 0; }
  // Called after the first step, so that every attempt of a run makes progress.
  void begin_time_limit() { limits_time_ = true; }

  // Returns whether to stop here, between micro-batches, with the same result on all ranks, which
  // must call it at the same places.
  bool stop_wanted();
  // Makes the next stop_wanted() ask the other ranks, before micro-batches of another duration.
  void ask_at_once() { stop_pause_.restart(); }

  struct AfterStep {
    bool stop = false, save = false;
    bool none_writes = false;  // no rank is writing a checkpoint
  };
  // Lets all ranks agree what to do after a step; `writes`: this rank is writing a checkpoint.
  AfterStep after_step(bool writes, StepObserver* observer);
  // Restarts the time of checkpoint.save_minutes.
  void saved() { last_save_ = std::chrono::steady_clock::now(); }

  // The last stop that the ranks agreed on: `signal` or `time_limit`.
  StopReason reason() const;
  int signal() const;  // 0: none

 private:
  int32_t own_request() const;  // a signal, kTimeLimit, or 0

  const Session& session_;
  const TrainOptions& options_;
  bool limits_time_ = false;
  int32_t agreed_ = 0;
  AskingPause stop_pause_, request_pause_;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
};

}  // namespace dltrain
