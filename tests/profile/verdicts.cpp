// Verdicts of profiles that are sound but for one thing: exactly that is said.
#include <algorithm>

#include "catch.h"
#include "profile/report.h"

using namespace dltrain;

namespace {

constexpr double kStep = 10e-3;

// A step of 10 ms: 9.8 ms of products at 90 % of the limit of arithmetic.
ProfileReport sound() {
  ProfileReport report{.name = "test", .threads = 2};
  report.cores = 4;
  report.limits = {.flops_f32 = 100e9, .bytes = 20e9, .source = "test"};
  report.plain_step_seconds = kStep;
  Profile& p = report.profile;
  p.steps = 10;
  p.step_seconds = kStep;
  for (const char* name :
       {"forward", "backward", "update", "communication", "data", "inputs", "results", "host"}) {
    p.shares.push_back({name, 0, ""});
  }
  p.shares[0].seconds = 3.3e-3;
  p.shares[1].seconds = 6.5e-3;
  p.shares[7].seconds = 0.2e-3;
  p.kernels = {.flops = 9.8e-3 * 90e9,
               .bytes = 2e7,
               .arithmetic_seconds = 9.8e-3,
               .arithmetic_limit = 8.82e-3,
               .calls = 40};
  p.ops.push_back({.name = "matmul",
                   .detail = "own",
                   .calls = 40,
                   .seconds = 9.8e-3,
                   .flops = 9.8e-3 * 90e9,
                   .bytes = 2e7,
                   .limit_seconds = 8.82e-3});
  p.loader = {.fill_seconds = 2e-3, .computing = 1.9e-3};
  p.gaps.push_back({.seconds = 1.5e-3, .cause = "host", .step = 3, .at = 0.034});
  return report;
}

// Moves a part of the step from the kernels to a share.
void move_to(ProfileReport& report, size_t share, double seconds) {
  Profile& p = report.profile;
  p.shares[share].seconds += seconds;
  p.shares[1].seconds -= seconds;
  p.kernels.arithmetic_seconds -= seconds;
  p.kernels.arithmetic_limit = 0.9 * p.kernels.arithmetic_seconds;
  p.ops[0].seconds -= seconds;
  p.ops[0].limit_seconds = 0.9 * p.ops[0].seconds;
}

}  // namespace

TEST_CASE("the shares of a short step add up in the table") {
  ProfileReport report = sound();
  report.profile.step_seconds = 20e-6;
  report.profile.shares[4].seconds = 0.4e-6;
  const std::string table = profile_table(report, {});
  CHECK_THAT(table, Catch::Contains("data               0.000 ms    2.0 %\n"));
  CHECK_THAT(table, !Catch::Contains("  inputs "));
}

TEST_CASE("a sound profile has no verdict but what bounds it") {
  CHECK(verdicts(sound()) ==
        std::vector<std::string>{
            "bound by arithmetic: 98 % of the step is in kernels that it limits, at 90 % of the "
            "limit; all kernels together have 44.1 FLOP a byte, the ridge point is 5"});
}

TEST_CASE("each fault has its verdict alone") {
  const auto only = [](const ProfileReport& report) {
    const auto all = verdicts(report);
    REQUIRE(all.size() == 2);
    return all[1];
  };
  SECTION("slow decoding") {
    ProfileReport report = sound();
    move_to(report, 4, 4e-3);
    report.profile.loader = {.fill_seconds = 20e-3, .computing = 18.2e-3};
    report.data_workers = 2;
    CHECK(only(report) ==
          "40 % of the step waits for data: its batches take 20 ms of 2 loader threads (91 % "
          "computing, 9 % waiting for disk or cores); data.workers 2 → 4");
    report.cores = 3;
    CHECK(
        only(report).ends_with("4 threads would keep up, but there are 3 cores: decode less "
                               "(dltrain data prepare --encoding raw, smaller images)"));
    move_to(report, 4, 4e-3);
    CHECK(verdicts(report)[0] == "bound by data: 80 % of the step");
  }
  SECTION("a slow disk") {
    ProfileReport report = sound();
    move_to(report, 4, 4e-3);
    report.profile.loader = {.fill_seconds = 10e-3, .computing = 1e-3};
    CHECK(
        only(report).ends_with("(10 % computing, 90 % waiting for disk or cores); a faster disk "
                               "or a packed file (dltrain data prepare), or more data.workers"));
  }
  SECTION("tiny ops") {
    ProfileReport report = sound();
    move_to(report, 7, 3e-3);
    report.profile.kernels.short_calls = 35;
    CHECK(only(report) ==
          "35 of 40 kernel calls take less than 5 µs, and 32 % of the step is between the kernels "
          "or in the fixed costs of these calls: the work is too small for its calls; a larger "
          "training.micro_batch_size or wider layers");
    report = sound();
    report.profile.kernels.short_calls = 35;
    report.profile.kernels.short_excess = 8e-3;
    report.profile.ops[0].limit_seconds = 2e-3;
    CHECK(only(report).starts_with("35 of 40 kernel calls take less than 5 µs, and 82 % of the"));
    CHECK(verdicts(report)[0] == "bound by overhead: 82 % of the step");
  }
  SECTION("an injected wait") {
    ProfileReport report = sound();
    move_to(report, 7, 3e-3);
    CHECK(only(report) ==
          "32 % of the step is between the kernels (the longest gap, 1.5 ms, in "
          "observed step 3 at 34 ms of the trace)");
  }
  SECTION("other ranks") {
    ProfileReport report = sound();
    move_to(report, 3, 2e-3);
    CHECK(only(report).starts_with("20 % of the step waits for other ranks: larger micro-batches"));
    report = sound();
    report.ranks = {{kStep, {2e-3, 3e-3, 0}}, {kStep, {2e-3, 6e-3, 0}}};
    CHECK(only(report) == "rank 1 computes 8 ms a step, rank 0 5 ms: the others wait for it");
  }
  SECTION("a kernel far from the limit") {
    ProfileReport report = sound();
    report.profile.ops[0].limit_seconds = 2e-3;
    CHECK(only(report) ==
          "most is lost in matmul (own): 7.8 ms of its 9.8 ms a step are beyond "
          "what the limit needs (20 % of it)");
  }
  SECTION("a GPU that is slowed down") {
    ProfileReport report = sound();
    report.throttled = "power cap";
    report.watts = 699.6;
    report.samples_per_step = 64;
    CHECK(only(report) == "the GPU runs slower than it could (power cap): 700 W");
    CHECK(report.joules_per_sample() == Approx(699.6 * kStep / 64));
    report.ranks = {{kStep, {2e-3, 3e-3, 0}}, {kStep, {2e-3, 3e-3, 0}}};
    CHECK(report.joules_per_sample() == Approx(2 * 699.6 * kStep / 64));
    CHECK_THAT(profile_table(report, {}), Catch::Contains("power: 700 W, 0.219 J per sample\n"));
  }
  SECTION("a busy machine, too many threads, an unaligned width") {
    ProfileReport report = sound();
    report.other_load = 1.7;
    CHECK(only(report) == "other processes use 1.7 of the 4 CPUs: times are longer and vary");
    report = sound();
    report.threads = 8;
    CHECK(only(report) == "8 threads share 4 cores: OMP_NUM_THREADS=4");
    report = sound();
    report.misalignment = "lm_head has 50257 outputs";
    CHECK(only(report) == "lm_head has 50257 outputs");
  }
}

TEST_CASE("a step of element-wise work is bound by memory") {
  ProfileReport report = sound();
  report.profile.kernels = {
      .flops = 1e6, .bytes = 1.6e8, .memory_seconds = 9.8e-3, .memory_limit = 8e-3, .calls = 40};
  CHECK(
      verdicts(report)[0].starts_with("bound by memory: 98 % of the step is in kernels that it "
                                      "limits, at 82 % of the limit; all kernels together have "
                                      "0.00625 FLOP a byte, the ridge point is 5"));
}

TEST_CASE("the roofline has a point for each op, its roof, and escaped names") {
  ProfileReport report = sound();
  report.name = "a<b&c";
  const std::string svg = roofline_svg(report);
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.find("a&lt;b&amp;c") != svg.npos);
  CHECK(svg.find("<title>matmul (own): 98.0 % of the step, 90 % of the limit</title>") != svg.npos);
  report.profile.ops.clear();
  CHECK(roofline_svg(report).empty());
}
