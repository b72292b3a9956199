// rotary(x [samples, tokens, heads, head_dim]): rotates pairs of elements of every head by an angle
// proportional to the token's position (Su et al. 2021). As in Hugging Face's Llama element i makes
// a pair with element i + dim/2:
//
//   y[i] = x[i]·cos a − x[i + dim/2]·sin a     y[i + dim/2] = x[i + dim/2]·cos a + x[i]·sin a
//   a = token · theta^(−2i/dim)
//
// Attributes: dim (integer, default head_dim; elements after it stay), theta (number, 10000),
// inverse (bool: the inverse rotation; each is the other's gradient), scaling (text) with its
// numbers:
//   "linear"  angles are divided by `factor` (Chen et al. 2023)
//   "llama3"  angles of waves longer than original_max_positions / low_freq_factor are divided by
//             `factor`, those of waves shorter than original_max_positions / high_freq_factor stay,
//             between them linear in the inverse of the wave's length (Llama 3.1)
//
// sinusoidal_positions(x [samples, tokens, width]): y = x + sinusoid of position and channel.
//
// An optional second input of both, i32 [samples], is the position of each sample's first token;
// absent: 0.
#include "ops/positions.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

void check_rotary(SpecSpan inputs, const Attributes& attributes) {
  const int64_t dim = rotary_dim(inputs[0], attributes);
  if (dim < 2 || dim % 2 != 0 || dim > inputs[0].shape[3]) {
    fail(ExitCode::usage,
         "rotary: pairs of elements are rotated, so their number must be even and at most the head "
         "size {}, got {}; the head size is hidden_size / num_heads",
         inputs[0].shape[3], dim);
  }
}

std::vector<ValueId> gradient_rotary(const GradientRequest& r) {
  Attributes attributes = r.attributes;
  attributes.set("inverse", !r.attributes.boolean("inverse"));
  std::vector<ValueId> inputs{r.output_gradients[0]}, out(r.inputs.size(), kNoValue);
  inputs.insert(inputs.end(), r.inputs.begin() + 1, r.inputs.end());
  out[0] = r.emitter.emit1("rotary", inputs, attributes);
  return out;
}

// Heads may be sharded; positions count from the first token.
std::optional<std::vector<Placement>> place_rotary(SpecSpan inputs, const Attributes& attributes,
                                                   std::span<const Placement> p) {
  return p[0].dimension == 2 ? place_rows<1>(inputs, attributes, p) : std::nullopt;
}

std::vector<ValueId> gradient_sinusoidal(const GradientRequest& r) {
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  out[0] = r.output_gradients[0];
  return out;
}

}  // namespace

int64_t rotary_dim(const TensorSpec& x, const Attributes& attributes) {
  return attributes.integer("dim", x.shape[3]);
}

std::vector<double> rotary_frequencies(const Attributes& attributes, int64_t dim) {
  const double theta = attributes.number("theta", 10000);
  const std::string scaling = attributes.text("scaling");
  const double factor = attributes.number("factor", 1);
  const double original = attributes.number("original_max_positions");
  const double low = attributes.number("low_freq_factor");
  const double high = attributes.number("high_freq_factor");
  std::vector<double> out;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double f = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(dim));
    if (scaling == "linear") f /= factor;
    if (scaling == "llama3") {
      const double wave = 2 * std::numbers::pi / f;
      if (wave > original / low) {
        f /= factor;
      } else if (wave >= original / high) {
        const double kept = (original / wave - low) / (high - low);
        f = (1 - kept) * f / factor + kept * f;
      }
    }
    out.push_back(f);
  }
  return out;
}

double sinusoid(int64_t position, int64_t channel, int64_t width) {
  const int64_t even = channel - channel % 2;
  const double i = static_cast<double>(even) / static_cast<double>(width);
  const double angle = static_cast<double>(position) * std::pow(10000, -i);
  return channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

constinit const OpDef kRotaryOp{.name = "rotary",
                                .doc = "rotates pairs of elements of each head by position",
                                .signature = "x[N,T,H,D] first_position[N]:i32? -> y[N,T,H,D]",
                                .check = check_rotary,
                                .gradient = gradient_rotary,
                                .place = place_rotary,
                                .cost = cost_an_element<3>,
                                .in_place_allowed = true,
                                .autocast = CastPolicy::follow,
                                .token_axis = tokens_at_one,
                                .localize_tokens = localize_token_positions};
constinit const OpDef kSinusoidalPositionsOp{
    .name = "sinusoidal_positions",
    .doc = "x + sines and cosines of the token's position",
    .signature = "x[N,T,W] first_position[N]:i32? -> y[N,T,W]",
    .gradient = gradient_sinusoidal,
    .cost = cost_an_element<3>,
    .in_place_allowed = true,
    .autocast = CastPolicy::follow,
    .token_axis = tokens_at_one,
    .localize_tokens = localize_token_positions};

}  // namespace dltrain
