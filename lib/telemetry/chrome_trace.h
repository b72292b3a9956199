// Traces in the format of chrome://tracing, which Perfetto (ui.perfetto.dev) reads too: the JSON
// object form of Google's "Trace Event Format".
//
// A process has threads, a thread has slices, which can be nested but must not overlap otherwise.
// Overlapping slices (messages in transit) are asynchronous and shown on separate lines.
//
// Times are nanoseconds since any moment, the same for the whole trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "telemetry/json_object.h"

namespace dltrain {

class ChromeTrace {
 public:
  // All events belong to this process. Processes are shown in the order of `process`.
  ChromeTrace(int process, std::string_view name);

  // Threads are shown in the order of their numbers.
  void name_thread(int thread, std::string_view name);
  void slice(int thread, std::string_view name, std::string_view category, int64_t begin,
             int64_t end, const JsonObject& arguments = {});
  // `id`: unique among overlapping slices of one name.
  void async_slice(int64_t id, std::string_view name, std::string_view category, int64_t begin,
                   int64_t end, const JsonObject& arguments = {});

  // The events so far, for write_chrome_trace. They can be sent to another process.
  const std::string& events() const { return events_; }

 private:
  JsonObject event(std::string_view kind, std::string_view name, int thread) const;
  void add(const JsonObject& event);

  int process_;
  std::string events_;  // JSON objects, separated by commas
};

// Writes the events of several processes to one file atomically. Throws Error(storage).
void write_chrome_trace(const std::filesystem::path& path, std::span<const std::string> events);

}  // namespace dltrain
