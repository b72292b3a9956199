// How far a run is: a bar with rate and time to go on a terminal, a plain line now and then
// elsewhere (files, pipes, CI).
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
  double bar_seconds = 0.1;    // at most so often the bar is redrawn
  double line_seconds = 10.0;  // at least so long between plain lines
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
  // formatted unless it is time to show something.
  void update(int64_t done, const std::function<std::string()>& detail);
  // Shows the last state once more (as a line where there is no bar) and ends.
  void finish(const std::string& detail);

 private:
  void show(const std::string& detail, bool as_line);
  std::string bar(int columns) const;

  Console& console_;
  ProgressOptions options_;
  std::chrono::steady_clock::time_point begin_, shown_;
  int64_t done_;
  bool shown_any_ = false;
  bool ended_ = false;
};

// 75 -> "1:15", 4000 -> "1:06:40".
std::string format_duration(double seconds);

}  // namespace dltrain
