// What a run folder tells about its run, for `dltrain runs`. Nothing in a folder is trusted: what
// cannot be read is described in RunRecord::problem or left out, never thrown.
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
  std::map<std::string, double> figures = {};  // numbers of summary.json, else of the last log line
  std::map<std::string, std::string> texts = {};  // texts of summary.json
  std::vector<RunAttempt> attempts = {};

  // A figure, a text or a key of the configuration as text; "" where there is none.
  std::string value(const std::string& key) const;
};

RunRecord read_run(const std::filesystem::path& folder);
// The time of all starts of a run, from its figures; NaN as long as they lack it.
double whole_seconds(const std::map<std::string, double>& figures);
// The logged steps of a run, in order.
std::vector<RunPoint> read_curve(const std::filesystem::path& run);
// The run folders in and below `folder` (to a depth of four, where those of a sweep lie) and links
// to run folders, in order of their paths.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder);

// A value of a ConfigDifference, written as YAML on one line: texts without their quotes,
// and `${` for `$${`.
std::string plain_value(const std::string& yaml);
// The keys of the configuration with their values: `plain`, or as YAML.
std::map<std::string, std::string> settings_of(const RunRecord& run, bool plain = true);

}  // namespace dltrain
