// The output of a profile: as a table and as JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "profile/summary.h"

namespace dltrain {

// The time of one rank's step and of its parts.
struct RankShares {
  double step_seconds = 0;
  std::vector<double> seconds = {};  // of each of Profile::shares
};

// The profile of a run. The figures are those of rank 0; `ranks` has the shares of all ranks.
struct ProfileReport {
  std::string name = {};    // of the run
  std::string note = {};    // why it runs where it does (Session::device_note); empty: as asked
  std::string device = {};  // its name
  std::string backend = {};
  int threads = 0;  // of the kernels; 0: they run on the device
  int64_t warmup = 0, samples_per_step = 0;
  MachineLimits limits = {};
  std::string arithmetic = {};    // "bf16": the utilisation is a share of its rate
  std::string method = {};        // see Recording::method
  double plain_step_seconds = 0;  // the median of steps without observation
  double model_flops = 0;         // of a rank's step (compile/model_flops.h); 0: steps differ
  Profile profile = {};
  std::vector<RankShares> ranks = {};  // with several
  int data_workers = 1, cores = 1;     // threads of the loader; CPUs of this process
  double other_load = 0;               // CPUs of this process that others use
  double watts = 0;                    // of the GPU of rank 0, a mean over the steps; 0: unknown
  std::string throttled = {};          // why that GPU is slowed down (DeviceReading::throttled)
  std::string misalignment = {};       // describe_misalignment() of the step on a GPU
  std::filesystem::path trace = {};

  // Model FLOP utilisation of the plain steps; 0: no limit is known.
  double utilization() const;
  // Energy of the GPUs for a sample, if those of all ranks draw as much; 0: unknown.
  double joules_per_sample() const;
};

struct TableOptions {
  size_t rows = 12;   // of each table, at most
  bool bold = false;  // headings, for a terminal
};

// Plain lines of text.
std::string profile_table(const ProfileReport& report, const TableOptions& options);

// Returns sentences with figures. The first names what bounds the step (arithmetic, memory, data,
// communication or overhead); each of the others names something that could be better.
std::vector<std::string> verdicts(const ProfileReport& report);

// The ops as points under the roofline of the machine (Williams et al. 2009), as SVG: FLOP a byte
// against FLOP/s, the area of a point in proportion to its time.
std::string roofline_svg(const ProfileReport& report);

// One JSON object with everything that the table has, all rows included.
std::string profile_json(const ProfileReport& report);

}  // namespace dltrain
