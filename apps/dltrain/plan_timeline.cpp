// dltrain plan --timeline: the estimated step as a trace.
#include <map>
#include <tuple>

#include "dltrain/gpu_estimate.h"
#include "telemetry/chrome_trace.h"

namespace dltrain {
namespace {

constexpr int kSegments = 1, kCalls = 2;  // threads

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(1e9 * seconds);
}

}  // namespace

void write_timeline(const std::filesystem::path& path, const Session& session,
                    const MachineRates& rates) {
  const int count = session.coordinates.pipeline.count;
  std::vector<EstimatedEvent> events;  // of the first stage
  const std::vector<StageTimes> stages = estimate_stages(
      session, rates, {}, [&](const EstimatedEvent& event) { events.push_back(event); });
  const std::vector<std::vector<double>> begins = begin_times(stages);
  const int chunks = chunks_of(stages[0].schedule);
  std::vector<std::string> out;
  // Beginnings of the first rank's segments.
  std::map<std::tuple<Phase, int, int64_t>, double> first;
  for (size_t s = 0; s < stages.size(); ++s) {
    ChromeTrace trace(static_cast<int>(s),
                      fmt::format("{} {}", count > 1 && chunks == 1 ? "stage" : "rank", s));
    trace.name_thread(kSegments, "segments");
    for (size_t i = 0; i < stages[s].schedule.size(); ++i) {
      const ScheduledSegment& segment = stages[s].schedule[i];
      const bool update = segment.segment == Phase::update;
      if (s == 0) {
        first[{segment.segment, segment.chunk, update ? 0 : segment.micro_batch}] = begins[s][i];
      }
      trace.slice(
          kSegments,
          update ? "update"
                 : fmt::format("{} {}{}", phase_name(segment.segment), segment.micro_batch + 1,
                               chunks > 1 ? fmt::format(" chunk {}", segment.chunk) : ""),
          "segment", nanoseconds(begins[s][i]), nanoseconds(begins[s][i] + stages[s].seconds[i]));
    }
    if (s == 0) {
      trace.name_thread(kCalls, "calls");
      int64_t id = 0;
      for (const EstimatedEvent& event : events) {
        const double begin =
            first.at({event.node.phase, event.node.chunk, event.micro_batch}) + event.begin;
        const int64_t from = nanoseconds(begin), to = nanoseconds(begin + event.seconds);
        const std::string name = fmt::format("{} {}", event.node.op->name, event.node.layer);
        if (event.is_message) {
          trace.async_slice(id++, name, "message", from, to);
        } else {
          trace.slice(kCalls, name, "call", from, to);
        }
      }
    }
    out.push_back(trace.events());
  }
  write_chrome_trace(path, out);
  fmt::print("timeline: {} (for ui.perfetto.dev)\n", path.string());
}

}  // namespace dltrain
