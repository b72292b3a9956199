// Names and shapes of tensors as another program has them, recorded under tests/golden.
#pragma once

#include <fstream>
#include <map>
#include <set>
#include <string>

namespace dltrain {

// "conv1.weight [64, 3, 7, 7]": one line a tensor, for each model of tests/golden/<folder>.
inline std::map<std::string, std::set<std::string>> recorded_names(const std::string& folder) {
  std::ifstream file(DLTRAIN_SOURCE_DIR "/tests/golden/" + folder + "/names.txt");
  std::map<std::string, std::set<std::string>> out;
  std::string line, name;
  while (std::getline(file, line)) {
    if (line.starts_with("[")) {
      name = line.substr(1, line.size() - 2);
    } else {
      out[name].insert(line);
    }
  }
  return out;
}

}  // namespace dltrain
