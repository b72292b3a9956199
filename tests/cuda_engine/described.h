// Descriptions of GPUs that are not here, for plans of cuDNN.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "catch.h"

namespace dltrain {

// The text that cuDNN reads, of tests/cuda_engine/devices/<gpu>.json.
inline std::string gpu_description(const std::string& gpu) {
  std::ifstream file(std::string(DLTRAIN_SOURCE_DIR "/tests/cuda_engine/devices/") + gpu + ".json");
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace dltrain
