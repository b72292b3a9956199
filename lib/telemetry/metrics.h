// metrics.jsonl: one JSON object per logged step, appended during the run.
//
// Every line is written with one call: a killed process leaves complete lines, except perhaps the
// last one, which the next start removes if it is incomplete. On resume from step s the lines of
// later steps are removed too, because these steps are computed again: the file of an interrupted
// run has the same steps as that of an uninterrupted one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "telemetry/json_object.h"

namespace dltrain {

class MetricsWriter {
 public:
  // `resumed_step`: the step after which the run resumes; lines up to it are kept. None: a new
  // file. `evaluation_due`: that step's evaluation and samples are repeated. Throws Error(storage).
  MetricsWriter(const std::filesystem::path& path, std::optional<int64_t> resumed_step,
                bool evaluation_due = false);

  // Appends one line. `object` has the key "step". Throws Error(storage) if the disk is full.
  void write(const JsonObject& object);

 private:
  FileWriter file_;
};

// Returns the number of bytes of `text` (a metrics file) to keep when resuming after `step`: up to
// the first line that is incomplete, damaged, or of a later step. Lines without a step are kept.
size_t metrics_to_keep(std::string_view text, int64_t step, bool evaluation_due = false);

// Attempts and times of the lines in a metrics file.
struct EarlierAttempts {
  int64_t attempts = 0;        // 0: no lines
  double first = 0, last = 0;  // seconds since 1970; 0: unknown
};
EarlierAttempts earlier_attempts(const std::filesystem::path& metrics);

// Seconds since 1970.
double unix_time();

// Writes summary.json or the file of --result atomically; a pipe or /dev/stdout is written
// directly.
void write_summary(const std::filesystem::path& path, const JsonObject& summary);

}  // namespace dltrain
