// The newest values of metrics.jsonl in the text format of Prometheus, for the textfile collector
// of its node_exporter (`logging.prometheus`): dltrain_loss{run="digits"} 0.25.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include "telemetry/json_object.h"

namespace dltrain {

class PrometheusFile {
 public:
  // `run`: the value of the label `run`.
  PrometheusFile(std::filesystem::path path, const std::string& run);
  // Throws Error(usage) if `path` is a file of another program. Called before a run changes
  // anything.
  static void check(const std::filesystem::path& path);

  // Takes the numbers of a line, and rewrites the file unless that was less than a second ago.
  // Returns, the first time, why it could not be written or that another run writes it too; ""
  // else. A run goes on.
  std::string update(const JsonObject& line);
  std::string write();

 private:
  std::string other_run() const;

  std::filesystem::path path_;
  std::string run_;
  std::map<std::string, std::string> values_;  // by name, as text
  std::chrono::steady_clock::time_point written_ = {};
  std::string last_ = {};  // the text that was written last
  bool failed_ = false, shared_ = false;
};

}  // namespace dltrain
