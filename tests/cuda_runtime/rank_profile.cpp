// A profile of several ranks on GPUs: all of them step, rank 0 reports.
#include "cuda_runtime/rank_process.h"
#include "cuda_runtime/rank_run.h"
#include "profile/profile.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

void check_profile(RankBackend backend) {
  const TemporaryFolder folder;
  const auto results = test::run_ranks(
      2,
      [&](test::RankContext& context) {
        fake_cuda::reset(fake_cuda::Order::late);
        fake_cuda::set_devices(2);
        const Engine engine = open_backend(backend, "", context.rank);
        Experiment experiment = layout_experiment(networks()[0], {"parallelism.zero_stage=2"});
        std::optional<ProfileReport> report;
        const auto body = [&](const RunRanks& ranks) {
          report = profile_training(experiment,
                                    {.engines = {.cpu = &engine, .reference = &reference_engine()},
                                     .ranks = ranks,
                                     .warmup = 2,
                                     .steps = 3,
                                     .folder = folder / "profile"});
          return ExitCode::ok;
        };
        as_watched_rank(
            context, std::chrono::seconds(60), [](const std::string&) {}, body);
        test::expect(report.has_value() == (context.rank == 0), "rank 0 alone has the report");
        if (!report) return;
        test::expect(report->ranks.size() == 2, "the shares of both ranks");
        test::expect(report->plain_step_seconds > 0, "the time of a step");
        bool sends = false;
        for (const ProfileRow& row : report->profile.ops) {
          sends = sends || row.name.find("reduce_scatter") != std::string::npos;
        }
        test::expect(sends, "messages are among the ops");
      },
      std::chrono::seconds(120));
  CHECK(test::all_well(results));
  CHECK(slurp(folder / "profile" / "trace.json").find("traceEvents") != std::string::npos);
}

}  // namespace

TEST_CASE("several ranks on GPUs are profiled together") {
  check_profile(RankBackend::staged);
#if defined(DLTRAIN_STUB_NCCL)
  check_profile(RankBackend::nccl);
#endif
}
