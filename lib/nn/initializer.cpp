#include "nn/initializer.h"

#include <cmath>
#include <numbers>
#include <string>

#include "base/philox.h"

namespace dltrain {

void initialize(const Initializer& initializer, uint64_t seed, std::string_view name,
                std::span<float> out) {
  const uint64_t stream = random_stream("initial value of " + std::string(name));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (initializer.kind) {
      case Initializer::constant:
        out[i] = static_cast<float>(initializer.value);
        break;
      case Initializer::uniform:
        out[i] = static_cast<float>((2.0 * random_uniform(seed, stream, 0, i) - 1.0) *
                                    initializer.value);
        break;
      case Initializer::normal: {
        // Box & Muller 1958; 1 − u keeps the logarithm finite.
        const double u = 1.0 - random_uniform(seed, stream, 0, 2 * i);
        const double v = random_uniform(seed, stream, 0, 2 * i + 1);
        out[i] = static_cast<float>(std::sqrt(-2.0 * std::log(u)) *
                                    std::cos(2.0 * std::numbers::pi * v) * initializer.value);
        break;
      }
    }
  }
}

}  // namespace dltrain
