// The progress of a run: a bar with rate and remaining time on a terminal, and plain text for the
// log.
//
//   train  45% ━━━━━━━━━╸           2250/5000  loss 1.2345  182.3 steps/s  0:15 left
//
// Threads: used by one thread; other threads may log at the same time (see console.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "telemetry/console.h"

namespace dltrain {

struct ProgressOptions {
  std::string label = "train";
  int64_t first = 0;  // completed steps at the start (resume)
  int64_t total = 0;  // the last step
  bool quiet = false;
  // For tests.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class Progress {
 public:
  Progress(Console& console, ProgressOptions options);
  // Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Updates the bar; `done` steps are completed. `detail` returns additional text ("loss 1.2345");
  // it is called only if the bar is drawn.
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
  // Rates exclude the first step, which takes longer.
  std::chrono::steady_clock::time_point timed_from_;
  int64_t done_, timed_step_ = -1;
  bool ended_ = false;
};

// 75 -> "1:15", 4000 -> "1:06:40".
std::string format_duration(double seconds);
// For sentences: 0.42 -> "0.4 s", 150 -> "2.5 min", 9000 -> "2.5 h".
std::string format_time(double seconds);

}  // namespace dltrain
