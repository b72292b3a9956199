// Sampling: what each option leaves, how often tokens are drawn, and that draws are functions of
// seed, prompt, copy and place.
#include "generate/token_sampler.h"

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "catch.h"

namespace dltrain {
namespace {

const std::vector<int32_t> kPrompt{1, 2};

// How often each token comes in many draws of the same logits at different places.
std::map<int32_t, double> shares(const SamplingOptions& options, const std::vector<float>& logits,
                                 const std::vector<int32_t>& prompt = kPrompt) {
  constexpr int64_t kDraws = 20000;
  std::map<int32_t, double> out;
  for (int64_t i = 0; i < kDraws; ++i) {
    out[TokenSampler(options, prompt, 0).next(logits, i)] += 1.0 / static_cast<double>(kDraws);
  }
  return out;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

void check_shares(const std::map<int32_t, double>& found, const std::map<int32_t, double>& wanted) {
  CHECK(found.size() == wanted.size());
  for (const auto& [token, share] : wanted) {
    INFO("token " << token);
    REQUIRE(found.contains(token));
    // Five standard deviations of 20000 draws.
    CHECK(found.at(token) == Approx(share).margin(5 * std::sqrt(share * (1 - share) / 20000)));
  }
}

TEST_CASE("tokens are drawn by their probabilities") {
  const std::vector<float> logits = logs({0.1, 0.5, 0.15, 0.25});
  check_shares(shares({}, logits), {{0, 0.1}, {1, 0.5}, {2, 0.15}, {3, 0.25}});
  const double hot = std::sqrt(0.1) + std::sqrt(0.5) + std::sqrt(0.15) + std::sqrt(0.25);
  check_shares(shares({.temperature = 2}, logits), {{0, std::sqrt(0.1) / hot},
                                                    {1, std::sqrt(0.5) / hot},
                                                    {2, std::sqrt(0.15) / hot},
                                                    {3, std::sqrt(0.25) / hot}});
}

TEST_CASE("top-k and top-p leave the likeliest tokens") {
  const std::vector<float> logits = logs({0.1, 0.5, 0.15, 0.25});
  check_shares(shares({.top_k = 2}, logits), {{1, 0.5 / 0.75}, {3, 0.25 / 0.75}});
  check_shares(shares({.top_k = 9}, logits), {{0, 0.1}, {1, 0.5}, {2, 0.15}, {3, 0.25}});
  // The fewest with at least 0.7 together; the likeliest alone where it is enough.
  check_shares(shares({.top_p = 0.7}, logits), {{1, 0.5 / 0.75}, {3, 0.25 / 0.75}});
  check_shares(shares({.top_p = 0.76}, logits), {{1, 0.5 / 0.9}, {2, 0.15 / 0.9}, {3, 0.25 / 0.9}});
  check_shares(shares({.top_p = 0.3}, logits), {{1, 1.0}});
  // Top-k first: of 0.5 and 0.25 the first has two thirds.
  check_shares(shares({.top_k = 2, .top_p = 0.6}, logits), {{1, 1.0}});
  // As likely as the last that stays.
  check_shares(shares({.top_k = 1}, logs({0.4, 0.4, 0.2})), {{0, 0.5}, {1, 0.5}});
}

TEST_CASE("top-p of many tokens sorts what it needs") {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 977) * 1e-4f;
  double total = 0;
  for (float x : logits) total += std::exp(double{x});
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  size_t kept = 0;
  for (double sum = 0; sum < 0.5 * total; ++kept) sum += std::exp(double{sorted[kept]});
  float least = 1;
  for (int64_t i = 0; i < 3000; ++i) {
    const int32_t token = TokenSampler({.top_p = 0.5}, kPrompt, 0).next(logits, i);
    least = std::min(least, logits[static_cast<size_t>(token)]);
  }
  CHECK(least >= sorted[kept - 1]);
  CHECK(least < sorted[kept / 2]);
}

TEST_CASE("repetition makes tokens of the text less likely, above and below 0") {
  const SamplingOptions greedy{.temperature = 0, .repetition_penalty = 2};
  CHECK(TokenSampler(greedy, kPrompt, 0).next(std::vector<float>{1.5f, 2.0f, 0.0f}, 2) == 0);
  CHECK(TokenSampler(greedy, kPrompt, 0).next(std::vector<float>{-1.5f, -1.0f, -1.0f}, 2) == 0);
  TokenSampler sampler(greedy, kPrompt, 0);
  const std::vector<float> logits{3.0f, 0.1f, 0.1f, 2.0f};
  CHECK(sampler.next(logits, 2) == 0);
  CHECK(sampler.next(logits, 3) == 3);  // what was made counts too
  CHECK(sampler.next(logits, 4) == 0);  // once each
}

TEST_CASE("temperature 0 takes the likeliest, the first of equals") {
  CHECK(TokenSampler({.temperature = 0}, kPrompt, 0).next(std::vector<float>{1, 3, 3, 2}, 2) == 1);
  for (double tiny : {1e-30, 1e-40, 1e-310}) {
    CHECK(TokenSampler({.temperature = tiny}, kPrompt, 0).next(std::vector<float>{1, 3, 0}, 2) ==
          1);
  }
}

TEST_CASE("a draw is a function of seed, prompt, copy and place") {
  const std::vector<float> logits(1000, 0.0f);
  const auto draw = [&](uint64_t seed, const std::vector<int32_t>& prompt, int64_t copy,
                        int64_t place) {
    return TokenSampler({.seed = seed}, prompt, copy).next(logits, place);
  };
  const int32_t one = draw(5, kPrompt, 0, 7);
  CHECK(draw(5, kPrompt, 0, 7) == one);
  CHECK(draw(6, kPrompt, 0, 7) != one);
  CHECK(draw(5, {2, 1}, 0, 7) != one);
  CHECK(draw(5, kPrompt, 1, 7) != one);
  CHECK(draw(5, kPrompt, 0, 8) != one);
}

TEST_CASE("logits that are not finite are an error") {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    try {
      TokenSampler({}, kPrompt, 0).next(std::vector<float>{0.0f, bad}, 0);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::diverged);
    }
  }
}

}  // namespace
}  // namespace dltrain
