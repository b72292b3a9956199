// Experts divided over ranks (parallelism.expert) against one rank, and their buffers and capacity.
#include "run/low_precision.h"

using namespace dltrain;

namespace {

// As Mixtral: normalized probabilities, balancing and z-loss; and as Qwen 3 with experts: shared
// experts and probabilities as they are.
const std::array<Network, 2>& mixtures() {
  static const auto network = [](const char* name, const char* moe) {
    return Network{
        name,
        {fmt::format("model.layers=[{{embedding: {{embedding_dim: 16}}}}, position_embedding, "
                     "{{repeat: {{times: 2, layers: [{{residual: [layer_norm, "
                     "{{multi_head_attention: {{num_heads: 2, causal: true}}}}]}}, {{residual: "
                     "[layer_norm, {{moe: {{{}}}}}]}}]}}}}, {{lm_head: {{}}}}]",
                     moe),
         "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  };
  static const std::array<Network, 2> all{
      network("mixtral",
              "num_experts: 4, experts_per_token: 2, intermediate_size: 24, balance_loss: 0.1, "
              "router_z_loss: 0.05"),
      network("qwen3_moe",
              "num_experts: 8, experts_per_token: 3, intermediate_size: 12, normalize_top_k: "
              "false, shared_experts: 1, balance_loss: 0.01")};
  return all;
}

std::vector<std::string> with(std::vector<std::string> base, const std::vector<std::string>& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

std::string expert(int ranks) {
  return fmt::format("parallelism.expert={}", ranks);
}

const std::vector<std::string> kLongRun{
    "training={global_batch_size: 24, max_steps: 20, max_grad_norm: 0.5, micro_batch_size: 3}"};
const std::vector<std::string> kFiveSteps{"training.micro_batch_size=3"};

// Returns the tolerance for five steps of the first mixture on up to four ranks.
Tolerance tolerance(int bits, const std::vector<std::string>& common) {
  if (bits == kBitsOfF32) return {1e-5, 1e-4};
  return low_precision(mixtures()[0], with(kFiveSteps, common), bits, 4);
}

// The steps of a run, as rank 0 reports them.
std::vector<StepRecord> records_of(const Network& network, int ranks,
                                   const std::vector<std::string>& overrides) {
  std::vector<StepRecord> out;
  run_rank_threads(ranks, [&](ThreadCollectives& collectives) {
    Experiment experiment = layout_experiment(network, overrides);
    Session session = open_session(experiment, layout_options(collectives));
    start_session(session);
    TrainEvents events;
    events.on_step = [&](const StepRecord& record) { out.push_back(record); };
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  });
  return out;
}

double metric_of(const StepRecord& record, std::string_view name) {
  for (const auto& [metric, value] : record.metrics) {
    if (metric == name) return value;
  }
  FAIL("no metric " << name);
  return 0;
}

}  // namespace

TEST_CASE("experts over ranks have the losses of one rank") {
  for (const Network& network : mixtures()) {
    INFO(network.name);
    const LayoutRun alone = layout_run(network, 1, kLongRun);
    for (const auto& [ranks, experts] : {std::pair(2, 2), {4, 4}, {4, 2}}) {
      INFO(ranks << " ranks, expert " << experts);
      const LayoutRun run = layout_run(network, ranks, with(kLongRun, {expert(experts)}));
      CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, alone.norms) < 1e-5);
    }
  }
}

TEST_CASE("experts over ranks work with ZeRO, pipelines, tensor ranks and training techniques") {
  const Network& network = mixtures()[0];
  const auto compare = [&](int ranks, const std::vector<std::string>& layout,
                           const std::vector<std::string>& common, int bits = kBitsOfF32) {
    INFO(ranks << " ranks, "
               << fmt::format("{} {}", fmt::join(layout, " "), fmt::join(common, " ")));
    const LayoutRun alone = layout_run(network, 1, with(kFiveSteps, common));
    const LayoutRun run = layout_run(network, ranks, with(with(kFiveSteps, common), layout));
    check_close(run, alone, tolerance(bits, common));
    CHECK(run.state.size() == alone.state.size());
    for (const auto& [name, bytes] : alone.state) {
      INFO(name);
      REQUIRE(run.state.contains(name));
      CHECK(run.state.at(name).size() == bytes.size());  // whole tensors
    }
  };
  for (const int stage : {1, 2, 3}) {
    const std::string zero = fmt::format("parallelism.zero_stage={}", stage);
    compare(2, {expert(2), zero}, {});
    compare(4, {expert(2), zero}, {});
    compare(8, {expert(2), zero, "parallelism.zero_shard_size=4"}, {});
  }
  compare(4, {expert(2), "parallelism.pipeline=2"}, {});
  compare(4, {expert(2), "parallelism.pipeline=2", "parallelism.zero_stage=1"}, {});
  compare(4, {expert(2), "parallelism.tensor=2"}, {});
  compare(8, {expert(2), "parallelism.tensor=2", "parallelism.pipeline=2"}, {});
  for (const char* recompute : {"selective", "blocks", "full"}) {
    compare(2, {expert(2)}, {fmt::format("memory.recompute={}", recompute)});
  }
  compare(2, {expert(2)}, {"precision.compute=bf16"}, kBitsOfBf16);
  compare(2, {expert(2)}, {"precision.compute=fp16"}, kBitsOfFp16);
  for (const char* optimizer : {"lamb", "lars", "adafactor"}) {
    const std::string key = fmt::format("optimizer={{type: {}, learning_rate: 0.01}}", optimizer);
    for (int stage : {0, 1, 3}) {
      compare(4, {expert(2), fmt::format("parallelism.zero_stage={}", stage)}, {key});
    }
    compare(4, {expert(2), "parallelism.tensor=2"}, {key});
  }
  compare(2, {expert(2)}, {"training.ema={decay: 0.9}"});
  compare(4, {expert(2), "parallelism.reduce_dtype=bf16"}, {}, kBitsOfBf16);
  compare(2, {expert(2), "parallelism.expert_buffer=2"}, {});
}

TEST_CASE("experts over ranks are evaluated as on one rank, and on averages") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2, micro_batch_size: 3, ema: {decay: 0.5}}",
      "evaluation.eval_steps=1", "optimizer={type: adamw, learning_rate: 0.01}"};
  for (const char* precision : {"precision.compute=f32", "precision.compute=bf16"}) {
    INFO(precision);
    const std::vector<std::string> both = with(eval, {precision});
    const double alone = layout_run(mixtures()[1], 1, both).evaluation;
    const bool f32 = both.back().ends_with("f32");
    const double close = f32 ? 1e-5 : low_precision(mixtures()[1], eval, kBitsOfBf16).losses;
    for (const int zero : {0, 1, 3}) {
      const LayoutRun run = layout_run(
          mixtures()[1], 4,
          with(both, {expert(2), "parallelism.expert_buffer=1.9",  // too small for the padding
                      fmt::format("parallelism.zero_stage={}", zero)}));
      CHECK(run.evaluation == Approx(alone).epsilon(close));
    }
  }
}

TEST_CASE("experts over ranks: memory and messages are as planned") {
  const Network& network = mixtures()[0];
  const LayoutRun alone = layout_run(network, 2, {});
  const LayoutRun run = layout_run(network, 2, {expert(2)});
  // [experts, in, hidden] three times in two layers, half of it on each rank; and two moments.
  const auto bytes = [](const LayoutRun& of, Role role) {
    for (const auto& [name, sum] : of.report.state_bytes) {
      if (name == rules_of(role).name) return sum;
    }
    return size_t{0};
  };
  const size_t half = size_t{4 * 16 * 24 * 3 * 2 / 2} * sizeof(float);
  CHECK(bytes(alone, Role::parameter) - bytes(run, Role::parameter) == half);
  CHECK(bytes(alone, Role::moment) - bytes(run, Role::moment) == 2 * half);
  // In each layer the numbers of rows, [2, 2] i32, and forward and backward each two buffers of the
  // pairs of 12 samples of 8 tokens for each of 2 ranks, of which one leaves the rank.
  const size_t pairs = size_t{12 * 8 * 2};
  CHECK(run.report.traffic.exchanged ==
        2 * (4 * sizeof(int32_t) + 4 * 2 * pairs * 16 * sizeof(float)));
  // The mean of five steps, except for alignment gaps and the messages of the training loop.
  CHECK(std::abs(run.report.traffic.sent() - static_cast<double>(run.sent_within) / 5) < 3000);

  // The four ranks of two samples with two parts each have a quarter of the experts.
  const LayoutRun both = layout_run(network, 4, {expert(4), "parallelism.context=2"});
  CHECK(bytes(alone, Role::parameter) - bytes(both, Role::parameter) == half + half / 2);
  CHECK(bytes(alone, Role::moment) - bytes(both, Role::moment) == 2 * (half + half / 2));
  CHECK(std::abs(both.report.traffic.sent() - static_cast<double>(both.sent_within) / 5) < 6000);
}

TEST_CASE("too small a buffer between ranks of experts ends the run and changes nothing") {
  const auto [ranks, layout] = GENERATE(table<int, std::string>({{2, "parallelism.pipeline=1"},
                                                                 {4, "parallelism.pipeline=2"},
                                                                 {4, "parallelism.zero_stage=1"},
                                                                 {4, "parallelism.tensor=2"}}));
  run_rank_threads(ranks, [&, layout = layout](ThreadCollectives& collectives) {
    Experiment experiment = layout_experiment(
        mixtures()[0], with(kFiveSteps, {expert(2), layout, "parallelism.expert_buffer=1"}));
    Session session = open_session(experiment, layout_options(collectives));
    start_session(session);
    const auto state = [&] {
      StateSnapshot snapshot;
      take_snapshot(*session.executor, snapshot, false, collectives.rank(), collectives.size());
      std::map<std::string, std::vector<std::byte>> out;
      for (const TensorCopy& copy : snapshot) {
        if (copy.owner == collectives.rank()) out[copy.state] = copy.bytes;
      }
      return out;
    };
    const auto before = state();
    std::string message;
    ExitCode code = ExitCode::ok;
    try {
      train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    } catch (const Error& error) {
      message = error.what();
      code = error.code();
    }
    const bool unchanged = state() == before;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    CHECK(unchanged);
    if (collectives.rank() == 0) {
      CHECK(code == ExitCode::memory);
      CHECK(message.starts_with("step 1, of which nothing was kept: layers.2."));
      CHECK(message.find("parallelism.expert_buffer is 1, 1.") != std::string::npos);
    } else {
      CHECK(code != ExitCode::ok);
    }
  });
}

TEST_CASE("a capacity drops the rows beyond it, on any number of ranks with the same micro-batch") {
  const Network& network = mixtures()[0];
  const std::vector<std::string> limited = with(kLongRun, {"parallelism.expert_capacity=0.9"});
  const StepRecord first = records_of(network, 1, {"parallelism.expert_capacity=0.9"}).front();
  // One micro-batch of 24 samples of 8 tokens with two choices among 4 experts.
  const double tokens = 24 * 8, capacity = std::ceil(0.9 * tokens * 2 / 4);
  double dropped = 0;
  for (const auto& [layer, load] : first.expert_load) {
    for (const double share : load) {
      dropped += std::max(0.0, std::round(share * tokens) - capacity) / (tokens * 2) /
                 static_cast<double>(first.expert_load.size());
    }
  }
  CHECK(dropped > 0.01);
  CHECK(metric_of(first, "dropped_share") == Approx(dropped).epsilon(1e-12));
  // Without a limit that any expert reaches the result is that of dropless, to the bit.
  const LayoutRun dropless = layout_run(network, 1, kLongRun);
  CHECK(layout_run(network, 1, with(kLongRun, {"parallelism.expert_capacity=4"})).losses ==
        dropless.losses);
  const LayoutRun alone = layout_run(network, 1, limited);
  CHECK(greatest_difference(alone.losses, dropless.losses) > 1e-4);
  for (const auto& [ranks, experts] : {std::pair(2, 1), {2, 2}, {4, 2}, {4, 4}}) {
    INFO(ranks << " ranks, expert " << experts);
    const LayoutRun run = layout_run(network, ranks, with(limited, {expert(experts)}));
    CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
  }
}

TEST_CASE("experts are divided over ranks with other samples and other tokens") {
  const Network& network = mixtures()[0];
  struct Shares {
    int ranks, context, experts;
  };
  const auto compare = [&](const Shares& shares, const std::vector<std::string>& layout,
                           const std::vector<std::string>& common, int bits = kBitsOfF32) {
    INFO(shares.ranks << " ranks, context " << shares.context << ", expert " << shares.experts
                      << ", "
                      << fmt::format("{} {}", fmt::join(layout, " "), fmt::join(common, " ")));
    const LayoutRun alone = layout_run(network, 1, with(kFiveSteps, common));
    const LayoutRun run = layout_run(
        network, shares.ranks,
        with(with(with(kFiveSteps, common), layout),
             {expert(shares.experts), fmt::format("parallelism.context={}", shares.context)}));
    const Tolerance near = tolerance(bits, common);
    check_close(run, alone, near);
    CHECK(run.evaluation == Approx(alone.evaluation).epsilon(near.losses));
    for (const auto& [name, bytes] : alone.state) {
      INFO(name);
      REQUIRE(run.state.contains(name));
      CHECK(run.state.at(name).size() == bytes.size());
    }
  };
  const std::vector<std::string> eval{
      "data.eval={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 13, seed: 2}"};
  const std::string capacity = "parallelism.expert_capacity=0.9";
  for (const Shares& shares : std::vector<Shares>{
           {2, 2, 2}, {4, 2, 2}, {4, 2, 4}, {4, 4, 2}, {4, 4, 4}, {8, 4, 4}, {2, 2, 1}}) {
    compare(shares, {}, eval);
    compare(shares, {}, {capacity});
  }
  // An axis of neither: 3 ranks along the tokens, 2 with experts.
  compare({6, 3, 2}, {}, {"data.train.length=12", capacity});
  for (const int stage : {1, 2, 3}) {
    const std::string zero = fmt::format("parallelism.zero_stage={}", stage);
    compare({4, 2, 4}, {zero}, eval);
    compare({4, 4, 2}, {zero}, eval);
    compare({8, 2, 2}, {zero, "parallelism.zero_shard_size=2"}, {});
  }
  compare({8, 2, 4}, {"parallelism.pipeline=2", "parallelism.zero_stage=1"}, {capacity});
  compare({4, 2, 2}, {"parallelism.tensor=2"}, {capacity});
  compare({4, 2, 2}, {"parallelism.tensor=2", "parallelism.sequence_parallel=true"}, {capacity});
  compare({2, 2, 2}, {"parallelism.context_method=ring", "parallelism.expert_buffer=2"}, {});
  compare({4, 2, 4}, {"memory.recompute=full"}, {capacity});
  compare({4, 2, 4}, {}, {"precision.compute=bf16"}, kBitsOfBf16);
  for (const char* optimizer : {"lamb", "adafactor"}) {
    const std::string key = fmt::format("optimizer={{type: {}, learning_rate: 0.01}}", optimizer);
    compare({4, 4, 2}, {}, {key});
    compare({4, 2, 4}, {"parallelism.zero_stage=2"}, {key});
  }
  compare({4, 2, 4}, {}, {"training.ema={decay: 0.9}"});
}

TEST_CASE("the dropped share of a micro-batch is that of all its tokens") {
  const Network& network = mixtures()[0];
  const std::vector<std::string> limited{"parallelism.expert_capacity=0.9"};
  const double alone = metric_of(records_of(network, 1, limited).front(), "dropped_share");
  CHECK(alone > 0);
  for (const int experts : {1, 2}) {
    const StepRecord record =
        records_of(network, 2, with(limited, {expert(experts), "parallelism.context=2"})).front();
    CHECK(metric_of(record, "dropped_share") == Approx(alone).epsilon(1e-12));
  }
}

TEST_CASE("what experts over ranks cannot do is refused at its key") {
  const auto refuses = [](const Network& network, int ranks,
                          const std::vector<std::string>& overrides, const std::string& text) {
    INFO(text);
    try {
      layout_run(network, ranks, overrides);
      FAIL_CHECK("was accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      CHECK_THAT(error.what(), Catch::Contains(text));
    }
  };
  const Network& network = mixtures()[0];
  refuses(network, 3, {expert(3)}, "has 4 experts, which 1, 2 or 4 ranks fit");
  refuses(network, 3, {expert(2)}, "3 data-parallel ranks cannot be divided into groups of 2");
  refuses(networks()[2], 2, {expert(2)}, "the model has no experts (layer moe); take expert: 1");
  refuses(networks()[2], 1, {"parallelism.expert_capacity=2"}, "take expert_capacity: dropless");
  refuses(network, 2, {expert(2), "training.reduction=fixed"}, "reduction: fixed");
  refuses(
      network, 2, {expert(4), "parallelism.context=2"},
      "1 data-parallel rank times context 2 cannot be divided into groups of 4 for the experts; "
      "start a multiple of 4 ranks, or take an expert that divides 2");
  refuses(network, 2, {expert(2), "parallelism.expert_buffer=0.5"}, "at least 1");
  refuses(network, 2, {"parallelism.expert_capacity=all"},
          "neither dropless nor a positive number");
  refuses(network, 6, {expert(2), "parallelism.zero_stage=1", "parallelism.zero_shard_size=3"},
          "groups of 3 ranks cannot be divided into groups of 2");
}
