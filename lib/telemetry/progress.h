// How far a run is: a bar with rate and remaining time on a terminal, and the same as plain text
// for the log.
//
//   train  45% ━━━━━━━━━╸           2250/5000  loss 1.2345  182.3 steps/s  0:15 left
//
// Threads: used by one thread; log lines may come from others (console.h keeps them apart).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "telemetry/console.h"

namespace dltrain {

struct ProgressOptions {
  std::string label = "train";
  int64_t first = 0;  // steps done before (resume)
  int64_t total = 0;  // the step at which it ends
  bool quiet = false;
  double bar_seconds = 0.1;  // between two drawings of the bar, at least
  // For tests.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class Progress {
 public:
  Progress(Console& console, ProgressOptions options);
  // Takes the bar away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` steps are finished. `detail` is shown as it is: "loss 1.2345". Cheap: nothing is
  // formatted unless the bar is to be drawn.
  void update(int64_t done, const std::function<std::string()>& detail);
  // "train  45% 2250/5000  loss 1.2345  182.3 steps/s  0:15 left"
  std::string line(int64_t done, const std::string& detail);
  // Replaces the bar by the last state.
  void finish(const std::string& detail);

 private:
  void count(int64_t done);
  std::string head() const;
  std::string tail(const std::string& detail) const;
  std::string bar(int columns) const;

  Console& console_;
  ProgressOptions options_;
  std::chrono::steady_clock::time_point begin_, shown_;
  // After the first step here, whose time says nothing about the others.
  std::chrono::steady_clock::time_point timed_from_;
  int64_t done_, timed_step_ = -1;
  bool ended_ = false;
};

// 75 -> "1:15", 4000 -> "1:06:40".
std::string format_duration(double seconds);
// As a sentence has it: 0.42 -> "0.4 s", 150 -> "2.5 min", 9000 -> "2.5 h".
std::string format_time(double seconds);

}  // namespace dltrain
