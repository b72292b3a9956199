// Tensor parallelism (passes/partition.h): losses, weights and checkpoints are those of one rank.
#include "checkpoint/checkpoint_writer.h"
#include "max_or_inf.h"
#include "refusal.h"
#include "run/low_precision.h"
#include "temporary_folder.h"

using namespace dltrain;

namespace {

std::vector<std::string> over_tensor(int ranks, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.tensor={}", ranks));
  more.push_back("parallelism.bucket_mb=0.002");
  return more;
}

// The greatest difference of a weight, relative to the greatest weight of its tensor.
double greatest_difference_of_state(const LayoutRun& a, const LayoutRun& b) {
  REQUIRE(a.state.size() == b.state.size());
  double most = 0;
  for (const auto& [name, bytes] : a.state) {
    INFO(name);
    const auto& other = b.state.at(name);
    REQUIRE(bytes.size() == other.size());
    if (bytes.size() % sizeof(float) != 0 || name == "step_state") continue;
    const std::span x(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    const std::span y(reinterpret_cast<const float*>(other.data()), x.size());
    double scale = 1e-30, worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      scale = std::max(scale, static_cast<double>(std::abs(y[i])));
      worst = max_or_inf(worst, std::abs(x[i] - y[i]));
    }
    most = max_or_inf(most, worst / scale);
  }
  return most;
}

size_t parameter_bytes(const LayoutRun& run) {
  for (const auto& [role, bytes] : run.report.state_bytes) {
    if (role == "parameters") return bytes;
  }
  return 0;
}

const std::string kTwenty = "training={global_batch_size: 24, max_steps: 20, max_grad_norm: 0.5}";

}  // namespace

TEST_CASE("layers that share weights may differ in precision") {
  const Network albert{
      "albert",
      {"model={type: albert, num_layers: 2, hidden_size: 16, embedding_size: 8, num_heads: 4, "
       "max_positions: 8, vocab_size: 29}",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}",
       "precision.overrides={\"*groups.1*value\": tf32}"}};
  check_close(layout_run(albert, 2, {"parallelism.tensor=2"}), layout_run(albert, 1, {}),
              kToleranceOfF32);
}

TEST_CASE("an MLP trains over the tensor axis with the losses of one rank") {
  const Network& mlp = networks()[0];  // its last layer has 5 outputs, which 2 does not divide
  const LayoutRun one = layout_run(mlp, 1, {kTwenty});
  for (const auto& [ranks, tensor] : {std::pair(2, 2), {4, 2}, {3, 3}}) {
    INFO(ranks << " ranks, tensor " << tensor);
    const LayoutRun shards = layout_run(mlp, ranks, over_tensor(tensor, {kTwenty}));
    CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
    CHECK(greatest_difference(shards.norms, one.norms) < 1e-5);
    CHECK(greatest_difference_of_state(shards, one) < 1e-4);
  }
}

TEST_CASE("every ZeRO stage works together with tensor parallelism") {
  const LayoutRun one = layout_run(networks()[0], 1, {});
  for (int stage : {1, 2, 3}) {
    for (const char* shared : {"all", "2"}) {
      INFO("stage " << stage << ", sharded over " << shared);
      const LayoutRun run =
          layout_run(networks()[0], 8,
                     over_tensor(2, {fmt::format("parallelism.zero_stage={}", stage),
                                     fmt::format("parallelism.zero_shard_size={}", shared),
                                     "training.micro_batch_size=3"}));
      CHECK(greatest_difference(run.losses, one.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, one.norms) < 1e-5);
      CHECK(run.state.size() == one.state.size());
    }
  }
}

TEST_CASE("networks whose ops have no placement rules gather what they read") {
  for (const Network& network : networks()) {
    INFO(network.name);
    // Batch norm normalizes a micro-batch.
    const std::vector<std::string> micro_batch{"training.micro_batch_size=12"};
    const LayoutRun one = layout_run(network, 1, micro_batch);
    const LayoutRun shards = layout_run(network, 4, over_tensor(2, micro_batch));
    CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
    CHECK(greatest_difference(shards.norms, one.norms) < 1e-5);
  }
}

TEST_CASE("convolutions are sharded by channels, and what follows them too") {
  const Network residual{
      "residual",
      {"model.layers=[{conv2d: {out_channels: 8, kernel_size: 3, padding: 1, bias: false}}, "
       "batch_norm, relu, {max_pool2d: 2}, {conv2d: {out_channels: 6, kernel_size: 1}}, relu, "
       "{residual: [{conv2d: {out_channels: 9, kernel_size: 3, padding: 1, bias: false}}, "
       "batch_norm, relu, "
       "{conv2d: {out_channels: 6, kernel_size: 3, padding: 1, groups: 3}}]}, relu, {conv2d: "
       "{out_channels: 7, kernel_size: 2}}, {avg_pool2d: 2}, flatten, {linear: 5}]",
       networks()[0].overrides[1],
       "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
       "evaluation.eval_steps=1", "training.micro_batch_size=24"}};
  const LayoutRun one = layout_run(residual, 1, {kTwenty});
  for (int ranks : {2, 3}) {
    for (const char* sequence : {"false", "true"}) {
      INFO(ranks << " ranks, sequence parallel: " << sequence);
      const LayoutRun shards = layout_run(
          residual, ranks,
          over_tensor(ranks, {kTwenty, fmt::format("parallelism.sequence_parallel={}", sequence)}));
      CHECK(greatest_difference(shards.losses, one.losses) < 1e-5);
      CHECK(greatest_difference(shards.norms, one.norms) < 1e-5);
      CHECK(greatest_difference_of_state(shards, one) < 1e-4);
      CHECK(shards.evaluation == Approx(one.evaluation).epsilon(1e-5));
      CHECK(parameter_bytes(shards) < 0.7 * parameter_bytes(one));
    }
  }
}

TEST_CASE("bf16, frozen layers, accumulation and recompute work with tensor parallelism") {
  const std::vector<std::string> variations{
      "precision.compute=bf16",      "training.freeze=[\"layers.1.*\"]",
      "training.micro_batch_size=3", "memory.recompute=full",
      "memory.recompute=selective",  "parallelism.reduce_dtype=bf16"};
  for (const std::string& variation : variations) {
    INFO(variation);
    const LayoutRun one = layout_run(networks()[0], 1, {variation});
    const LayoutRun shards = layout_run(networks()[0], 4, over_tensor(2, {variation}));
    const bool bf16 = variation.ends_with("bf16");
    check_close(shards, one,
                bf16 ? low_precision(networks()[0], {variation}, kBitsOfBf16, 2) : kToleranceOfF32);
  }
}

TEST_CASE("an evaluation on shards is that of one rank") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2}", "evaluation.eval_steps=1",
      "model.final_bias_from_data=true"};
  const LayoutRun one = layout_run(networks()[0], 1, eval);
  CHECK(layout_run(networks()[0], 4, over_tensor(2, eval)).evaluation ==
        Approx(one.evaluation).epsilon(1e-6));
}

TEST_CASE("each rank stores its shards only, and initial weights are those of one rank") {
  const std::vector<std::string> none{"training={global_batch_size: 24, max_steps: 1}",
                                      "optimizer={type: sgd, learning_rate: 0}"};
  const LayoutRun one = layout_run(networks()[0], 1, none);
  const LayoutRun shards = layout_run(networks()[0], 2, over_tensor(2, none));
  for (const auto& [name, bytes] : one.state) {
    INFO(name);
    if (name != "step_state") CHECK(shards.state.at(name) == bytes);
  }
  // Rank 0 has 3 of 5 outputs of the last layer, and all of the bias after the sum.
  CHECK(parameter_bytes(shards) == sizeof(float) * (12 * 72 + 12 + 16 * 12 + 16 + 3 * 16 + 3));
}

TEST_CASE("a checkpoint of shards is one of whole tensors, which any layout takes over") {
  // The weights of its queries, keys and values are packed.
  const Network heads{"gpt2",
                      {"model={type: gpt2, num_layers: 2, hidden_size: 24, num_heads: 6, "
                       "max_positions: 8, vocab_size: 29, dropout: 0.1}",
                       networks()[2].overrides[1]}};
  using State = std::map<std::string, std::vector<std::byte>>;
  std::mutex mutex;
  const auto add_state = [&](const Session& session, const ThreadCollectives& ranks, State& to) {
    StateSnapshot snapshot;
    take_snapshot(*session.executor, snapshot, false, ranks.rank(), ranks.size());
    const std::lock_guard lock(mutex);
    for (const TensorCopy& copy : snapshot) {
      if (copy.owner == ranks.rank()) to[copy.state] = copy.bytes;
    }
  };
  struct Layout {
    int ranks, tensor, pipeline, stage;
  };
  for (const auto& start : {std::pair(networks()[0], Layout{4, 2, 1, 0}),
                            {networks()[0], {1, 1, 1, 0}},
                            {networks()[0], {4, 2, 1, 3}},
                            {networks()[0], {8, 2, 2, 0}},
                            {networks()[0], {8, 2, 2, 2}},
                            {heads, {2, 2, 1, 0}},
                            {heads, {4, 2, 1, 3}},
                            {heads, {4, 2, 2, 0}}}) {
    const Network& network = start.first;
    const Layout& from = start.second;
    INFO(network.name);
    State saved;
    const TemporaryFolder folder;
    const auto experiment_of = [&](const Layout& layout, int seed) {
      return layout_experiment(
          network,
          over_tensor(layout.tensor, {fmt::format("parallelism.zero_stage={}", layout.stage),
                                      fmt::format("parallelism.pipeline={}", layout.pipeline),
                                      fmt::format("seed={}", seed)}));
    };
    run_rank_threads(from.ranks, [&](ThreadCollectives& ranks) {
      Experiment experiment = experiment_of(from, 0);
      Session session = open_session(experiment, layout_options(ranks));
      start_session(session);
      train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
      CheckpointWriter writer(folder.path(), {}, "name: x\n", true,
                              session.shares_state() ? &ranks : nullptr);
      if (ranks.rank() == 0 || session.shares_state()) {
        writer.save(*session.executor,
                    {.step = 2, .updates = 2, .seed = 0, .global_batch = 24, .train_samples = 96});
        writer.finish();
      }
      add_state(session, ranks, saved);
    });
    const auto checkpoint = folder.path() / "step-000002";
    for (const Layout& to : {Layout{1, 1, 1, 0},
                             {2, 2, 1, 0},
                             {3, 3, 1, 0},
                             {4, 2, 1, 2},
                             {2, 1, 1, 1},
                             {3, 1, 3, 0},
                             {4, 2, 2, 0},
                             {4, 1, 2, 3}}) {
      INFO(from.ranks << " ranks, tensor " << from.tensor << ", pipeline " << from.pipeline
                      << " to tensor " << to.tensor << ", pipeline " << to.pipeline << ", stage "
                      << to.stage);
      State found;
      run_rank_threads(to.ranks, [&](ThreadCollectives& ranks) {
        Experiment experiment = experiment_of(to, 5);
        Session session = open_session(experiment, layout_options(ranks));
        start_session(session);
        load_checkpoint(*session.executor, checkpoint, read_checkpoint_state(checkpoint));
        add_state(session, ranks, found);
      });
      CHECK(found == saved);
    }
  }
}

namespace {

// A message of one rank: its group and what is sent.
struct SentMessage {
  std::vector<int> ranks;
  std::string what;
  bool operator==(const SentMessage&) const = default;
};
using Sequences = std::vector<std::vector<SentMessage>>;  // by rank

// Returns whether every sequence is a projection of one total order of all messages: again and
// again some message must be the next one of all its members.
bool are_projections(const Sequences& sequences) {
  std::vector<size_t> next(sequences.size(), 0);
  const auto awaited = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    return next[r] < sequences[r].size() ? &sequences[r][next[r]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < static_cast<int>(sequences.size()); ++rank) {
      const SentMessage* message = awaited(rank);
      if (message == nullptr) continue;
      const bool all = std::ranges::all_of(message->ranks, [&](int member) {
        return awaited(member) != nullptr && *awaited(member) == *message;
      });
      if (!all) continue;
      const std::vector<int> members = message->ranks;
      for (int member : members) ++next[static_cast<size_t>(member)];
      moved = true;
    }
  }
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] != sequences[rank].size()) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the messages of each rank are a projection of one total order") {
  for (int stage : {0, 1, 2, 3}) {
    Sequences sequences(8);
    run_rank_threads(8, [&](ThreadCollectives& ranks) {
      std::vector<std::string> overrides{fmt::format("parallelism.zero_stage={}", stage)};
      if (stage > 0) overrides.push_back("parallelism.zero_shard_size=2");
      Experiment experiment = layout_experiment(networks()[0], over_tensor(2, overrides));
      const Session session = open_session(experiment, layout_options(ranks));
      const Graph& graph = session.executor->training().graph;
      for (const Node& node : graph.nodes) {
        if (!node.op->name.ends_with("_begin") && !node.op->name.ends_with("_end")) continue;
        const auto bytes =
            node.op->name.starts_with("all_reduce_begin") && node.phase == Phase::forward
                ? graph.value(node.inputs[0]).spec.bytes()
                : 0;  // sums of gradients have the sizes of shards, which differ
        sequences[static_cast<size_t>(ranks.rank())].push_back(
            {session.mesh.group(ranks.rank(), node.attributes.text(kOver)),
             fmt::format("{} {} {}", node.op->name, node.attributes.integer("slot"), bytes)});
      }
    });
    INFO("stage " << stage);
    CHECK(sequences[0].size() > 10);
    CHECK(are_projections(sequences));
    // The test finds a rank that swaps two messages of different groups.
    auto& last = sequences.back();
    const auto other = std::ranges::find_if(
        last, [&](const SentMessage& message) { return message.ranks != last.front().ranks; });
    REQUIRE(other != last.end());
    std::iter_swap(last.begin(), other);
    CHECK_FALSE(are_projections(sequences));
  }
}

TEST_CASE("what tensor parallelism cannot do is refused at its key") {
  const auto refused = [](const std::string& override, const std::string& why) {
    INFO(override);
    const auto load = [&] { layout_experiment(networks()[0], over_tensor(2, {override})); };
    CHECK_THAT(refusal_of(load, ExitCode::usage), Catch::Matchers::Contains(why));
  };
  refused("training.reduction=fixed", "the products of shards");
  const Experiment experiment = layout_experiment(networks()[0], over_tensor(2));
  CHECK_THAT(refusal_of([&] { check_ranks(experiment, 3); }, ExitCode::usage),
             Catch::Matchers::Contains("3 ranks cannot be divided into groups of 2"));
}
