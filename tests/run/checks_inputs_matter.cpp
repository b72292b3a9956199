// The check that inputs matter passes models that learn from them, however late, and no others.
#include "run/checked.h"

using namespace dltrain;
using Catch::Matchers::Contains;

TEST_CASE("check that inputs matter: targets made of dice") {
  const CsvFile dice("dice.csv", 3000, [](int, auto uniform) {
    return fmt::format("{},{},{}", uniform() - 0.5, uniform() - 0.5, uniform() < 0.5 ? 0 : 1);
  });
  CheckOptions options =
      options_of({.data = dice.section(), .layers = "[linear: 8, tanh, linear: 2]"});
  options.most_seconds = 3600;  // the same on all machines
  const CheckResult result = check_inputs_matter(options, 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::fail);
}

TEST_CASE("check that inputs matter: a model that does not look at them") {
  const auto blind = [](LayerContext& c, ValueId x) {
    return c.builder().emit1("affine", {x}, {{"scale", 0.0}, {"shift", 1.0}});
  };
  CHECK_THAT(failure(check_inputs_matter, {.first_layer = blind}),
             Contains("in 100 steps") && Contains("the inputs change nothing"));
}

TEST_CASE("check that inputs matter: a model that learns from them late") {
  // In 100 steps of this learning rate it learns hardly more than how often each class is.
  CheckOptions slow =
      options_of({.data = "{type: synthetic, shape: [6], classes: 3, samples: 12000}",
                  .overrides = {"optimizer={type: sgd, learning_rate: 3.0e-4}", "seed=1"}});
  slow.most_seconds = 3600;  // the same on all machines
  const CheckResult result = check_inputs_matter(slow, 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::pass);
  CHECK_THAT(result.detail, Contains("in 1000 steps"));
}

TEST_CASE("check that inputs matter: augmentation that makes learning slow") {
  CheckOptions options = options_of(
      {.data = "{type: synthetic, shape: [1, 6, 6], classes: 3, samples: 1200, random_affine: "
               "{rotate: 180, translate: 4, scale: 0.9}}",
       .layers = "[flatten, linear: 16, relu, linear: 3]",
       .overrides = {"optimizer={type: sgd, learning_rate: 0.01}"}});
  options.most_seconds = 3600;
  const CheckResult result = check_inputs_matter(options, 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::pass);
}

// Wide inputs that say nothing of the targets: a linear model can learn them by heart.
Setup wide_dice(int samples) {
  return {.data = fmt::format(
              "{{type: synthetic, shape: [400], classes: 2, samples: {}, noise: 1.0e+4}}", samples),
          .layers = "[linear: 2]",
          .overrides = {"optimizer={type: adam, learning_rate: 1.0e-3}"},
          .first_layer = [](LayerContext& c, ValueId x) {
            return c.builder().emit1("affine", {x}, {{"scale", 1e-4}, {"shift", 0.0}});
          }};
}

TEST_CASE("check that inputs matter: samples learnt by heart do not count") {
  for (const int samples : {200, 3000, 6400}) {
    CAPTURE(samples);
    CheckOptions options = options_of(wide_dice(samples));
    options.most_seconds = 3600;
    const CheckResult result = check_inputs_matter(options, 64);
    INFO(result.detail);
    CHECK(result.outcome == CheckOutcome::fail);
    CHECK_THAT(result.detail, Contains("in 1000 steps"));
  }
}

TEST_CASE("check that inputs matter: no time for more steps is no excuse") {
  // The held-out loss grows as the samples are learnt by heart: more steps would change nothing.
  Setup setup = wide_dice(400);
  setup.overrides = {"optimizer={type: adam, learning_rate: 1.0e-2}"};
  CheckOptions options = options_of(setup);
  int failed = 0;
  for (options.most_seconds = 1.0 / 64; options.most_seconds < 64; options.most_seconds *= 2) {
    const CheckResult result = check_inputs_matter(options, 32);
    INFO(result.detail);
    // Too short for the first 100 steps, or decided.
    if (result.outcome == CheckOutcome::skip) {
      CHECK_THAT(result.detail, Contains("200 steps on"));
    } else {
      CHECK(result.outcome == CheckOutcome::fail);
      failed += result.detail.find("in 1000 steps") == std::string::npos ? 1 : 0;
    }
  }
  CHECK(failed > 0);  // with fewer steps than there could have been
}

TEST_CASE("check that inputs matter: a rare class of which hardly a sample is held out") {
  const CsvFile rare("rare.csv", 200, [](int i, auto) {
    return fmt::format("{},{},{}", i % 25 == 7 ? 1 : -1, i % 7, i % 25 == 7 ? 1 : 0);
  });
  CheckOptions options =
      options_of({.data = rare.section(), .layers = "[linear: 16, relu, linear: 2]"});
  options.most_seconds = 3600;
  const CheckResult result = check_inputs_matter(options, 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::skip);
  CHECK_THAT(result.detail, Contains("too few held-out samples to decide"));
}

TEST_CASE("check that inputs matter: too few samples to hold some out") {
  const CheckResult result = check_inputs_matter(
      options_of({.data = "{type: synthetic, shape: [6], classes: 3, samples: 63}"}), 32);
  CHECK(result.outcome == CheckOutcome::skip);
  CHECK_THAT(result.detail, Contains("of 63 samples too few can be held out"));
}
