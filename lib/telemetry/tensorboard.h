// Event files that TensorBoard shows: scalars, histograms, images, text and hyperparameters.
//
//   tensorboard --logdir runs
//
// One file per run, tensorboard/events.out.tfevents.dltrain. Each add_… writes one record with one
// call. On resume from step s the records of later steps are removed, as in metrics.jsonl, so that
// the curves have no duplicate steps.
//
// Format: records (telemetry/record_file.h) of the messages Event, Summary, HistogramProto and
// TensorProto of tensorflow/core/{util/event,framework/summary,framework/tensor}.proto, and
// HParamsPluginData of tensorboard/plugins/hparams/plugin_data.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "telemetry/protobuf.h"

namespace dltrain {

class TensorBoardWriter {
 public:
  // Creates `folder`. `resumed_step`: the step after which the run resumes; none: a new file.
  // `now`: seconds since 1970, for tests. Throws Error(storage), as all functions here do.
  TensorBoardWriter(const std::filesystem::path& folder, std::optional<int64_t> resumed_step,
                    std::function<double()> now = {});

  // Tags are grouped by the text before their first slash: "train/loss".
  void add_scalar(int64_t step, std::string_view tag, double value);
  // Values that are not finite are left out; the scalar "<tag>_not_finite" is their number.
  void add_histogram(int64_t step, std::string_view tag, std::span<const float> values);
  // `png`: a PNG file of that size in RGB.
  void add_image(int64_t step, std::string_view tag, int64_t height, int64_t width,
                 std::string_view png);
  // Markdown.
  void add_text(int64_t step, std::string_view tag, std::string_view text);
  // Keys and values as YAML, for the table of runs (HPARAMS), and the end of a complete run. (Of
  // several ends TensorBoard shows the first, so a run that may be resumed has none.)
  void add_hparams(std::span<const std::pair<std::string, std::string>> keys);
  void add_end(int64_t step);

 private:
  void add_plugin_data(int64_t step, std::string_view tag, const ProtobufMessage& data);
  void add_value(int64_t step, const ProtobufMessage& value);
  void write(const ProtobufMessage& event);

  std::function<double()> now_;
  FileWriter file_;
};

// The event file in `folder`.
std::filesystem::path event_file(const std::filesystem::path& folder);

// Returns the step of one of its records, 0 if it has none.
int64_t event_step(std::string_view event);

}  // namespace dltrain
