// What has parameters that weights of files can be written to: an executor, a decoder.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "nn/parameters.h"

namespace dltrain {

class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual const std::vector<ParameterInfo>& weights() const = 0;
  // By name, in memory order (see ParameterInfo::file for the order in files).
  virtual void write_state(std::string_view name, std::span<const std::byte> bytes) = 0;
};

}  // namespace dltrain
