// The steps of the GPU targets, as they are planned for an H100: no change may make one worse.
#include "catch.h"
#include "compile/described_gpu.h"
#include "compile/traffic.h"
#include "config/load.h"
#include "run/session.h"

using namespace dltrain;

namespace {

// Recorded; whoever makes a step better records it here. Adds are those that no group took.
struct Budget {
  const char* config;
  double gigabytes, milliseconds;
  int64_t calls, casts, adds;
};
constexpr Budget kBudgets[] = {
    {"gpt2_124m", 170.7, 137.6, 315, 0, 1},  {"gpt2_124m_b16", 47.4, 36.5, 291, 0, 1},
    {"gpt2_xl", 345.2, 399.5, 1083, 0, 1},   {"qwen2_5_1_5b", 219.7, 201.4, 1114, 0, 28},
    {"bert_large", 242.2, 194.6, 835, 0, 2}, {"resnet50", 95.2, 46.4, 351, 3, 1},
    {"char_lstm", 1.0, 2.7, 30, 2, 0},
};

struct Step {
  Session session;
  StepEstimate estimate;
  Executor& executor() { return *session.executor; }
};

Step plan_on(const Gpu& gpu, Experiment& experiment) {
  Session session =
      open_session(experiment, {}, {&described_engine(), make_described_device(gpu), {}});
  StepEstimate estimate = estimate_step(session.executor->training().graph,
                                        session.batch.micro_steps, {}, {.gpu = gpu});
  return {std::move(session), std::move(estimate)};
}

Experiment load_target(const std::string& name, const std::vector<std::string>& overrides = {}) {
  return load_config<Experiment>(
      {.files = {DLTRAIN_SOURCE_DIR "/configs/gpu/" + name + ".yaml"}, .overrides = overrides});
}

}  // namespace

TEST_CASE("the steps of the GPU targets do not get worse") {
  for (const Budget& budget : kBudgets) {
    Experiment experiment = load_target(budget.config);
    const Step step = plan_on(find_gpus("h100").front(), experiment);
    Budget found{budget.config, 0, 1e3 * step.estimate.compute, 0, 0, 0};
    for (const CallSum& call : step.estimate.calls) {
      found.gigabytes += call.bytes / 1e9;
      found.calls += call.count;
      if (call.name == "cast") found.casts += call.count;
      if (call.name == "add") found.adds += call.count;
    }
    INFO(fmt::format("{{\"{}\", {:.1f}, {:.1f}, {}, {}, {}}}", found.config, found.gigabytes,
                     found.milliseconds, found.calls, found.casts, found.adds));
    CHECK(found.gigabytes <= budget.gigabytes + 0.05);
    CHECK(found.milliseconds <= budget.milliseconds + 0.05);
    CHECK(found.calls <= budget.calls);
    CHECK(found.casts <= budget.casts);
    CHECK(found.adds <= budget.adds);
  }
}

TEST_CASE("a described GPU gives the plan of the CUDA engine, and cannot be used") {
  Experiment experiment = load_target("resnet50", {"training.global_batch_size=8"});
  const Gpu h100 = find_gpus("h100").front();
  Step step = plan_on(h100, experiment);
  CHECK(step.executor().device().properties().name == "h100-80g (described)");
  CHECK(step.executor().report().arena_bytes > step.executor().report().state_total);
  CHECK(step.executor().report().stage_bytes > 0);  // as on a GPU
  CHECK_THROWS_WITH(step.executor().allocate(), Catch::Matchers::Contains("a described GPU"));
}
