// training.gradient: forward: what it works together with, and its memory.
#include <functional>
#include <numeric>

#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

std::vector<std::string> forward(std::vector<std::string> more = {}) {
  more.emplace_back("training.gradient=forward");
  return more;
}

// The greatest number of bytes of a step besides state, of an MLP with so many layers.
size_t work_bytes(int depth, const char* gradient) {
  std::string layers;
  for (int i = 0; i < depth; ++i) layers += "{linear: 16}, gelu, ";
  const Network network{"deep",
                        {"model.layers=[" + layers + "{linear: 4}]",
                         "data.train={type: synthetic, shape: [16], classes: 4, samples: 4096}",
                         "training={global_batch_size: 2048, max_steps: 1}",
                         fmt::format("training.gradient={}", gradient)}};
  const PlanReport report = layout_run(network, 1, {}).report;
  return report.work_bytes;
}

// Minus the gradient of a step, times some rate: the difference of parameters after steps of SGD
// with two rates.
std::vector<double> direction_of_step(const Network& network, int64_t batch, const char* gradient) {
  const auto parameters = [&](const char* rate) {
    const LayoutRun run =
        layout_run(network, 1,
                   {fmt::format("optimizer={{type: sgd, learning_rate: {}}}", rate),
                    fmt::format("training={{global_batch_size: {}, max_steps: 1}}", batch),
                    fmt::format("training.gradient={}", gradient)},
                   0, DType::f64);
    std::vector<double> out;
    for (const auto& [name, bytes] : run.state) {
      const auto* values = reinterpret_cast<const double*>(bytes.data());
      out.insert(out.end(), values, values + bytes.size() / sizeof(double));
    }
    return out;
  };
  std::vector<double> low = parameters("1.0"), high = parameters("2.0");
  std::ranges::transform(high, low, low.begin(), std::minus());
  return low;
}

double inner_product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

// With f = (∇·v)·v: ⟨∇, f⟩ / ⟨f, f⟩ = 1 / |v|², whatever the data are.
TEST_CASE("a forward gradient is the projection of the gradient on its direction") {
  const Network models[]{
      networks()[2],
      {"convnet",
       {"model.layers=[{conv2d: {out_channels: 4, kernel_size: 3}}, batch_norm, relu, "
        "{max_pool2d: {kernel_size: 3, stride: 1, padding: 1}}, {adaptive_max_pool2d: 3}, flatten, "
        "{linear: 5}]",
        "data.train={type: synthetic, shape: [8, 8, 2], classes: 5, samples: 96}"}},
      {"recurrent",
       {"model={vocab_size: 29, layers: [{embedding: {embedding_dim: 8}}, {lstm: {hidden_size: 8, "
        "bidirectional: true}}, {gru: {hidden_size: 6}}, {rnn: {hidden_size: 5}}, {linear: 29}]}",
        "data.train={type: synthetic_tokens, vocab_size: 29, length: 5, samples: 96}"}},
      {"mixtral",
       {"model={type: mixtral, num_layers: 1, hidden_size: 8, num_heads: 2, num_kv_heads: 1, "
        "intermediate_size: 12, num_experts: 4, max_positions: 8, vocab_size: 29, balance_loss: "
        "0.5, "
        "router_z_loss: 0.1}",
        "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}}};
  for (const Network& network : models) {
    INFO(network.name);
    std::vector<double> squares;
    for (const int64_t batch : {4, 6}) {
      const std::vector<double> estimate = direction_of_step(network, batch, "forward");
      const std::vector<double> exact = direction_of_step(network, batch, "reverse");
      squares.push_back(inner_product(estimate, estimate) / inner_product(exact, estimate));
    }
    CHECK(squares[0] == Approx(squares[1]).epsilon(1e-9));
  }
}

TEST_CASE("a forward gradient learns, and gives the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    for (const char* precision : {"precision.compute=f32", "precision.compute=bf16"}) {
      INFO(layers << " with " << precision);
      const ShortRun plain = short_run(layers, {.overrides = {precision}});
      const ShortRun run = short_run(layers, {.overrides = forward({precision})});
      CHECK(greatest_difference(run, plain) > 1e-6);
      CHECK(short_run(layers, {.overrides = forward({precision})}).state == run.state);
      const auto more = forward({precision, "training.directions=3"});
      CHECK(greatest_difference(short_run(layers, {.overrides = more}), run) > 1e-6);
    }
  }
}

TEST_CASE("a forward gradient has the same directions on all ranks and in all micro-batches") {
  for (size_t i : {0, 1}) {
    const Network& network = networks()[i];
    INFO(network.name);
    const auto fixed = forward(
        {"training.reduction=fixed", "training.micro_batch_size=3", "training.directions=2"});
    const LayoutRun alone = layout_run(network, 1, fixed);
    for (const int ranks : {2, 4}) {
      INFO(ranks << " ranks");
      const LayoutRun shared = layout_run(network, ranks, fixed);
      CHECK(shared.losses == alone.losses);
      CHECK(shared.state == alone.state);
    }
    const LayoutRun copies = layout_run(network, 2, forward());
    for (const char* stage : {"1", "2", "3"}) {
      INFO("ZeRO stage " << stage);
      const std::string zero = std::string("parallelism.zero_stage=") + stage;
      CHECK(layout_run(network, 2, forward({zero})).losses == copies.losses);
    }
  }
}

TEST_CASE("the memory of a forward gradient does not grow with depth") {
  const size_t shallow = work_bytes(4, "forward"), deep = work_bytes(32, "forward");
  CHECK(deep < shallow + shallow / 4);  // the gradients of 28 small layers
  CHECK(work_bytes(32, "reverse") > 4 * work_bytes(4, "reverse"));
}

TEST_CASE("what a forward gradient does not go with is refused at its key") {
  using Catch::Matchers::Contains;
  for (const char* key : {"parallelism.tensor=2", "parallelism.pipeline=2", "memory.recompute=full",
                          "training.optimizer_in_backward=true"}) {
    INFO(key);
    auto overrides = forward(networks()[0].overrides);
    overrides.emplace_back("optimizer=adamw");
    overrides.emplace_back("training.global_batch_size=24");
    overrides.emplace_back("training.max_steps=2");
    overrides.emplace_back(key);
    const std::string text = refusal_of(
        [&] { load_config<Experiment>({.files = {}, .overrides = overrides}); }, ExitCode::usage);
    CHECK_THAT(text, Contains("forward"));
  }
}
