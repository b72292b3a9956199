// The JSON of a safetensors header as events, into plain values, without building a JSON document
// (a hostile header of 100 MB would become many times that). Used by safetensors.cpp only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

struct RawSafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
  uint64_t header_offset = 0;  // where the entry's value ends in the JSON
};

struct RawSafetensorsHeader {
  std::vector<RawSafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Returns an empty string, or what is wrong, with the offset in `json` where it was found. Names
// are unique afterwards and every entry has dtype, shape and data_offsets; their values are
// unchecked.
std::string read_safetensors_json(std::string_view json, RawSafetensorsHeader& result,
                                  uint64_t& error_offset);

}  // namespace dltrain
