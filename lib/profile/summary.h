// Computes the figures of a recording: the parts of the time of a step, and how near each op, layer
// and call comes to the limits of the machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profile/limits.h"
#include "profile/recorder.h"

namespace dltrain {

// The properties of one call of a program, which are the same in every step.
struct CallWork {
  std::string op = {}, variant = {};  // "matmul", "oneDNN"
  std::string layer = {};             // "layers.3"; "model" where no layer asked for it
  Phase phase = Phase::forward;
  Cost cost = {};              // as `dltrain plan` counts
  double limit_seconds = 0;    // the time that the cost takes at the machine's limits
  bool by_arithmetic = false;  // the limit is that of arithmetic, not of memory
  bool communicates = false;   // between ranks: its time is no arithmetic
  int64_t slot = -1;           // of an asynchronous operation, which two calls share
};

// Computes the properties of the calls of each program once.
class CallWorkCache {
 public:
  explicit CallWorkCache(const MachineLimits& limits) : limits_(limits) {}
  const CallWork& of(const CallEvent& event);

 private:
  const MachineLimits& limits_;
  std::map<const Program*, std::vector<CallWork>> works_;
};

// Calls that belong together; all figures are those of one step.
struct ProfileRow {
  std::string name;    // op, layer path, or both
  std::string detail;  // the kernel's variant, or the shapes
  double calls = 0;
  double seconds = 0;
  double forward = 0, backward = 0, update = 0;  // of the seconds
  double flops = 0, bytes = 0;
  double limit_seconds = 0;  // the time of these at the machine's limits; 0: no limits apply

  double flop_rate() const { return seconds > 0 ? flops / seconds : 0; }
  double byte_rate() const { return seconds > 0 ? bytes / seconds : 0; }
  // The share of the limit of arithmetic or memory, whichever is nearer for each call. More than 1
  // where caches hold bytes that count as moved.
  double of_limit() const { return seconds > 0 ? limit_seconds / seconds : 0; }
};

// A part of the step's time. All parts together are the step.
struct StepShare {
  std::string name;
  double seconds = 0;
  std::string meaning;  // for the table
};

// A time in which no kernel ran.
struct Gap {
  double seconds = 0;
  std::string cause;  // the name of the share
  int64_t step = 0;   // observed, from 0
  double at = 0;      // seconds since the beginning of the first observed step: place in the trace
};

// Sums over all kernel calls of one step, without communication.
struct KernelTotals {
  double flops = 0, bytes = 0;
  // Time in calls that arithmetic or memory limits, and what they need at these limits.
  double arithmetic_seconds = 0, arithmetic_limit = 0, memory_seconds = 0, memory_limit = 0;
  double calls = 0, short_calls = 0;  // below kShortCall
  double short_excess = 0;            // seconds of short calls beyond what their limits need
};
inline constexpr double kShortCall = 5e-6;  // s

// The loader's threads, in one step.
struct LoaderTotals {
  double fill_seconds = 0;  // of all threads
  double computing = 0;     // of these, processor time; NaN: unknown
};

struct Profile {
  int64_t steps = 0;        // number of observed steps
  double step_seconds = 0;  // their mean
  std::vector<StepShare> shares;
  KernelTotals kernels;
  LoaderTotals loader;
  std::vector<Gap> gaps;  // the longest ten
  // Sorted by time, the slowest first.
  std::vector<ProfileRow> ops, layers, calls;
};

// The recording has at least one complete step.
Profile summarize(const Recording& recording, const MachineLimits& limits);

}  // namespace dltrain
