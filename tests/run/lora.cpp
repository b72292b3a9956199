// Low-rank adapters (model.lora, nn/lora.h): what the graph has of them, and that no layout changes
// the result. Trajectories and files are compared with peft in tests/apps/test_lora.py.
#include "nn/lora.h"

#include "refusal.h"
#include "run/low_precision.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

const Engines kLoraEngines{.cpu = &cpu_engine(), .reference = &reference_engine()};

// The network of this number with adapters of these keys.
Network with_lora(size_t network, const std::string& lora) {
  Network out = networks()[network];
  out.overrides.push_back("model.lora=" + lora);
  return out;
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> adapted_modules(const Session& session) {
  std::vector<std::string> out;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    if (info.name.ends_with(kLoraA)) out.emplace_back(adapted_module(info.name));
  }
  return out;
}

std::vector<std::string> adapted(const std::vector<std::string>& overrides) {
  Experiment experiment = layout_experiment({"", {}}, overrides);
  return adapted_modules(open_session(experiment, {.engines = kLoraEngines}));
}

using Names = std::vector<std::string>;

const std::string kImageData =
    "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}";
const std::string kTextData =
    "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}";

}  // namespace

TEST_CASE(
    "adapters stand beside the linear layers that are selected, by default all but the head") {
  const std::string layers =
      "model.layers=[flatten, {linear: 8, name: a}, gelu, {linear: 8, name: b}, tanh, {linear: 5, "
      "name: c}]";
  CHECK(adapted({layers, kImageData, "model.lora=4"}) == Names{"a", "b"});
  CHECK(adapted({layers, kImageData, "model.lora={rank: 4, match: [c, b.weight]}"}) ==
        Names{"b", "c"});
  CHECK(adapted({layers, kImageData, "model.lora={rank: 4, match: ['*', '!a']}"}) ==
        Names{"b", "c"});
  // Heads of attention in one packed product; products of shared experts, but not of routers.
  const std::string tokens =
      "model={vocab_size: 29, layers: [{embedding: {embedding_dim: 16}, name: e}, "
      "{multi_head_attention: {num_heads: 2, causal: true}, name: self}, {moe: {num_experts: 4, "
      "experts_per_token: 2, intermediate_size: 8, shared_experts: 1}, name: moe}, {lm_head: {}, "
      "name: head, share: e}]}";
  CHECK(adapted({tokens, kTextData, "model.lora=4"}) ==
        Names{"self.in_proj", "self.out_proj", "moe.shared_experts.gate_proj",
              "moe.shared_experts.up_proj", "moe.shared_experts.down_proj"});
  // The head has the weight of the embedding, and an adapter of its own.
  CHECK(adapted({tokens, kTextData, "model.lora={rank: 4, match: head}"}) == Names{"head"});
  // Layers that share a weight share its adapter.
  const std::string shared =
      "model.layers=[flatten, {linear: 8, name: a}, tanh, {linear: 8, name: b}, tanh, {linear: 8, "
      "name: c, share: b}, tanh, {linear: 5}]";
  CHECK(adapted({shared, kImageData, "model.lora={rank: 2, match: b}"}) == Names{"b"});
  const auto refused = [](const std::vector<std::string>& overrides) {
    return refusal_of([&] { adapted(overrides); }, ExitCode::usage);
  };
  CHECK_THAT(refused({layers, kImageData, "model.lora={rank: 4, match: [d]}"}),
             Contains("'d' matches no linear layer"));
  CHECK_THAT(refused({"model.layers=[flatten, {linear: 5}]", kImageData, "model.lora=4"}),
             Contains("no linear layer besides its head"));
}

TEST_CASE("only adapters have gradients and moments, and only they change") {
  for (const char* more : {"", ", also_train: [ln_f.*]", ", base: bf16"}) {
    INFO(more);
    const Network network = with_lora(2, fmt::format("{{rank: 4, dropout: 0.1{}}}", more));
    std::vector<std::string> overrides;
    if (std::string(more).find("bf16") != std::string::npos) {
      overrides.emplace_back("precision.compute=bf16");
    }
    Experiment experiment = layout_experiment(network, overrides);
    Session session = open_session(experiment, {.engines = kLoraEngines});
    const auto learns = [&](const std::string& name) {
      return !adapted_module(name).empty() || (*more == ',' && name.starts_with("ln_f.") &&
                                               std::string(more).find("ln_f") != std::string::npos);
    };
    for (const StateTensor& tensor : session.executor->layout().tensors()) {
      if (tensor.role != Role::moment && tensor.role != Role::gradient) continue;
      CHECK(learns(tensor.owner));
    }
    const LayoutRun before =
        layout_run(network, 1,
                   joined(overrides, {"training={global_batch_size: 24, max_steps: 1}",
                                      "optimizer={type: adamw, learning_rate: 0}"}));
    const LayoutRun after = layout_run(network, 1, overrides);
    size_t changed = 0;
    for (const ParameterInfo& info : session.executor->training().parameters) {
      INFO(info.name);
      const bool same = before.state.at(info.name) == after.state.at(info.name);
      CHECK(same == !learns(info.name));
      changed += same ? 0 : 1;
    }
    CHECK(changed >= 16);
  }
}

TEST_CASE("the first step with adapters has the loss of the model alone, to the bit") {
  for (const auto& [network, variant] : {std::pair(0, "lora"), {1, "rslora"}, {2, "dora"}}) {
    for (const char* compute : {"f32", "bf16"}) {
      INFO(networks()[network].name << " " << compute);
      const std::vector<std::string> once{"training={global_batch_size: 24, max_steps: 1}",
                                          fmt::format("precision.compute={}", compute)};
      const LayoutRun alone = layout_run(networks()[network], 1, once);
      const LayoutRun lora = layout_run(
          with_lora(network, fmt::format("{{rank: 4, dropout: 0.5, variant: {}}}", variant)), 1,
          once);
      // Products of 16 bits with tanh in their kernel round once, those with an adapter twice;
      // those of dora are not rounded.
      const bool rounds = network != 0 && std::string_view(compute) == "bf16";
      // oneDNN's tanh in a product may differ from that of an op of its own in the last bits.
      const bool tanh = network == 1;
      const double most = rounds ? 1e-5 : tanh ? 1e-7 : 0;
      CHECK(greatest_difference(lora.losses, alone.losses) <= most);
      if (network != 2) CHECK(lora.report.flops_per_step < alone.report.flops_per_step);
    }
  }
}

TEST_CASE("adapters train alike on ranks, micro-batches, with recomputation and ZeRO") {
  const Network network = with_lora(2, "{rank: 4, dropout: 0.1}");
  const LayoutRun alone = layout_run(network, 1, {});
  const auto check = [&](int ranks, const std::vector<std::string>& overrides) {
    INFO(ranks << " ranks " << (overrides.empty() ? "" : overrides[0]));
    const LayoutRun run = layout_run(network, ranks, overrides);
    CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
    CHECK(greatest_difference(run.norms, alone.norms) < 1e-5);
  };
  check(1, {"training.micro_batch_size=3"});
  for (int ranks : {2, 3}) check(ranks, {"training.micro_batch_size=2"});
  for (int stage : {1, 2, 3}) {
    check(2, {fmt::format("parallelism.zero_stage={}", stage), "parallelism.bucket_mb=0.002"});
  }
  for (const char* recompute : {"selective", "blocks", "full"}) {
    const LayoutRun run = layout_run(network, 1, {fmt::format("memory.recompute={}", recompute)});
    CHECK(run.losses == alone.losses);
    CHECK(run.state == alone.state);
  }
  const std::vector<std::string> fixed{"training.reduction=fixed", "training.micro_batch_size=3"};
  CHECK(layout_run(network, 2, fixed).state == layout_run(network, 1, fixed).state);
}

TEST_CASE("adapters train alike on tensor, context and pipeline ranks") {
  for (const char* variant : {"lora", "dora"}) {
    const Network network = with_lora(2, fmt::format("{{rank: 4, variant: {}}}", variant));
    const LayoutRun alone = layout_run(network, 1, {});
    for (const char* layout :
         {"parallelism.tensor=2", "parallelism={tensor: 2, sequence_parallel: true}",
          "parallelism.context=2", "parallelism.pipeline=2", "parallelism.zero_stage=3"}) {
      INFO(variant << " " << layout);
      const LayoutRun run = layout_run(network, 2, {layout, "training.micro_batch_size=3"});
      CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
      CHECK(greatest_difference(run.norms, alone.norms) < 1e-5);
    }
  }
}

TEST_CASE("a base in bf16 computes what f32 masters compute and needs 2 bytes a parameter") {
  const std::string bf16 = "precision.compute=bf16";
  const LayoutRun wide = layout_run(with_lora(2, "{rank: 4}"), 1, {bf16});
  const LayoutRun narrow = layout_run(with_lora(2, "{rank: 4, base: bf16}"), 1, {bf16});
  CHECK(narrow.losses == wide.losses);
  size_t saved = 0;
  for (const auto& [name, bytes] : wide.state) saved += bytes.size() - narrow.state.at(name).size();
  CHECK(saved > 0);
  // The plan counts the f32 values that are not there.
  CHECK(wide.report.arena_bytes - narrow.report.arena_bytes >= saved);
  const LayoutRun ranks =
      layout_run(with_lora(2, "{rank: 4, base: bf16}"), 2, {bf16, "training.micro_batch_size=3"});
  check_close(ranks, narrow, low_precision(with_lora(2, "{rank: 4}"), {}, kBitsOfBf16));
  const auto refused = [](const std::vector<std::string>& more) {
    return refusal_of([&] { layout_experiment(with_lora(2, "{rank: 4, base: bf16}"), more); },
                      ExitCode::usage);
  };
  CHECK_THAT(refused({}), Contains("needs precision.compute: bf16"));
  CHECK_THAT(refused({bf16, "parallelism.zero_stage=1"}), Contains("zero_stage: 0"));
  CHECK_THAT(refused({bf16, "parallelism.tensor=2"}), Contains("tensor or expert"));
}
