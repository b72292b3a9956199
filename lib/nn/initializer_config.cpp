// The initialisers of a configuration. Fans are those of PyTorch: for a weight [out, in, …] in
// files, fan_in = in · (the rest), fan_out = out · (the rest).
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "nn/initializer.h"

namespace dltrain {
namespace {

using Resolved = std::optional<Initializer>;

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& file) {
  if (file.rank() < 2) {
    fail(ExitCode::usage,
         "this initialiser needs a weight of at least two axes, this one has shape {}",
         to_string(file));
  }
  const auto window = static_cast<double>(file.elements(2, file.rank()));
  return {static_cast<double>(file[1]) * window, static_cast<double>(file[0]) * window};
}

Initializer with_deviation(Initializer::Kind distribution, double deviation) {
  return {distribution,
          distribution == Initializer::uniform ? std::sqrt(3.0) * deviation : deviation};
}

struct LayerDefault final : InitializerConfig {
  Resolved resolve(const Shape&) const override { return {}; }
};

enum class Fan : uint8_t { in, out };

// He, Zhang, Ren & Sun 2015: variance gain² / fan.
template <Initializer::Kind distribution>
struct He final : InitializerConfig {
  Fan mode = Fan::in;
  double gain = std::numbers::sqrt2;

  void describe(Fields& f) override {
    f.choice("mode", mode,
             {{"fan_in", Fan::in, "keeps the variance of activations"},
              {"fan_out", Fan::out, "keeps the variance of gradients"}},
             {.doc = "The fan that the variance is divided by"});
    f.number("gain", gain,
             {.doc = "√2 for relu and similar activations, 1 for linear", .above = 0});
  }
  Resolved resolve(const Shape& file) const override {
    const Fans fans = fans_of(file);
    const double deviation = gain / std::sqrt(mode == Fan::in ? fans.in : fans.out);
    return with_deviation(distribution, deviation);
  }
};

// Glorot & Bengio 2010: variance 2·gain² / (fan_in + fan_out).
template <Initializer::Kind distribution>
struct Xavier final : InitializerConfig {
  double gain = 1;

  void describe(Fields& f) override {
    f.number("gain", gain, {.doc = "Multiplies the standard deviation", .above = 0});
  }
  Resolved resolve(const Shape& file) const override {
    const Fans fans = fans_of(file);
    const double deviation = gain * std::sqrt(2.0 / (fans.in + fans.out));
    return with_deviation(distribution, deviation);
  }
};

template <Initializer::Kind distribution>
struct Normal final : InitializerConfig {
  double std = 0.02;
  double mean = 0;

  void describe(Fields& f) override {
    f.number("std", std, {.doc = "Standard deviation", .min = 0, .known_as = {"stddev", "sigma"}});
    f.number("mean", mean, {.doc = "Added to every value"});
  }
  Resolved resolve(const Shape&) const override { return Initializer{distribution, std, mean}; }
};

// Initialises the last weight of each branch that adds to the residual stream of a transformer, two
// a layer (Radford et al. 2019). The variance of the sum then does not grow with the number of
// layers.
struct ResidualNormal final : InitializerConfig {
  double std = 0.02;
  int64_t num_layers = 0;

  void describe(Fields& f) override {
    f.number("std", std, {.doc = "Standard deviation of other weights", .min = 0});
    f.integer("num_layers", num_layers,
              {.doc = "Layers of the transformer", .required = true, .min = 1, .max = 1e6});
  }
  Resolved resolve(const Shape&) const override {
    return Initializer{Initializer::normal, std / std::sqrt(2.0 * static_cast<double>(num_layers))};
  }
};

struct Uniform final : InitializerConfig {
  double low = -0.1;
  double high = 0.1;

  void describe(Fields& f) override {
    f.number("low", low, {.doc = "Least value"});
    f.number("high", high, {.doc = "Greatest value"});
  }
  void validate(Diagnostics& diagnostics) const override {
    if (low > high) diagnostics.add(*this, "low", "low is above high");
  }
  Resolved resolve(const Shape&) const override {
    return Initializer{Initializer::uniform, (high - low) / 2, (high + low) / 2};
  }
};

struct Orthogonal final : InitializerConfig {
  double gain = 1;

  void describe(Fields& f) override {
    f.number("gain", gain, {.doc = "Length of its rows (of its columns, if there are fewer)"});
  }
  Resolved resolve(const Shape& file) const override {
    fans_of(file);
    return Initializer{.kind = Initializer::orthogonal, .value = gain, .rows = file[0]};
  }
};

struct Constant final : InitializerConfig {
  double value = 0;

  void describe(Fields& f) override {
    f.number("value", value, {.doc = "Value of every element", .required = true});
  }
  Resolved resolve(const Shape&) const override {
    return Initializer{Initializer::constant, value};
  }
};

template <int value>
struct Fixed final : InitializerConfig {
  Resolved resolve(const Shape&) const override {
    return Initializer{Initializer::constant, value};
  }
};

}  // namespace

const KindTable<InitializerConfig>& initializer_table() {
  static const KindTable<InitializerConfig> table{
      "initializer",
      {{"default", "the layer's default, as in PyTorch", make_kind_of<LayerDefault>},
       {"he_normal", "normal, variance gain²/fan (He and others 2015)",
        make_kind_of<He<Initializer::normal>>},
       {"he_uniform", "uniform, variance gain²/fan", make_kind_of<He<Initializer::uniform>>},
       {"xavier_normal", "normal, variance 2·gain²/(fan_in + fan_out) (Glorot & Bengio 2010)",
        make_kind_of<Xavier<Initializer::normal>>},
       {"xavier_uniform", "uniform, variance 2·gain²/(fan_in + fan_out)",
        make_kind_of<Xavier<Initializer::uniform>>},
       {"normal", "normal", make_kind_of<Normal<Initializer::normal>>, "std"},
       {"residual_normal", "normal, std/√(2·num_layers) (Radford and others 2019)",
        make_kind_of<ResidualNormal>, "num_layers"},
       {"truncated_normal", "normal, truncated at two standard deviations",
        make_kind_of<Normal<Initializer::truncated_normal>>, "std"},
       {"uniform", "uniform between low and high", make_kind_of<Uniform>},
       {"orthogonal", "a matrix with orthonormal rows or columns", make_kind_of<Orthogonal>,
        "gain"},
       {"constant", "one value", make_kind_of<Constant>, "value"},
       {"zeros", "0", make_kind_of<Fixed<0>>},
       {"ones", "1", make_kind_of<Fixed<1>>}}};
  return table;
}

}  // namespace dltrain
