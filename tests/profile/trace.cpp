// The trace is JSON whose slices do not cross on a thread.
#include "profile/trace.h"

#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "comm/unconnected_ranks.h"
#include "profile/watching.h"
#include "telemetry/chrome_trace.h"
#include "temporary_folder.h"

using namespace dltrain;
using Json = nlohmann::json;

namespace {

Json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

TEST_CASE("a trace of several processes is one JSON document") {
  const TemporaryFolder folder;
  ChromeTrace first(0, "rank 0"), second(1, "a \"quoted\" name\n");
  first.name_thread(1, "training");
  JsonObject arguments;
  first.slice(1, "matmul", "op", 1500, 4000, arguments.add("flops", 12.5));
  second.async_slice(7, "all_reduce", "communication", 0, 1'000'000'001);
  const std::vector<std::string> events{first.events(), "", second.events()};
  write_chrome_trace(folder / "trace.json", events);
  const Json trace = read(folder / "trace.json")["traceEvents"];
  REQUIRE(trace.size() == 9);
  const Json& slice = trace[4];
  CHECK(slice["ph"] == "X");
  CHECK(slice["ts"] == 1.5);
  CHECK(slice["dur"] == 2.5);
  CHECK(slice["args"]["flops"] == 12.5);
  CHECK(trace[5]["args"]["name"] == "a \"quoted\" name\n");
  CHECK(trace[7]["ph"] == "b");
  CHECK(trace[8]["ph"] == "e");
  CHECK(trace[8]["id"] == 7);
  CHECK(trace[8]["ts"] == 1000000.001);
}

TEST_CASE("the device's work stands on lines of its own, with the call that queued it") {
  Experiment experiment = small_experiment();
  const Session session = open_session(experiment, {.engines = host_engines()});
  const Program& program = session.executor->training_program();
  const size_t call = program.segment(Phase::forward, MicroStep::only)[0];
  Recording recording;
  recording.synchronous = false;
  recording.parts = {{StepPart::step, 4, 0, 9000}};
  recording.calls = {{&program, call, 1000, 2000}};
  recording.fills = {{2, 17, 0, 500}};
  recording.device = {{.name = "kernel_a", .tag = 0, .begin = 3000, .end = 5000, .stream = 7},
                      {.kind = DeviceActivity::Kind::copy,
                       .name = "copy host to device",
                       .begin = 1000,
                       .end = 2000,
                       .bytes = 64,
                       .stream = 13}};
  const Json events =
      Json::parse("[" + trace_events(recording, {.flops_f32 = 1, .bytes = 1}, 3, 0) + "]");
  std::map<std::string, Json> by_name;
  std::map<int, std::string> threads;
  for (const Json& event : events) {
    CHECK(event["pid"] == 3);
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X") by_name[event["name"]] = event;
  }
  const Json& kernel = by_name.at("kernel_a");
  CHECK(threads.at(kernel["tid"]) == "device, stream 7");
  CHECK(kernel["args"]["call"] == call_label(program, call));
  CHECK(kernel["args"]["op"] == program.graph().nodes[program.calls()[call].node].op->name);
  CHECK(threads.at(by_name.at("copy host to device")["tid"]) == "device, stream 13");
  CHECK(by_name.at("copy host to device")["args"]["moved"] == 64);
  CHECK(threads.at(by_name.at("fill batch")["tid"]) == "data worker 2");
  CHECK(by_name.at("fill batch")["args"]["batch"] == 17);
  CHECK(by_name.at("step 5")["dur"] == 9.0);
  CHECK(by_name.count("forward") == 1);
}

TEST_CASE("messages of several micro-batches end in the order in which they began") {
  Experiment experiment =
      small_experiment({"parallelism.pipeline=2", "training.micro_batch_size=4"});
  const Session session = open_session(
      experiment,
      {.engines = host_engines(), .ranks = {.collectives = unconnected_ranks(2), .world = 2}});
  const Program& program = session.executor->training_program();
  std::map<std::string, size_t> calls;
  for (size_t i = 0; i < program.calls().size(); ++i) {
    calls[std::string(program.graph().nodes[program.calls()[i].node].op->name)] = i;
  }
  const size_t begin = calls.at("send_begin"), end = calls.at("send_end");
  Recording recording;
  recording.parts = {{StepPart::step, 0, 0, 9000}};
  // The first end is of a message before the recording.
  recording.calls = {{&program, end, 500, 600},     {&program, begin, 1000, 1100},
                     {&program, begin, 2000, 2100}, {&program, end, 3000, 3100},
                     {&program, begin, 4000, 4100}, {&program, end, 5000, 5100},
                     {&program, end, 6000, 6100}};
  const Json events =
      Json::parse("[" + trace_events(recording, {.flops_f32 = 1, .bytes = 1}, 0, 0) + "]");
  std::vector<double> begins, ends;
  for (const Json& event : events) {
    if (event["ph"] == "b") begins.push_back(event["ts"]);
    if (event["ph"] == "e") ends.push_back(event["ts"]);
  }
  CHECK(begins == std::vector<double>{1, 2, 4});
  CHECK(ends == std::vector<double>{3.1, 5.1, 6.1});
}

}  // namespace
