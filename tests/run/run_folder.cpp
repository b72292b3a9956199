// Which run a checkpoint belongs to, what a run leaves that fails, and what foreign folders tell.
#include "checkpoint/run_folder.h"

#include <new>

#include "run/checked.h"
#include "run/run.h"
#include "run/run_record.h"

using namespace dltrain;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("the run of a checkpoint is found from within its folders too") {
  CHECK(run_of("runs/x/checkpoints/latest") == "runs/x");
  CHECK(run_of("./runs/x/checkpoints/latest/") == "runs/x");
  CHECK(run_of("../x/checkpoints/latest") == "../x");
  CHECK(run_of("/a/b/../x/./checkpoints/latest/.") == "/a/x");
  const fs::path here = fs::current_path(), above = here.parent_path();
  CHECK(run_of("checkpoints/latest") == here);
  CHECK(run_of("./checkpoints/latest") == here);
  CHECK(run_of("latest") == above);
  CHECK(run_of("./latest") == above);
  CHECK(run_of("../step-000100") == above.parent_path());
  CHECK(run_of(".") == above.parent_path());
  CHECK(run_of("../../latest") == above.parent_path().parent_path());
}

TEST_CASE("a run that ends with an error of the standard library leaves a summary") {
  const TemporaryFolder folder;
  Experiment experiment = options_of({.first_layer = [](LayerContext&, ValueId) -> ValueId {
                            throw std::bad_alloc();
                          }}).load({});
  CHECK_THROWS_AS(
      run_training(experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                                .folder = folder / "run",
                                .result = folder / "result.json",
                                .quiet = true,
                                .log_level = "off"}),
      std::bad_alloc);
  CHECK_THAT(slurp(folder / "result.json"), Contains("\"exit_code\": 5"));
}

TEST_CASE("numbers that a run folder lacks are not guessed") {
  const TemporaryFolder folder;
  folder.write("config.yaml", "name: x\n");
  for (const char* summary : {"{}", "{\"exit_code\": null}", "{\"exit_code\": 1e300}"}) {
    folder.write("summary.json", summary);
    const RunRecord run = read_run(folder.path());
    CHECK(run.status == "broken");
    CHECK(run.problem == "summary.json has no exit_code");
  }
  folder.write("metrics.jsonl",
               "{\"step\": null, \"loss\": 1}\n{\"loss\": 2}\n{\"step\": 1e300, \"loss\": 3}\n"
               "{\"step\": 4, \"loss\": null}\n");
  const std::vector<RunPoint> curve = read_curve(folder.path());
  REQUIRE(curve.size() == 1);
  CHECK(curve[0].step == 4);
}
