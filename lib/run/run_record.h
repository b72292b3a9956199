// Reads run folders for `dltrain runs`. Nothing in a folder is trusted: what cannot be read is
// described in RunRecord::problem or left out, never thrown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/diff.h"

namespace dltrain {

// One start of a run: a line of attempts.jsonl in its folder.
struct RunAttempt {
  int64_t attempt = 1;
  double time = 0;  // of the start, seconds since 1970
  std::vector<std::string> command = {};
  std::string folder = {}, host = {}, dltrain = {}, revision = {}, device = {};
  std::string data = {};  // fingerprint
  int64_t ranks = 1, threads = 1;

  std::string command_text() const;  // "dltrain train exp.yaml", quoted for a shell
};
inline constexpr const char* kAttemptsFile = "attempts.jsonl";
// Throws Error(storage).
void write_attempt(const std::filesystem::path& run, const RunAttempt& attempt);

// A logged step or an evaluation.
struct RunPoint {
  int64_t step = 0;
  double loss = 0, grad_norm = 0;  // NaN where they are null
};

struct RunRecord {
  std::filesystem::path folder;
  std::string name;
  std::string status = {};   // running, finished, stopped, failed (4), interrupted, broken
  std::string problem = {};  // why it is broken, or the message of a failure
  std::string config = {};   // text of config.yaml
  // Numbers of summary.json. Those that it lacks if the run has no result are of the log.
  std::map<std::string, double> figures = {};
  std::map<std::string, std::string> texts = {};  // texts of summary.json
  std::vector<RunAttempt> attempts = {};

  // The folder (run), status, time of all starts, a figure, a text or a key of the configuration as
  // text; "" where there is none.
  std::string value(const std::string& key) const;
};

RunRecord read_run(const std::filesystem::path& folder);
// The folder that a run is named by: of a sweep that of the trial, since all its runs are called
// run. An absolute path.
std::filesystem::path named_folder(const std::filesystem::path& run);
// The time of all starts of a run, from its figures; NaN as long as they lack it. Of a run without
// a result it is known for one start only.
double whole_seconds(const std::map<std::string, double>& figures);
// The logged steps of a run, in order.
std::vector<RunPoint> read_curve(const std::filesystem::path& run);
// The run folders in and below `folder` (to a depth of four, where those of a sweep lie) and links
// to run folders, in order of their paths. Of a trial only its run counts, no other folder in it.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

// A value of a ConfigDifference, written as YAML on one line: texts without their quotes,
// and `${` for `$${`.
std::string plain_value(const std::string& yaml);
// The keys of the configuration with their values: `plain`, or as YAML. Empty for a text that is
// not a whole experiment.
std::map<std::string, std::string> settings_of(const RunRecord& run, bool plain = true);

}  // namespace dltrain
