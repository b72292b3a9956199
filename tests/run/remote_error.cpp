// A rank that fails: the others learn of it at once, and one rank tells it.
#include "runtime/remote_error.h"

#include <atomic>
#include <cmath>
#include <thread>

#include "comm/store.h"
#include "comm/watch.h"
#include "run/layout_run.h"

using namespace dltrain;

namespace {

// All that this rank reads of the inputs is NaN.
class Broken final : public DatasetWrapper {
 public:
  using DatasetWrapper::DatasetWrapper;
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    DatasetWrapper::read(field, samples, first, out);
    if (field != 0 || first == nullptr) return;
    auto* values = reinterpret_cast<float*>(out);
    const auto count = static_cast<int64_t>(samples.size());
    std::fill_n(values, count * fields()[0].sample.shape.elements(), std::nanf(""));
  }
};

// Samples after the first `easy` ones take until the others have learnt why this rank fails.
class ReadsOn final : public DatasetWrapper {
 public:
  ReadsOn(std::shared_ptr<const Dataset> whole, StoreClient& store, int64_t easy)
      : DatasetWrapper(std::move(whole)), store_(store), easy_(easy) {}
  bool is_expensive() const override { return true; }
  void read(int field, std::span<const int64_t> samples, const SampleVisit* first,
            std::byte* out) const override {
    DatasetWrapper::read(field, samples, first, out);
    if (first == nullptr || first->position < easy_) return;
    if (store_.find(watch_keys::kFailure, std::chrono::seconds(2))) told = true;
  }

  mutable std::atomic<bool> told = false;

 private:
  StoreClient& store_;
  int64_t easy_;
};

struct Said {
  ExitCode code = ExitCode::ok;  // of the error
  std::string what;              // empty: another rank tells it
};

Said said_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const RemoteError& error) {
    return {error.remote_code(), ""};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace

TEST_CASE("the first rank that fails reports its error, and all end with its code") {
  std::vector<Said> said(3);
  run_rank_threads(3, [&](ThreadCollectives& ranks) {
    run_on_all_ranks(&ranks, [] {});  // what it throws comes out of run_rank_threads
    said[static_cast<size_t>(ranks.rank())] = said_by([&] {
      run_on_all_ranks(&ranks, [&] {
        if (ranks.rank() == 1) fail(ExitCode::data, "no such file");
        if (ranks.rank() == 2) fail(ExitCode::storage, "the disk is full");
      });
    });
  });
  for (const Said& one : said) CHECK(one.code == ExitCode::data);
  CHECK(said[1].what == "no such file");
  CHECK((said[0].what.empty() && said[2].what.empty()));
}

TEST_CASE("a rank that loses the others while it asks them reports its own error") {
  Said said;
  const auto run = [&](bool own) {
    run_rank_threads(2, [&](ThreadCollectives& ranks) {
      if (ranks.rank() == 1) fail(ExitCode::internal, "lost");
      said = said_by([&] {
        run_on_all_ranks(&ranks, [&] {
          if (own) fail(ExitCode::storage, "the disk is full");
        });
      });
    });
  };
  CHECK_THROWS(run(true));
  CHECK((said.code == ExitCode::storage && said.what == "the disk is full"));
  CHECK_THROWS(run(false));
  CHECK(said.code == ExitCode::rank);
}

TEST_CASE("rank 0 tells a divergence, with the op that the first rank has found") {
  for (const bool first : {true, false}) {
    std::vector<Said> said(3);
    run_rank_threads(3, [&](ThreadCollectives& ranks) {
      Experiment experiment = layout_experiment(networks()[0], {});
      Session session = open_session(experiment, layout_options(ranks));
      start_session(session);
      if (ranks.rank() == 2 || (ranks.rank() == 1 && first)) {
        session.data.train = std::make_shared<Broken>(session.data.train);
      }
      said[static_cast<size_t>(ranks.rank())] = said_by([&] {
        train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
      });
    });
    for (const Said& one : said) CHECK(one.code == ExitCode::diverged);
    INFO(said[0].what);
    CHECK(said[0].what.find("first seen in reshape in layers.0") != std::string::npos);
    CHECK(said[0].what.find(first ? "(on rank 1)" : "(on rank 2)") != std::string::npos);
    CHECK((said[1].what.empty() && said[2].what.empty()));
  }
}

TEST_CASE("the others learn why a rank fails before it has ended what it does") {
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()}), patient({.port = server.port()});
  RankWatch watch(store, {.rank = 0, .size = 1});
  Experiment experiment = layout_experiment(networks()[0], {});
  Session session =
      open_session(experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                                .ranks = {.watch = &watch}});
  start_session(session);
  const auto data = std::make_shared<ReadsOn>(session.data.train, patient, 24);
  session.data.train = data;
  TrainEvents events;
  events.on_step = [](const StepRecord&) { fail(ExitCode::storage, "the disk is full"); };
  const Said said = said_by([&] {
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  });
  CHECK(said.what == "the disk is full");
  CHECK(data->told);
  const auto reported = RankFailure::from_text(store.try_get(watch_keys::kFailure).value_or(""));
  REQUIRE(reported);
  CHECK(reported->message.find(" failed: the disk is full") != std::string::npos);
}
