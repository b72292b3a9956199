// A run in the files of Weights & Biases' offline mode, which `wandb sync FOLDER` uploads:
//
//   wandb/offline-run-20261127_231527-1f0c9a2b/run-1f0c9a2b.wandb      in the run folder
//
// The format is that of the package `wandb`: records of its protocol buffers
// (wandb/proto/wandb_internal.proto) in the log format of LevelDB (blocks of 32 KiB) with CRC-32
// instead of CRC-32C. It is not documented; written as wandb 0.31.0 does, and read back with that
// version's own classes (tests/apps/test_wandb.py).
//
// No failure stops a run: each function returns why it has failed, the first time; "" else.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "telemetry/protobuf.h"

namespace dltrain {

struct WandbInfo {
  std::string project, entity, name, notes;  // entity "": the user's default
  std::vector<std::string> tags = {};
  std::string host = {};
  std::string config = {};  // text of dump_config()
};

class WandbRun {
 public:
  // Begins the file anew, with the lines that metrics.jsonl of `run` already has.
  std::string open(const std::filesystem::path& run, const WandbInfo& info);
  // Adds a line of metrics.jsonl: its numbers. Lines of one step are one row.
  std::string add(std::string_view line);
  std::string finish(int exit_code);
  const std::filesystem::path& folder() const { return folder_; }

 private:
  template <typename Work>
  std::string guarded(Work work);
  void begin(const std::filesystem::path& run, const WandbInfo& info);
  void take(std::string_view line);
  void write_row();
  void write(ProtobufMessage record);

  std::filesystem::path folder_;
  std::unique_ptr<FileWriter> file_;  // nullptr: not open, or failed
  std::string id_;
  uint64_t bytes_ = 0;
  int64_t records_ = 0, step_ = -1;  // of the row that is being collected; -1: none
  double started_ = 0;
  std::vector<std::pair<std::string, std::string>> row_;  // numbers as JSON
};

}  // namespace dltrain
