// Random layouts over real connections whose operations are delayed at random: no order of messages
// may let ranks wait for each other for ever, and losses are those of one rank.
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "comm/host_collectives.h"
#include "comm/store.h"
#include "run/layout_run.h"

using namespace dltrain;
using namespace std::chrono_literals;

namespace {

struct RandomLayout {
  int ranks = 1;
  std::vector<std::string> overrides = {};
  int chunks = 1;  // of each rank in a pipeline: 9 stages in all at most
};

// The output of the first layer passes through the stages between it and the last but one.
const Network& skipping() {
  static const Network network{
      "skip",
      {"model.layers=[flatten, {linear: 16, name: first}, gelu, {linear: 16}, gelu, {linear: 16, "
       "name: third}, {type: add, inputs: [first, third]}, gelu, {linear: 16}, {linear: 8}, gelu, "
       "{linear: 8}, {linear: 8}, gelu, {linear: 16, name: far}, {type: add, inputs: [first, "
       "far]}, "
       "{linear: 5}]",
       "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}};
  return network;
}

// The losses of routers would depend on the micro-batch.
const Network& mixture() {
  static const Network network{
      "experts",
      {"model.layers=[{embedding: {embedding_dim: 16}}, {repeat: {times: 2, layers: [{residual: "
       "[layer_norm, {linear: 48}, {attention: {num_heads: 2, causal: true}}, {linear: 16}]}, "
       "{residual: [layer_norm, {moe: {num_experts: 6, experts_per_token: 2, intermediate_size: "
       "12}}]}]}}, "
       "{lm_head: {}}]",
       "data.train={type: synthetic_tokens, vocab_size: 29, length: 8, samples: 96}"}};
  return network;
}

// `text`: the samples have tokens, which ranks can share; `experts`: the network has 6.
RandomLayout random_layout(std::mt19937& dice, bool text, bool experts) {
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(dice)];
  };
  int data = 0, tensor = 0, pipeline = 0;
  do {
    data = one_of({1, 2, 3});
    tensor = one_of({1, 2});
    pipeline = one_of({1, 2, 3});
  } while (data * tensor * pipeline < 2 || data * tensor * pipeline > 6);
  const int share = 24 / data;
  const int context = text && data * tensor * pipeline <= 4 ? one_of({1, 2}) : 1;
  int expert = 1;
  if (experts) {
    do {
      expert = one_of({1, 2, 3, 6});
    } while (data * context % expert != 0);
  }
  int micro = 0;
  do {
    micro = one_of({1, 2, 3, 4, 6, 8});
  } while (share % micro != 0);
  const char* schedules[]{"1f1b", "gpipe", "zero_bubble"};
  const char* recompute[]{"none", "selective", "full", "auto"};
  const bool sequence = tensor > 1 && micro % 2 == 0 && one_of({0, 1}) == 0;
  const int pieces = sequence ? one_of({1, 2, 3}) : 1;
  const bool ring = context > 1 && one_of({0, 1}) == 0;
  const int drawn = one_of({1, 1, 2, 3}), chunks = pipeline > 1 ? drawn : 1;
  return {
      .ranks = data * context * tensor * pipeline,
      .overrides =
          {fmt::format(
               "parallelism={{tensor: {}, sequence_parallel: {}, product_pieces: {}, context: {}, "
               "context_method: {}, pipeline: {}, expert: {}, pipeline_schedule: {}, "
               "virtual_stages: {}, zero_stage: {}, bucket_mb: 0.002}}",
               tensor, sequence, pieces, context, ring ? "ring" : "all_gather", pipeline, expert,
               chunks > 1 ? "interleaved" : schedules[one_of({0, 1, 2})], chunks,
               one_of({0, 1, 2, 3})),
           fmt::format("memory.recompute={}",
                       recompute[chunks > 1 ? one_of({0, 1, 2}) : one_of({0, 1, 2, 3})]),
           fmt::format("training={{global_batch_size: 24, max_steps: 3, "
                       "max_grad_norm: 0.5, micro_batch_size: {}}}",
                       micro)},
      .chunks = chunks};
}

// Trains over TCP connections in this process; every operation begins up to 2 ms late.
std::vector<double> losses_with_delays(const Network& network, const RandomLayout& layout,
                                       unsigned seed) {
  StoreServer server("127.0.0.1", 0);
  std::vector<double> losses;
  run_rank_threads(layout.ranks, [&](ThreadCollectives& place) {
    StoreClient store({.port = server.port(), .prefix = "layouts/"});
    std::mutex mutex;  // groups have threads of their own
    std::mt19937 dice(seed * 100 + static_cast<unsigned>(place.rank()));
    const auto delay = [&] {
      std::chrono::microseconds time;
      {
        const std::lock_guard lock(mutex);
        time = std::uniform_int_distribution(0, 3)(dice) != 0
                   ? 0us
                   : std::chrono::microseconds(std::uniform_int_distribution(0, 2000)(dice));
      }
      std::this_thread::sleep_for(time);
    };
    HostCollectives group(
        store,
        {.rank = place.rank(), .size = layout.ranks, .timeout = 30s, .before_operation = delay});
    Experiment experiment = layout_experiment(network, layout.overrides);
    SessionOptions options = layout_options(place);
    options.ranks.collectives = &group;
    Session session = open_session(experiment, options);
    start_session(session);
    TrainEvents events;
    events.on_step = [&](const StepRecord& record) { losses.push_back(record.loss); };
    train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
    group.barrier();
  });
  return losses;
}

}  // namespace

TEST_CASE("random layouts with delayed messages end, with the losses of one rank") {
  const auto number = [](const char* variable, int otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr ? std::atoi(text) : otherwise;
  };
  for (int i = number("DLTRAIN_FIRST_LAYOUT", 0); i < number("DLTRAIN_LAYOUTS", 16); ++i) {
    std::mt19937 dice(static_cast<unsigned>(i));
    const RandomLayout layout = random_layout(dice, i % 2 == 1, i % 4 == 3);
    const Network& network = i % 4 == 0 && layout.chunks == 1 ? networks()[0]
                             : i % 4 == 1                     ? networks()[2]
                             : i % 4 == 3                     ? mixture()
                                                              : skipping();
    INFO("layout " << i << ": " << network.name << " on " << layout.ranks << " ranks, "
                   << layout.overrides[0] << ", " << layout.overrides[1] << ", "
                   << layout.overrides[2]);
    const LayoutRun one = layout_run(
        network, 1, {"training={global_batch_size: 24, max_steps: 3, max_grad_norm: 0.5}"});
    CHECK(greatest_difference(losses_with_delays(network, layout, static_cast<unsigned>(i)),
                              one.losses) < 1e-5);
  }
}
