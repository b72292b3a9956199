#include "telemetry/chrome_trace.h"

#include "base/file.h"

namespace dltrain {
namespace {

// The format counts in microseconds.
double microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

}  // namespace

ChromeTrace::ChromeTrace(int process, std::string_view name) : process_(process) {
  JsonObject arguments;
  add(event("M", "process_name", 0).add("args", arguments.add("name", name)));
  JsonObject order;
  add(event("M", "process_sort_index", 0).add("args", order.add("sort_index", process)));
}

JsonObject ChromeTrace::event(std::string_view kind, std::string_view name, int thread) const {
  JsonObject out;
  out.add("ph", kind).add("name", name).add("pid", process_).add("tid", thread);
  return out;
}

void ChromeTrace::add(const JsonObject& event) {
  if (!events_.empty()) events_ += ",\n";
  events_ += event.text();
}

void ChromeTrace::name_thread(int thread, std::string_view name) {
  JsonObject arguments, order;
  add(event("M", "thread_name", thread).add("args", arguments.add("name", name)));
  add(event("M", "thread_sort_index", thread).add("args", order.add("sort_index", thread)));
}

void ChromeTrace::slice(int thread, std::string_view name, std::string_view category, int64_t begin,
                        int64_t end, const JsonObject& arguments) {
  JsonObject out = event("X", name, thread);
  out.add("cat", category).add("ts", microseconds(begin)).add("dur", microseconds(end - begin));
  if (!arguments.empty()) out.add("args", arguments);
  add(out);
}

void ChromeTrace::async_slice(int64_t id, std::string_view name, std::string_view category,
                              int64_t begin, int64_t end, const JsonObject& arguments) {
  JsonObject first = event("b", name, 0), last = event("e", name, 0);
  first.add("cat", category).add("id", id).add("ts", microseconds(begin));
  last.add("cat", category).add("id", id).add("ts", microseconds(end));
  if (!arguments.empty()) first.add("args", arguments);
  add(first);
  add(last);
}

void write_chrome_trace(const std::filesystem::path& path, std::span<const std::string> events) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  bool first = true;
  for (const std::string& part : events) {
    if (part.empty()) continue;
    if (!first) text += ",\n";
    first = false;
    text += part;
  }
  write_file_atomically(path, text + "\n]}\n");
}

}  // namespace dltrain
