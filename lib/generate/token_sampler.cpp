#include "generate/token_sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

uint64_t stream_of(std::span<const int32_t> source, std::span<const int32_t> prompt) {
  uint64_t hash = random_stream("generate");
  for (const auto& tokens : {source, prompt}) {
    for (int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3ull;
  }
  return hash;
}

// Uniform in [0, 1) with 53 bits: enough for the rarest of many tokens.
double uniform(uint64_t seed, uint64_t stream, uint64_t copy, int64_t position) {
  const auto bits = [&](uint64_t half) {
    return uint64_t{random_bits(seed, stream, copy, 2 * static_cast<uint64_t>(position) + half)};
  };
  return static_cast<double>((bits(0) << 21) ^ (bits(1) >> 11)) * 0x1p-53;
}

// Loops over a vocabulary that compilers vectorise.
float greatest_of(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> most;
  most.fill(logits[0]);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      most[lane] = logits[i + lane] > most[lane] ? logits[i + lane] : most[lane];
    }
  }
  for (; i < logits.size(); ++i) most[0] = std::max(most[0], logits[i]);
  return *std::max_element(most.begin(), most.end());
}

// exp(x) for x ≤ 0 with a relative error below 4e-6: a polynomial for the fraction of a power of
// two (Cephes' coefficients of exp2), its whole part into the exponent.
float exp_of(float x) {
  const float y = std::max(x * 1.44269504f, -126.0f);
  const auto whole = static_cast<int32_t>(y - 0.5f);
  const float f = y - static_cast<float>(whole);
  float p = 1.535336188319500e-4f;
  p = p * f + 1.339887440266574e-3f;
  p = p * f + 9.618437357674640e-3f;
  p = p * f + 5.550332471162809e-2f;
  p = p * f + 2.402264791363012e-1f;
  p = p * f + 6.931472028550421e-1f;
  return (p * f + 1) * std::bit_cast<float>((whole + 127) << 23);
}

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options, std::span<const int32_t> prompt,
                           int64_t copy, std::span<const int32_t> source)
    : options_(options), stream_(stream_of(source, prompt)), copy_(static_cast<uint64_t>(copy)) {
  for (int32_t token : prompt) note(token);
}

void TokenSampler::note(int32_t token) {
  const auto at = static_cast<size_t>(token);
  if (at >= seen_.size()) seen_.resize(at + 1, false);
  if (!seen_[at]) distinct_.push_back(token);
  seen_[at] = true;
}

void TokenSampler::penalise() {
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  if (penalty == 1) return;
  for (int32_t token : distinct_) {
    if (static_cast<size_t>(token) >= logits_.size()) continue;
    float& logit = logits_[static_cast<size_t>(token)];
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

// Tokens as likely as the last one are kept too.
void TokenSampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  ids_.resize(logits_.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  if (k == 0 || k >= logits_.size()) return;
  weights_ = logits_;
  const auto at = weights_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(weights_.begin(), at, weights_.end(), std::greater<>());
  const float least = *at;
  size_t kept = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] < least) continue;
    ids_[kept] = static_cast<int32_t>(i);
    logits_[kept++] = logits_[i];
  }
  ids_.resize(kept);
  logits_.resize(kept);
}

void TokenSampler::weigh() {
  const float greatest = greatest_of(logits_);
  // Finite, so that the greatest logit keeps its weight.
  const auto factor = static_cast<float>(std::min(1 / options_.temperature, 1e30));
  weights_.resize(logits_.size());
  for (size_t i = 0; i < logits_.size(); ++i) {
    weights_[i] = exp_of((logits_[i] - greatest) * factor);
  }
}

// A token stays where those before it have less than top_p. Few do, as a rule: only so many are
// sorted as it takes.
void TokenSampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  order_.resize(logits_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  size_t sorted = 0, kept = 0;
  double before = 0;
  while (kept < order_.size() && (kept == 0 || before < options_.top_p * total)) {
    if (kept == sorted) {
      sorted = std::min(order_.size(), std::max<size_t>(64, 8 * sorted));
      std::partial_sort(order_.begin() + static_cast<std::ptrdiff_t>(kept),
                        order_.begin() + static_cast<std::ptrdiff_t>(sorted), order_.end(),
                        likelier);
    }
    before += weights_[static_cast<size_t>(order_[kept++])];
  }
  std::vector<float> weights(kept);
  std::vector<int32_t> ids(kept);
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = weights_[static_cast<size_t>(order_[i])];
    ids[i] = ids_[static_cast<size_t>(order_[i])];
  }
  weights_.swap(weights);
  ids_.swap(ids);
}

int32_t TokenSampler::draw(int64_t position) const {
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double left = uniform(options_.seed, stream_, copy_, position) * total;
  for (size_t i = 0; i < weights_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return ids_[i];
  }
  return ids_.back();  // rounding
}

int32_t TokenSampler::next(std::span<const float> logits, int64_t position) {
  if (!all_finite(logits)) {
    fail(ExitCode::diverged, "the model's logits are not finite");
  }
  logits_.assign(logits.begin(), logits.end());
  penalise();
  int32_t token;
  if (options_.temperature == 0) {
    const auto first = std::find(logits_.begin(), logits_.end(), greatest_of(logits_));
    token = static_cast<int32_t>(first - logits_.begin());
  } else {
    keep_top_k();
    weigh();
    keep_top_p();
    token = draw(position);
  }
  note(token);
  return token;
}

}  // namespace dltrain
