// The results of trials in the folder of a sweep.
#include "sweep/trials.h"

#include "catch.h"
#include "config/load.h"
#include "sweep/ranking.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

Experiment experiment_with(const std::string& sweep) {
  return load_config<Experiment>(
      {.files = {},
       .overrides = {
           "model.layers=[{type: linear, out_features: 4}]",
           "data.train={type: synthetic, shape: [12], classes: 4, samples: 64}",
           "optimizer={type: sgd, learning_rate: 0.01}",
           "training={global_batch_size: 16, max_steps: 6}",
           "sweep={" + sweep + ", parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}}"}});
}

void store_result(Trials& trials, const SweepJob& job, TrialResult result) {
  std::filesystem::create_directories(trials.folder_of(job.trial, job.repeat));
  trials.store(job, std::move(result));
}

TEST_CASE("trials keep the values of their training when an earlier one is repeated") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_with("search: tpe, trials: 14");
  std::vector<std::vector<std::string>> trained;
  {
    Trials trials(experiment, folder / "sweep", true);
    for (int64_t i = 0; i < trials.count(); ++i) {
      const auto values = trials.values(i);
      REQUIRE(values);
      trained.push_back(*values);
      TrialResult result{.figures = {{"loss", std::abs(std::log(std::stod(values->front())))}}};
      if (i == 5) result = {.exit_code = 3, .message = "a broken file"};
      store_result(trials, {.trial = i}, result);
    }
  }
  Trials trials(experiment, folder / "sweep", true);
  for (const RankedTrial& row : rank_trials(trials)) {
    CHECK(row.values == trained[static_cast<size_t>(row.trial)]);
  }
  const auto job = trials.next([](const SweepJob&) { return true; });
  REQUIRE(job);
  CHECK(job->trial == 5);
  store_result(trials, *job, {.figures = {{"loss", 0}}});
  CHECK(trials.done());
  const auto ranked = rank_trials(trials);
  CHECK(ranked.size() == trained.size());
  for (const RankedTrial& row : ranked) {
    CHECK(row.values == trained[static_cast<size_t>(row.trial)]);
  }
}

TEST_CASE("a trial with a failed repeat has failed, also where another one has diverged") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_with("trials: 2, repeats: 2");
  Trials trials(experiment, folder / "sweep", true);
  const TrialResult diverged{.exit_code = 4, .message = "diverged"};
  const TrialResult failed{.exit_code = 5, .message = "out of memory"};
  store_result(trials, {.trial = 0, .repeat = 0}, diverged);
  store_result(trials, {.trial = 0, .repeat = 1}, failed);
  store_result(trials, {.trial = 1, .repeat = 0}, failed);
  store_result(trials, {.trial = 1, .repeat = 1}, diverged);
  for (const RankedTrial& row : rank_trials(trials)) {
    CHECK(row.exit_code == 5);
    CHECK(row.message == "out of memory");
  }
}

TEST_CASE("a trial has no result if one of its repeats has none") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_with("trials: 1, repeats: 3");
  Trials trials(experiment, folder / "sweep", true);
  store_result(trials, {.repeat = 0}, {.figures = {{"loss", 0.5}}});
  store_result(trials, {.repeat = 1}, {.exit_code = 4, .message = "diverged"});
  store_result(trials, {.repeat = 2}, {.figures = {{"loss", 0.5}}});
  const auto ranked = rank_trials(trials);
  REQUIRE(ranked.size() == 1);
  CHECK(!ranked[0].has_result());
  CHECK(ranked[0].runs == 2);
  CHECK(ranking_table(trials, ranked, 10).find("-      0  diverged (1 of 3 runs)") !=
        std::string::npos);
}

TEST_CASE("trials that training.max_time has ended keep their code and are named") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_with("trials: 3, metric: eval_loss");
  {
    Trials trials(experiment, folder / "sweep", true);
    store_result(trials, {.trial = 0}, {.figures = {{"eval_loss", 0.5}, {"steps", 6}}});
    store_result(trials, {.trial = 1},
                 {.exit_code = 75, .figures = {{"steps", 1}}, .timed_out = true});
    store_result(
        trials, {.trial = 2},
        {.exit_code = 75, .figures = {{"eval_loss", 0.4}, {"steps", 3}}, .timed_out = true});
  }
  Trials trials(experiment, folder / "sweep", false);
  CHECK(trials.done());
  const auto ranked = rank_trials(trials);
  const std::string csv = ranking_csv(trials, ranked);
  for (const char* row : {"\n1,2,0.4,,1,,3,0,75,", "\n2,0,0.5,,1,,6,0,0,", "\n,1,,,0,,1,0,75,"}) {
    CHECK(csv.find(row) != std::string::npos);
  }
  CHECK(comparison_warnings(trials, ranked) ==
        std::vector<std::string>{"training.max_time ended 1 of 3 trials, at step 3: trials are "
                                 "compared at different steps"});
}

TEST_CASE("trials.csv has the whole time of trials, and no column twice") {
  const TemporaryFolder folder;
  for (const std::string metric : {"seconds", "loss"}) {
    const Experiment experiment = experiment_with("trials: 1, metric: " + metric);
    Trials trials(experiment, folder / metric, true);
    store_result(trials, {},
                 {.figures = {{"loss", 0.5},
                              {"steps", 6},
                              {"seconds", 3},
                              {"training_seconds", 1},
                              {"waiting_seconds", 2},
                              {"lost_seconds", 4}}});
    const std::string csv = ranking_csv(trials, rank_trials(trials));
    const bool by_loss = metric == "loss";
    CHECK_THAT(csv,
               Catch::StartsWith(fmt::format(
                   "rank,trial,{},deviation,runs,{}steps,total_seconds,exit_code,"
                   "optimizer.learning_rate\n1,0,{},,1,{}6,7,0,",
                   metric, by_loss ? "" : "loss,", by_loss ? "0.5" : "3", by_loss ? "" : "0.5,")));
  }
}

}  // namespace
