#include "run/verify_replicas.h"

#include "run/layout_run.h"
#include "runtime/remote_error.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

// Flips a bit of a parameter on the given ranks after a training and compares. Returns the error of
// rank 0.
std::string compare(const Network& network, int ranks, const std::vector<std::string>& overrides,
                    const std::vector<int>& flipped) {
  std::string found;
  run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
    Experiment experiment = layout_experiment(network, overrides);
    Session session = open_session(experiment, layout_options(collectives));
    start_session(session);
    train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    Executor& executor = *session.executor;
    for (int rank : flipped) {
      if (rank != collectives.rank()) continue;
      for (const StateTensor& tensor : executor.layout().tensors()) {
        if (tensor.role != Role::parameter || tensor.shard) continue;
        std::vector<std::byte> buffer;
        const auto view = executor.view_state(tensor.name, buffer);
        std::vector<std::byte> bytes(view.begin(), view.end());
        bytes.back() ^= static_cast<std::byte>(rank + 1);
        executor.write_state(tensor.name, bytes);
        break;
      }
    }
    try {
      verify_replicas(session, 5);
    } catch (const RemoteError&) {
      CHECK(collectives.rank() != 0);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::rank);
      CHECK(collectives.rank() == 0);
      found = error.what();
    }
  });
  return found;
}

}  // namespace

TEST_CASE("replicas have equal parameters after training, under every layout") {
  const std::vector<std::string> every{
      "training={global_batch_size: 24, max_steps: 5, "
      "verify_replicas: 2}"};
  for (const Network& network : networks()) {
    CHECK(compare(network, 3, every, {}).empty());
    CHECK(compare(network, 4, {"parallelism.tensor=2"}, {}).empty());
    CHECK(
        compare(network, 4, {"parallelism.pipeline=2", "training.micro_batch_size=4"}, {}).empty());
  }
}

TEST_CASE("a flipped bit of a parameter names the rank") {
  const Network& gpt = networks()[2];
  CHECK_THAT(compare(gpt, 3, {}, {1}),
             Contains("step 5: the parameters of ranks that must be equal are not: those of rank 1 "
                      "differ from those of its replicas"));
  CHECK_THAT(compare(gpt, 6, {}, {0, 4}), Contains("those of rank 0, 4 differ"));
  CHECK_THAT(compare(gpt, 2, {}, {1}),
             Contains("those of the replicas 0, 1 differ, and there is no"));
  // Data and tensor: rank 3 has the replica of rank 1.
  CHECK_THAT(compare(gpt, 4, {"parallelism.tensor=2"}, {3}),
             Contains("those of the replicas 1, 3"));
}

TEST_CASE("shards of ranks cannot be compared") {
  CHECK_THROWS_WITH(
      layout_experiment(networks()[0], {"parallelism.zero_stage=1", "training.verify_replicas=1"}),
      Contains("ranks with shards of their own cannot be compared"));
}
