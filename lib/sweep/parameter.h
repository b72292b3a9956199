// The values of a parameter of a sweep as points of the unit interval, in which searches work.
// Ranges map linearly or by their logarithm; N values have a part of length 1/N each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiment/sweep_config.h"

namespace dltrain {

// Returns the value at `unit` in [0, 1] as YAML: reals with four significant digits.
std::string value_at(const SweepParameter& parameter, double unit);
// Returns the point of a value; for one of N values it is the middle of its part. NaN: the text is
// no value of the parameter.
double unit_of(const SweepParameter& parameter, const std::string& value);
// Returns true if values have an order: ranges, and values that are numbers.
bool is_ordered(const SweepParameter& parameter);

// The values on a grid, each once.
std::vector<std::string> grid_values(const SweepParameter& parameter);

// "learning_rate" of "optimizer.learning_rate" if no other parameter has that name.
std::string short_name(const SweepConfig& sweep, const std::string& key);

}  // namespace dltrain
