// Training with precision.parameters: bf16: no f32 masters, updates rounded at random.
#include <cmath>
#include <set>

#include "base/philox.h"
#include "passes/autocast.h"
#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"
#include "tensor/random_rounding.h"

using namespace dltrain;

namespace {

const std::string kNarrow = "precision={compute: bf16, parameters: bf16}";

}  // namespace

TEST_CASE("rounding at random keeps what is exact and loses nothing on average") {
  for (const float exact : {0.0f, -0.0f, 1.0f, -1.5f, 3.0e38f, 1e-40f}) {
    Bf16 nearest;
    from_f32(exact, nearest);
    const float value = to_f32(nearest);
    for (const uint32_t random : {0u, 0x12345678u, 0xFFFFFFFFu}) {
      CHECK(bits_as<uint32_t>(to_f32(round_at_random(value, random))) == bits_as<uint32_t>(value));
    }
  }
  CHECK(std::isinf(to_f32(round_at_random(-INFINITY, 0xFFFFFFFFu))));
  CHECK(std::isnan(to_f32(round_at_random(bits_as<float>(0x7FFFFFFFu), 0xFFFFFFFFu))));
  CHECK(std::isnan(to_f32(round_at_random(bits_as<float>(0x7F800001u), 0))));
  for (const float value : {1.001f, -2.7182818f, 3e-5f}) {
    double sum = 0;
    std::set<float> results;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const float rounded = to_f32(round_at_random(value, random_bits(1, 2, 3, i)));
      results.insert(rounded);
      sum += rounded;
    }
    CHECK(results.size() == 2);
    const double unit = *results.rbegin() - *results.begin();
    CHECK(*results.begin() <= value);
    CHECK(*results.rbegin() >= value);
    // The standard deviation of the mean is at most unit / 2 / √draws.
    CHECK(std::abs(sum / kDraws - static_cast<double>(value)) < 2.5 * unit / std::sqrt(kDraws));
  }
}

TEST_CASE(
    "parameters in bf16 train like f32 masters but for rounding, and give the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    const ShortRun masters = short_run(layers, {.overrides = {"precision.compute=bf16"}});
    const ShortRun narrow = short_run(layers, {.overrides = {kNarrow}});
    INFO(layers << ": losses within " << greatest_difference(narrow, masters));
    CHECK(greatest_difference(narrow, masters) < 0.05);
    CHECK(greatest_difference(narrow, masters) > 1e-6);
    CHECK(narrow.state.size() < masters.state.size());
    CHECK(short_run(layers, {.overrides = {kNarrow}}).state == narrow.state);
    CHECK(short_run(layers, {.overrides = {kNarrow}, .keep_gradients = true}).state ==
          narrow.state);
    CHECK(short_run(layers, {.overrides = {kNarrow, "seed=1"}}).state != narrow.state);
  }
}

TEST_CASE("updates far below a unit in the last place are not lost") {
  const std::string layers = "[flatten, {linear: 500}, {linear: 5}]";
  const std::vector<std::string> overrides{kNarrow, "optimizer={type: sgd, learning_rate: 1.0e-6}"};
  const ShortRun slow = short_run(layers, {.overrides = overrides});
  const ShortRun still =
      short_run(layers, {.overrides = {kNarrow, "optimizer={type: sgd, learning_rate: 0}"}});
  CHECK(slow.state.size() == still.state.size());
  CHECK(slow.state != still.state);
}

TEST_CASE("parameters in bf16 have the same bits whatever the number of ranks") {
  for (const Network& network : networks()) {
    INFO(network.name);
    const std::vector<std::string> fixed{kNarrow, "training.reduction=fixed",
                                         "training.micro_batch_size=3"};
    const LayoutRun alone = layout_run(network, 1, fixed);
    for (int ranks : {2, 4}) {
      const LayoutRun shared = layout_run(network, ranks, fixed);
      CHECK(shared.losses == alone.losses);
      CHECK(shared.state == alone.state);
    }
  }
}

TEST_CASE("parameters that some op reads in f32 keep masters, the others have bf16 alone") {
  const Network& gpt = networks()[2];
  Experiment experiment = layout_experiment(gpt, {kNarrow});
  const Engines engines{.cpu = &cpu_engine(), .reference = &reference_engine()};
  const Session session = open_session(experiment, {.engines = engines});
  const StateLayout& layout = session.executor->layout();
  size_t narrow = 0, wide = 0, copies = 0;
  for (const StateTensor& tensor : layout.tensors()) {
    copies += tensor.role == Role::low_precision ? 1 : 0;
    if (tensor.role != Role::parameter) continue;
    const bool is_narrow = tensor.spec.dtype == DType::bf16;
    ++(is_narrow ? narrow : wide);
    if (is_narrow) CHECK(layout.find(tensor.name, Role::low_precision) == nullptr);
    const bool matrix = tensor.spec.shape.rank() == 2;
    const bool table = tensor.name.find("wte") != std::string::npos ||
                       tensor.name.find("wpe") != std::string::npos;
    INFO(tensor.name);
    if (matrix) CHECK(is_narrow == !table);
  }
  CHECK(narrow > 0);
  CHECK(wide > 0);
  CHECK(copies == 1);  // of the tied table
  // The plan counts what is there: two bytes of each parameter that had six.
  Experiment with_masters = layout_experiment(gpt, {"precision.compute=bf16"});
  const Session other = open_session(with_masters, {.engines = engines});
  const StateLayout& before = other.executor->layout();
  const size_t own = layout.bytes(Role::parameter) + layout.bytes(Role::low_precision);
  const size_t masters = before.bytes(Role::parameter) + before.bytes(Role::low_precision);
  size_t narrow_bytes = 0;
  for (const StateTensor& tensor : layout.tensors()) {
    const bool counts = tensor.role == Role::parameter && tensor.spec.dtype == DType::bf16;
    narrow_bytes += counts ? tensor.spec.bytes() : 0;
  }
  CHECK(masters - own == 2 * narrow_bytes);
}

TEST_CASE("what does not go with parameters in bf16 is refused") {
  const auto message = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"model.layers=[{linear: 5}]",
                                         "data.train={type: synthetic, shape: [6], classes: 5, "
                                         "samples: 64}",
                                         "training={global_batch_size: 16, max_steps: 1}"});
    return refusal_of([&] { load_config<Experiment>({.files = {}, .overrides = overrides}); },
                      ExitCode::usage);
  };
  const std::string sgd = "optimizer={type: sgd, learning_rate: 0.1}";
  using Catch::Matchers::Contains;
  CHECK_THAT(message({sgd, "precision.parameters=bf16"}), Contains("needs compute: bf16"));
  CHECK_THAT(message({sgd, "precision={compute: fp16, parameters: bf16}"}),
             Contains("needs compute: bf16"));
  CHECK_THAT(message({kNarrow, "optimizer={type: lamb, learning_rate: 0.1}"}),
             Contains("lamb needs full tensors"));
  CHECK_THAT(message({sgd, kNarrow, "parallelism.zero_stage=1"}), Contains("zero_stage: 0"));
  CHECK_THAT(message({sgd, kNarrow, "training.ema={decay: 0.9}"}), Contains("training.ema"));
}
