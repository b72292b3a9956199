// metrics.jsonl: one JSON object a logged step, appended as the run goes.
//
// Every line is handed to the operating system whole and at once: a killed process leaves complete
// lines, save perhaps a last one cut short, which the next start removes. On resume from step s the
// lines of later steps, which will be computed again, are removed too: so the file of a run that
// was interrupted holds the same steps, once, as one that was not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "telemetry/json_object.h"

namespace dltrain {

class MetricsWriter {
 public:
  // `resumed_step`: the step that the run goes on after; lines up to it stay. Nothing: a new file.
  // `evaluation_due`: that step's evaluation and samples will come again. Throws Error(storage).
  MetricsWriter(const std::filesystem::path& path, std::optional<int64_t> resumed_step,
                bool evaluation_due = false);

  // Appends one line. `object` has the key "step". Throws Error(storage) when the disk is full.
  void write(const JsonObject& object);

 private:
  FileWriter file_;
};

// The part of `text` (whole lines of a metrics file) that stays when resuming after `step`: up to
// the first line that is cut, damaged, or of a later step. Lines without a step stay.
size_t metrics_to_keep(std::string_view text, int64_t step, bool evaluation_due = false);

// What the lines of earlier attempts at a run say.
struct EarlierAttempts {
  int64_t attempts = 0;        // 0: there are no lines
  double first = 0, last = 0;  // seconds since 1970; 0: the lines are of a version without times
};
EarlierAttempts earlier_attempts(const std::filesystem::path& metrics);

// Seconds since 1970.
double unix_time();

// summary.json and the file of --result: the object and a newline, whole or not at all; a pipe or
// /dev/stdout is written to directly.
void write_summary(const std::filesystem::path& path, const JsonObject& summary);

}  // namespace dltrain
