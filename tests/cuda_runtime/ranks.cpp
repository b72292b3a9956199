// Several ranks on GPUs, without a GPU: real trainings in processes of their own, each over streams
// that do their work as late as they may, with emulated kernels. Losses are those of the CPU engine
// on as many ranks (docs/equality.md), whatever carries the messages.
#include "cuda_runtime/quiet_step.h"
#include "cuda_runtime/rank_run.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

const Network& mlp() {
  return networks()[0];
}
const Network& gpt() {
  return networks()[2];
}

const Network& experts() {
  static const Network network{
      "experts",
      {"model.layers=[{embedding: {embedding_dim: 16}}, {residual: [layer_norm, {moe: "
       "{num_experts: 4, experts_per_token: 2, intermediate_size: 24, balance_loss: 0.1}}]}, "
       "{lm_head: {}}]",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  return network;
}

// Units of some hundred elements, so that there are several.
std::vector<std::string> stage(int stage, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.zero_stage={}", stage));
  more.push_back("parallelism.bucket_mb=0.002");
  return more;
}

// Runs ranks of which none may fail.
RankTrajectory succeed_on(const RankRun& run) {
  RankTrajectory out = run_on(run);
  for (int code : out.codes) CHECK(code == 0);
  REQUIRE(out.loss.size() == 5);
  return out;
}

// On GPUs, through host memory, the losses are those on CPUs.
RankTrajectory check_as_on_cpus(const Network& network, int ranks,
                                const std::vector<std::string>& overrides, double tolerance = 2e-5,
                                int major = 9) {
  INFO(network.name << " on " << ranks << " ranks" << (overrides.empty() ? "" : ", ")
                    << (overrides.empty() ? "" : overrides[0]));
  const RankTrajectory expected = succeed_on({network, ranks, overrides, RankBackend::cpu});
  const RankTrajectory found =
      succeed_on({.network = network, .ranks = ranks, .overrides = overrides, .major = major});
  CHECK(greatest_difference(found.loss, expected.loss) < tolerance);
  CHECK(greatest_difference(found.grad_norm, expected.grad_norm) < 10 * tolerance);
  return found;
}

}  // namespace

TEST_CASE("data-parallel ranks on GPUs have the losses of ranks on CPUs") {
  check_as_on_cpus(mlp(), 4, {});
  check_as_on_cpus(networks()[1], 2, {});
  check_as_on_cpus(gpt(), 3, {"parallelism.bucket_mb=0.002"});
}

TEST_CASE("so they have with accumulation, and where streams work at once") {
  const std::vector<std::string> cut{"training.micro_batch_size=3", "parallelism.bucket_mb=0.002"};
  const RankTrajectory late = check_as_on_cpus(gpt(), 2, cut);
  const RankTrajectory eager =
      run_on({gpt(), 2, cut, RankBackend::staged, fake_cuda::Order::eager});
  CHECK(eager.same_as(late));
}

TEST_CASE("every ZeRO stage on GPUs has the losses of the CPUs") {
  for (int s : {1, 2, 3}) {
    check_as_on_cpus(gpt(), 2, stage(s, {"training.micro_batch_size=6"}));
  }
  check_as_on_cpus(mlp(), 3, stage(3));
}

TEST_CASE("state that groups of ranks share gives the losses of the CPUs") {
  for (int s : {1, 2, 3}) {
    check_as_on_cpus(gpt(), 4,
                     stage(s, {"training.micro_batch_size=3", "parallelism.zero_shard_size=2"}));
  }
  check_as_on_cpus(mlp(), 6, stage(3, {"parallelism.zero_shard_size=3"}));
}

TEST_CASE("stages of a pipeline on GPUs have the losses of the CPUs") {
  // Streams work at once: late ones wait for their host, which may wait for another stage. A
  // message then blocks its host, so this also tests that the order of all messages is one.
  using Schedules = std::vector<const char*>;
  const Schedules plain{"1f1b", "gpipe", "zero_bubble"},
      chunks{"interleaved, virtual_stages: 2", "interleaved, virtual_stages: 3",
             "interleaved, virtual_stages: 2, zero_stage: 2"},
      shards{"zero_bubble, tensor: 2", "1f1b, tensor: 2, sequence_parallel: true"};
  Schedules all = plain;
  all.insert(all.end(), chunks.begin(), chunks.end());
  for (const auto& [network, ranks, stages, schedules] : {std::tuple(mlp(), 2, 2, plain),
                                                          {gpt(), 4, 2, all},
                                                          {gpt(), 3, 3, all},
                                                          {gpt(), 4, 4, all},
                                                          {gpt(), 2, 2, chunks},
                                                          {gpt(), 4, 2, shards}}) {
    const auto run = [&](const char* schedule, RankBackend backend) {
      const std::vector<std::string> overrides{
          fmt::format("parallelism={{pipeline: {}, bucket_mb: 0.002, pipeline_schedule: {}}}",
                      stages, schedule),
          "training.micro_batch_size=4"};
      return succeed_on({network, ranks, overrides, backend, fake_cuda::Order::eager});
    };
    // All schedules have the same losses (docs/equality.md).
    const RankTrajectory expected = run(schedules[0], RankBackend::cpu);
    for (const char* schedule : schedules) {
      INFO(network.name << ", " << ranks << " ranks, " << stages << " stages, " << schedule);
      const RankTrajectory found = run(schedule, RankBackend::staged);
      CHECK(greatest_difference(found.loss, expected.loss) < 2e-5);
#if defined(DLTRAIN_STUB_NCCL)
      CHECK(run(schedule, RankBackend::nccl).same_as(found));
#endif
    }
  }
}

TEST_CASE("shards of layers and parts of texts on GPUs have the losses of the CPUs") {
  for (const auto& [ranks, axes] : {std::pair(2, "tensor: 2"),
                                    {4, "tensor: 2, sequence_parallel: true, zero_stage: 1"},
                                    {2, "tensor: 2, sequence_parallel: true, product_pieces: 2"},
                                    {2, "context: 2, context_method: ring"},
                                    {4, "context: 4, context_method: ring, zero_stage: 3"},
                                    {2, "context: 2, context_method: all_gather"},
                                    {4, "context: 2, tensor: 2"}}) {
    const std::vector<std::string> overrides{
        fmt::format("parallelism={{{}, bucket_mb: 0.002}}", axes), "training.micro_batch_size=12"};
    const RankTrajectory found = check_as_on_cpus(gpt(), ranks, overrides);
#if defined(DLTRAIN_STUB_NCCL)
    CHECK(run_on({gpt(), ranks, overrides, RankBackend::nccl}).same_as(found));
#endif
  }
}

TEST_CASE("experts over ranks on GPUs have the losses of the CPUs") {
  check_as_on_cpus(experts(), 2, {"parallelism.expert=2"});
  check_as_on_cpus(experts(), 4,
                   {"parallelism.expert=2", "parallelism.zero_stage=1",
                    "training.micro_batch_size=3", "parallelism.expert_capacity=1.5"});
}

TEST_CASE("in bf16 they agree but for rounding, with ZeRO and with messages in bf16") {
  check_as_on_cpus(gpt(), 2, stage(2, {"precision.compute=bf16"}), 5e-3);
  check_as_on_cpus(mlp(), 2, stage(3, {"precision.compute=bf16", "parallelism.reduce_dtype=bf16"}),
                   1e-2);
}

TEST_CASE("products of FP8 codes on GPUs have the losses of rounded operands on CPUs") {
  const auto gpt_of = [](int hidden) {
    return Network{"gpt of 16s",
                   {fmt::format("model={{type: gpt2, num_layers: 2, hidden_size: {}, num_heads: 2, "
                                "max_positions: 8, vocab_size: 29}}",
                                hidden),
                    "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  };
  const Network network = gpt_of(32);
  for (const char* recipe : {"current", "delayed", "blockwise", "mxfp8"}) {
    const std::string fp8 = fmt::format("precision={{compute: bf16, fp8: {{recipe: {}}}}}", recipe);
    const int major = recipe == std::string("mxfp8") ? 10 : 9;
    check_as_on_cpus(network, 1, {fp8, "training.micro_batch_size=6"}, 5e-3, major);
    check_as_on_cpus(network, 2, stage(2, {fp8}), 5e-3, major);
  }
  // Micro-batches of 24 rows, which are padded; shards with sides of 24 and 72, which do not fit.
  const std::string delayed = "precision={compute: bf16, fp8: {recipe: delayed}}";
  for (const char* axes : {"tensor: 2", "tensor: 2, sequence_parallel: true, product_pieces: 2",
                           "context: 2", "tensor: 1"}) {
    const std::vector<std::string> cut{delayed, fmt::format("parallelism={{{}}}", axes),
                                       "training.micro_batch_size=3"};
    check_as_on_cpus(network, 2, cut, 5e-3);
    if (std::string(axes) == "tensor: 2") check_as_on_cpus(gpt_of(48), 2, cut, 5e-3);
    // Two blocks along the sum, and products whose scales cannot be cut into pieces.
    std::vector<std::string> blocks = cut;
    blocks[0] = "precision={compute: bf16, fp8: {recipe: blockwise}}";
    check_as_on_cpus(gpt_of(160), 2, blocks, 5e-3);
  }
  const std::vector<std::string> stages{"precision={compute: bf16, fp8: {recipe: delayed}}",
                                        "parallelism={pipeline: 2, pipeline_schedule: zero_bubble}",
                                        "training.micro_batch_size=6", "memory.recompute=blocks"};
  const auto eager = fake_cuda::Order::eager;  // as above
  CHECK(greatest_difference(succeed_on({network, 2, stages, RankBackend::staged, eager}).loss,
                            succeed_on({network, 2, stages, RankBackend::cpu}).loss) < 5e-3);
}

TEST_CASE("a fixed reduction on GPUs gives the same bits on one, two and four ranks") {
  const std::vector<std::string> fixed{"training.reduction=fixed", "training.micro_batch_size=3"};
  const RankTrajectory alone = run_on({mlp(), 1, fixed});
  REQUIRE(alone.loss.size() == 5);
  for (int ranks : {2, 4}) {
    INFO(ranks << " ranks");
    const RankTrajectory shared = run_on({mlp(), ranks, fixed});
    CHECK(shared.same_as(alone));
    CHECK(shared.warning == "");  // that it is not NCCL is what was asked for
  }
}

TEST_CASE("a step of a rank allocates nothing and waits for nothing but other hosts") {
  for (int s : {0, 3}) {
    const RankTrajectory found =
        run_on({gpt(), 2, stage(s, {"training={global_batch_size: 24, max_steps: 9}"})});
    REQUIRE(found.counts.size() == 9);
    for (size_t step = 4; step + 1 < found.counts.size(); ++step) {
      INFO("stage " << s << ", step " << step);
      const fake_cuda::Counts &before = found.counts[step - 1], &after = found.counts[step];
      check_quiet(before, after);
      // For the results of the step before, and for the batch before this one.
      CHECK(after.event_waits - before.event_waits <= 2);
      // One call of the host for each message; the messages of this step are still queued.
      CHECK(after.host_calls - before.host_calls >= 4);
      CHECK(found.pending[step] >= 3);
    }
  }
}

TEST_CASE("ranks that share a GPU are told so, and train through host memory") {
  const RankTrajectory shared = run_on({.network = mlp(), .ranks = 2, .gpus = 1});
  CHECK(shared.loss.size() == 5);
  CHECK_THAT(shared.warning,
             Contains("ranks 0 and 1 share one GPU (GPU-01000000-0000-0000-0000-000000000000)"));
  const RankTrajectory asked = run_on(
      {.network = mlp(), .ranks = 2, .overrides = {"parallelism.collectives=staged"}, .gpus = 1});
  CHECK(asked.warning == "");
  CHECK(asked.same_as(shared));
  const RankTrajectory refused = run_on(
      {.network = mlp(), .ranks = 2, .overrides = {"parallelism.collectives=nccl"}, .gpus = 1});
  for (int rank : {0, 1}) {
    CHECK(refused.codes[static_cast<size_t>(rank)] == static_cast<int>(ExitCode::usage));
    CHECK_THAT(refused.messages[static_cast<size_t>(rank)],
               Contains("parallelism.collectives: nccl: ranks 0 and 1 share one GPU"));
  }
}

#if defined(DLTRAIN_STUB_NCCL)
TEST_CASE("by NCCL ranks have the losses that they have through host memory") {
  for (int s : {0, 1, 2, 3}) {
    INFO("stage " << s);
    const auto overrides = stage(s, {"training.micro_batch_size=6"});
    const RankTrajectory staged = run_on({gpt(), 2, overrides});
    for (const auto order : {fake_cuda::Order::late, fake_cuda::Order::eager}) {
      const RankTrajectory found = run_on({gpt(), 2, overrides, RankBackend::nccl, order});
      CHECK(found.same_as(staged));  // the stub adds in the same order
      CHECK(found.note == "2 ranks on GPUs, connected by NCCL 2.28.9");
      CHECK(found.warning == "");
    }
  }
  const auto groups = stage(3, {"training.micro_batch_size=3", "parallelism.zero_shard_size=2"});
  CHECK(run_on({gpt(), 4, groups, RankBackend::nccl}).same_as(run_on({gpt(), 4, groups})));
  // NCCL sends whole buffers.
  const std::vector<std::string> over_two{"parallelism.expert=2", "parallelism.expert_buffer=2"};
  CHECK(run_on({experts(), 2, over_two, RankBackend::nccl})
            .same_as(run_on({experts(), 2, over_two})));
  const auto bf16 = stage(2, {"precision.compute=bf16", "parallelism.reduce_dtype=bf16"});
  CHECK(run_on({mlp(), 4, bf16, RankBackend::nccl}).same_as(run_on({mlp(), 4, bf16})));
}

TEST_CASE("by NCCL a step allocates nothing and waits as that of one rank does") {
  const RankTrajectory found = run_on(
      {gpt(), 2, stage(3, {"training={global_batch_size: 24, max_steps: 9}"}), RankBackend::nccl});
  REQUIRE(found.counts.size() == 9);
  for (size_t step = 4; step + 1 < found.counts.size(); ++step) {
    const fake_cuda::Counts &before = found.counts[step - 1], &after = found.counts[step];
    CHECK(after.allocations == before.allocations);
    CHECK(after.made == before.made);
    CHECK(after.synchronisations == before.synchronisations);
    CHECK(after.event_waits - before.event_waits <= 2);
    CHECK(found.pending[step] >= 3);
  }
}

TEST_CASE("an error that NCCL meets by itself ends all ranks, with the operation") {
  const RankTrajectory failed =
      run_on({.network = mlp(), .ranks = 2, .backend = RankBackend::nccl, .stub_fails = "1:7"});
  for (int rank : {0, 1}) {
    CHECK(failed.codes[static_cast<size_t>(rank)] == static_cast<int>(ExitCode::rank));
  }
  CHECK_THAT(failed.messages[0] + failed.messages[1],
             Contains("NCCL 2.28.9: remote process exited or there was a network error") &&
                 Contains("in all_reduce of "));
}
#endif
