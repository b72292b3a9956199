#include "experiment/sweep_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "config/scalar.h"
#include "config/suggest.h"
#include "config/tree.h"

namespace dltrain {
namespace {

constexpr const char* kParametersSchema = R"({"type": "object", "additionalProperties": {"anyOf": [
  {"type": "array", "minItems": 1},
  {"type": "object", "additionalProperties": false, "properties": {
    "values": {"type": "array", "minItems": 1},
    "range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    "log": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    "integer": {"type": "boolean"}, "points": {"type": "integer", "minimum": 2}}}]}})";

// Replaces the elements of a list of values by their texts.
void quote_values(ConfigNode& list) {
  for (ConfigNode& item : list.items) {
    item = ConfigNode::make_scalar(flow_text(item), item.location, ConfigNode::Style::quoted);
  }
}

}  // namespace

void SweepParameter::describe(Fields& f) {
  f.text("key", key, {.doc = "The key that is varied", .required = true});
  f.texts("values", values, {.doc = "The values to choose from"});
  f.numbers("range", range,
            {.doc = "Smallest and greatest value, all equally likely",
             .known_as = {"min", "max", "low", "high", "uniform"}});
  f.numbers("log", log,
            {.doc = "Smallest and greatest value, their logarithms equally likely",
             .above = 0,
             .known_as = {"log_uniform", "loguniform", "log_range"}});
  f.boolean("integer", integer, {.doc = "Only whole numbers of the range"});
  f.integer("points", points,
            {.doc = "Values of the range on a grid, both ends included", .min = 2, .max = 10000});
}

void SweepParameter::validate(Diagnostics& diagnostics) const {
  if (int(!values.empty()) + int(range.has_value()) + int(log.has_value()) != 1) {
    diagnostics.add(location,
                    "the parameter {} needs one of values: [a, b, c], range: [low, high] and log: "
                    "[low, high]",
                    key);
    return;
  }
  if (!is_range()) {
    if (integer || points) {
      diagnostics.add(location, "{} of {} applies to a range, not to values",
                      integer ? "integer" : "points", key);
    }
    const std::set<std::string> different(values.begin(), values.end());
    if (different.size() < values.size()) {
      diagnostics.add(*this, "values", "{} has a value twice", key);
    }
    return;
  }
  const auto& [low, high] = limits();
  const bool finite = std::isfinite(low) && std::isfinite(high);
  if (!finite || low >= high) {
    diagnostics.add(*this, log ? "log" : "range", "{}: {:g} is not below {:g}", key, low, high);
  } else if (integer && (std::floor(low) != low || std::floor(high) != high || high > 1e15)) {
    diagnostics.add(*this, log ? "log" : "range", "{} is an integer; its limits are not", key);
  }
}

void SweepRoles::describe(Fields& f) {
  f.texts("scientific", scientific,
          {.doc = "Parameters whose effect the sweep shall show: the result for each of their "
                  "values is the best over the nuisance parameters",
           .scalar_ok = true});
  f.texts("nuisance", nuisance,
          {.doc = "Parameters that only need to be good; all parameters that are not scientific",
           .scalar_ok = true});
}

bool SweepConfig::rewrite(ConfigNode& map, Diagnostics& diagnostics) {
  ConfigNode* parameters = map.find("parameters");
  if (parameters == nullptr) return true;
  if (!parameters->is_map()) {
    diagnostics.add(parameters->location,
                    "expected a map of keys to values in sweep.parameters, got {}",
                    describe_found(*parameters));
    return false;
  }
  ConfigNode list;
  list.kind = ConfigNode::Kind::list;
  list.location = parameters->location;
  for (size_t i = 0; i < parameters->keys.size(); ++i) {
    ConfigNode& value = parameters->items[i];
    const ConfigNode::Key& key = parameters->keys[i];
    if (!value.is_map() && !value.is_list()) {
      diagnostics.add(
          value.location,
          "expected values [a, b, c], {{range: [low, high]}} or {{log: [low, high]}} for "
          "{}, got {}",
          key.text, describe_found(value));
      continue;
    }
    ConfigNode item = value.is_map() ? value : ConfigNode::make_map(key.location);
    if (value.is_list()) item.set({"values", value.location}, value);
    if (ConfigNode* values = item.find("values"); values != nullptr && values->is_list()) {
      quote_values(*values);
    }
    for (const char* range : {"range", "log"}) {
      const ConfigNode* limits = item.find(range);
      if (limits == nullptr || !limits->is_list() || limits->items.size() == 2) continue;
      diagnostics.add_cause(limits->location, "{} of {} needs two numbers, low and high", range,
                            key.text);
    }
    item.set({"key", key.location},
             ConfigNode::make_scalar(key.text, key.location, ConfigNode::Style::quoted));
    item.location = key.location;
    item.location.path = "sweep.parameters." + key.text;
    list.items.push_back(std::move(item));
  }
  map.erase("parameters");
  ConfigNode::Key key{"parameter_list", list.location};
  map.set(std::move(key), std::move(list));
  return true;
}

void SweepConfig::describe(Fields& f) {
  f.text("metric", metric,
         {.doc = "The result that ranks the trials: loss, a metric of training or evaluations "
                 "(eval_accuracy, best_eval_loss), seconds, training_seconds, step_ms_median, "
                 "step_ms_min, first_step_ms, data_wait_ms, peak_rss_mib, arena_bytes or "
                 "flops_per_step; absent: eval_loss, or loss without evaluation data"});
  f.choice("mode", mode,
           {{"min", MetricMode::min, "smaller is better"},
            {"max", MetricMode::max, "greater is better"}},
           {.doc = "Absent: min for loss, errors, perplexity, times and memory, max for other "
                   "metrics",
            .known_as = {"goal", "direction"}});
  f.choice("search", search,
           {{"grid", SearchKind::grid, "all combinations"},
            {"random", SearchKind::random, "independent draws"},
            {"quasi_random", SearchKind::quasi_random,
             "a shifted Sobol sequence, which covers the space more evenly than random draws"},
            {"halving", SearchKind::halving,
             "successive halving (Jamieson & Talwalkar 2016): quasi-random trials begin with few "
             "steps, and the best go on from their checkpoints"},
            {"tpe", SearchKind::tpe,
             "tree-structured Parzen estimator (Bergstra et al. 2011): ten quasi-random trials, "
             "then values like those of the best trials"}},
           {.doc = "How values are chosen", .known_as = {"method", "sampler", "algorithm"}});
  f.integer("trials", trials,
            {.doc = "Number of combinations; required unless search is grid",
             .min = 1,
             .max = 100000,
             .known_as = {"n_trials", "num_trials", "num_samples", "count"}});
  f.integer("seed", seed, {.doc = "Seed of the draws", .min = 0});
  f.integer("repeats", repeats,
            {.doc = "Runs of each trial, with the seeds s, s + 1, … of the experiment: the ranking "
                    "shows mean and standard deviation",
             .min = 1,
             .max = 1000});
  f.integer("parallel", parallel,
            {.doc = "Runs at a time on this machine, which share its CPUs",
             .min = 1,
             .max = 1000,
             .known_as = {"jobs", "n_jobs", "max_concurrent"}});
  f.integer("ranks", ranks, {.doc = "Ranks of a run", .min = 1, .max = 1024});
  f.integers("gpus", gpus,
             {.doc = "GPUs by index, shared out among the runs at a time; empty: all runs use the "
                     "device of the experiment",
              .min = 0});
  f.integer("reduction", reduction,
            {.doc = "Halving: one trial of so many goes on to the next round, with so many times "
                    "the steps",
             .min = 2,
             .max = 100});
  f.integer("min_steps", min_steps,
            {.doc = "Halving: steps of the first round; absent: so few that one trial trains to "
                    "the end",
             .min = 1});
  f.rewritten("parameters", {.type = "map of keys to values", .schema = kParametersSchema},
              {.doc = "The keys that are varied, each with [a, b, c], {values: [a, b, c]}, {range: "
                      "[low, high]} or {log: [low, high]}; see parameter_list"});
  f.list("parameter_list", parameters, {.doc = "The same as a list"});
  f.section("roles", roles, {.doc = "What the parameters are for; only the ranking uses it"});
}

void SweepConfig::validate(Diagnostics& diagnostics) const {
  if (parameters.empty()) {
    diagnostics.add(location,
                    "sweep needs parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}");
  }
  std::vector<std::string> keys;
  for (const SweepParameter& parameter : parameters) {
    if (std::ranges::find(keys, parameter.key) != keys.end()) {
      diagnostics.add(parameter.location, "the parameter {} is given twice", parameter.key);
    }
    if (parameter.key == "seed") {
      diagnostics.add(
          parameter.location,
          "seed is no parameter of a sweep; `repeats: N` trains each trial with N seeds "
          "and ranks the means");
    }
    if (parameter.key.starts_with("sweep")) {
      diagnostics.add(parameter.location, "a sweep cannot vary {}", parameter.key);
    }
    if (search == SearchKind::grid && parameter.is_range() && !parameter.points) {
      diagnostics.add(parameter.location, "a grid needs {{values: […]}} or points: N for {}",
                      parameter.key);
    }
    if (search != SearchKind::grid && parameter.points) {
      diagnostics.add(parameter, "points", "points applies to search: grid only");
    }
    keys.push_back(parameter.key);
  }
  if (search == SearchKind::grid && trials) {
    diagnostics.add(*this, "trials", "a grid has all combinations; leave trials out");
  }
  if (search != SearchKind::grid && !trials) {
    diagnostics.add(location, "sweep needs trials: N, or search: grid for all combinations");
  }
  // A resolved configuration has the default of `reduction` for every search.
  if (search != SearchKind::halving && (reduction != SweepConfig().reduction || min_steps)) {
    diagnostics.add(*this, min_steps ? "min_steps" : "reduction", "{} applies to search: halving",
                    min_steps ? "min_steps" : "reduction");
  }
  if (!gpus.empty() && static_cast<int64_t>(gpus.size()) < parallel * ranks) {
    diagnostics.add(*this, "gpus", "{} runs of {} ranks at a time need {} GPUs, not {}", parallel,
                    ranks, parallel * ranks, gpus.size());
  }
  if (!roles) return;
  for (const auto* list : {&roles->scientific, &roles->nuisance}) {
    for (const std::string& key : *list) {
      if (std::ranges::find(keys, key) != keys.end()) continue;
      const std::string near = nearest_name(key, keys);
      diagnostics.add(*roles, list == &roles->scientific ? "scientific" : "nuisance",
                      "{} is no parameter of this sweep{}", key,
                      near.empty() ? "" : "; did you mean " + near + "?");
    }
  }
  for (const std::string& key : roles->nuisance) {
    if (is_scientific(key)) {
      diagnostics.add(*roles, "nuisance", "{} cannot be scientific and nuisance", key);
    }
  }
}

bool SweepConfig::is_scientific(const std::string& key) const {
  return roles && std::ranges::find(roles->scientific, key) != roles->scientific.end();
}

}  // namespace dltrain
