// A small but complete configuration for the tests: every kind of key, kinds that nest, aliases.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"

namespace dltrain::example {

struct Optimizer : ConfigVariant {
  double learning_rate = 1e-3;
  double weight_decay = 0;
  void describe(Fields& f) override {
    f.number("learning_rate", learning_rate,
             {.doc = "Peak learning rate", .above = 0, .known_as = {"lr"}});
    f.number("weight_decay", weight_decay, {.doc = "Decoupled weight decay", .min = 0});
  }
};

struct AdamW : Optimizer {
  std::array<double, 2> betas{0.9, 0.999};
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.numbers("betas", betas, {.doc = "Decay of both moments", .min = 0, .below = 1});
  }
};

struct Sgd : Optimizer {
  double momentum = 0;
  bool nesterov = false;
  void describe(Fields& f) override {
    Optimizer::describe(f);
    f.number("momentum", momentum, {.doc = "Momentum", .min = 0, .below = 1});
    f.boolean("nesterov", nesterov, {.doc = "Look ahead"});
  }
};

inline const KindTable<Optimizer>& optimizer_table() {
  static const KindTable<Optimizer> table{
      "optimizer",
      {{"adamw", "Adam with decoupled weight decay", make_kind_of<AdamW>},
       {"sgd", "Gradient descent with momentum", make_kind_of<Sgd>}}};
  return table;
}

struct Layer : ConfigVariant {};
const KindTable<Layer>& layer_table();

struct Relu : Layer {
  void describe(Fields&) override {}
};
struct Linear : Layer {
  int64_t features = 0;
  bool bias = true;
  void describe(Fields& f) override {
    f.integer("features", features,
              {.doc = "Outputs", .required = true, .min = 1, .known_as = {"out_features"}});
    f.boolean("bias", bias, {.doc = "Add a bias"});
  }
};
struct Dropout : Layer {
  double probability = 0.5;
  void describe(Fields& f) override {
    f.number("probability", probability,
             {.doc = "Share of elements dropped", .min = 0, .below = 1});
  }
};
struct Convolution : Layer {
  std::vector<int64_t> kernel_size{3, 3};
  void describe(Fields& f) override {
    f.integers(
        "kernel_size", kernel_size,
        {.doc = "Height and width", .min = 1, .min_size = 1, .max_size = 2, .scalar_ok = true});
  }
};
struct Residual : Layer {
  std::vector<std::unique_ptr<Layer>> layers;
  void describe(Fields& f) override {
    f.list_of("layers", layers, layer_table(), {.doc = "The branch", .required = true});
  }
};

inline const KindTable<Layer>& layer_table() {
  static const KindTable<Layer> table{
      "layer",
      {{"linear", "Matrix product and bias", make_kind_of<Linear>, "features"},
       {"relu", "max(x, 0)", make_kind_of<Relu>},
       {"dropout", "Zeroes elements at random", make_kind_of<Dropout>, "probability"},
       {"conv2d", "Convolution", make_kind_of<Convolution>, "kernel_size"},
       {"residual", "x + layers(x)", make_kind_of<Residual>, "layers"}}};
  return table;
}

enum class Reduction { fast, fixed };

struct EarlyStopping {
  std::string metric = "loss";
  int64_t patience = 5;
  void describe(Fields& f) {
    f.text("metric", metric, {.doc = "What is watched"});
    f.integer("patience", patience, {.doc = "Evaluations without progress", .min = 1});
  }
};

struct Training : ConfigObject {
  int64_t global_batch_size = 0;
  std::optional<IntegerOrAuto> micro_batch_size;
  std::optional<int64_t> max_steps;
  Reduction reduction = Reduction::fast;
  std::vector<std::string> freeze;
  std::optional<EarlyStopping> early_stopping;
  void describe(Fields& f) {
    f.integer("global_batch_size", global_batch_size,
              {.doc = "Samples a step", .required = true, .min = 1, .known_as = {"batch_size"}});
    f.integer("micro_batch_size", micro_batch_size,
              {.doc = "Samples of a rank at a time", .min = 1});
    f.integer("max_steps", max_steps, {.doc = "Steps", .min = 0});
    f.choice("reduction", reduction,
             {{"fast", Reduction::fast}, {"fixed", Reduction::fixed, "Bit-identical"}},
             {.doc = "Order of sums"});
    f.texts("freeze", freeze, {.doc = "Patterns of names"});
    f.section("early_stopping", early_stopping, {.doc = "Stops without progress"});
  }
  void validate(Diagnostics& diagnostics) const {
    if (!micro_batch_size) return;
    const auto* micro = std::get_if<int64_t>(&*micro_batch_size);
    if (micro && global_batch_size % *micro != 0) {
      diagnostics.add(*this, "micro_batch_size",
                      fmt::format("training.micro_batch_size {} does not divide "
                                  "training.global_batch_size {}",
                                  *micro, global_batch_size));
    }
  }
};

struct Model : ConfigObject {
  std::vector<std::unique_ptr<Layer>> layers;
  std::optional<std::string> init_from;
  TextPairs rename;
  void describe(Fields& f) {
    f.list_of("layers", layers, layer_table(), {.doc = "Applied in order", .required = true});
    f.text("init_from", init_from, {.doc = "File of weights"});
    f.text_map("rename", rename, {.doc = "Foreign names"});
  }
};

struct Group {
  std::string pattern;
  std::optional<double> weight_decay;
  static constexpr std::string_view kBareKey = "pattern";
  void describe(Fields& f) {
    f.text("pattern", pattern, {.doc = "Of parameter names", .required = true});
    f.number("weight_decay", weight_decay, {.doc = "Instead of the common one", .min = 0});
  }
};

struct Experiment : ConfigObject {
  std::string name = "run";
  uint64_t seed = 0;
  Model model;
  std::unique_ptr<Optimizer> optimizer = make_kind(optimizer_table(), "adamw");
  std::unique_ptr<Optimizer> second;
  std::vector<Group> groups;
  std::vector<EarlyStopping> watches;
  Training training;
  void describe(Fields& f) {
    f.text("name", name, {.doc = "Name of the run"});
    f.integer("seed", seed, {.doc = "Of all random numbers"});
    f.section("model", model, {.doc = "What is trained", .required = true});
    f.one_of("optimizer", optimizer, optimizer_table(), {.doc = "The update rule"});
    f.one_of("second", second, optimizer_table(), {.doc = "Another one"});
    f.list("groups", groups, {.doc = "Parameters with settings of their own"});
    f.list("watches", watches, {.doc = "Watched metrics"});
    f.section("training", training, {.doc = "How long and how large", .required = true});
  }
};

}  // namespace dltrain::example
