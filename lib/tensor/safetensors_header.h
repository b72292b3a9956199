// Reads the JSON of a safetensors header, as events, into plain values. It builds no JSON document,
// because a hostile header of 100 MB would become many times that. Used by safetensors.cpp only.
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
  uint64_t header_offset = 0;  // of the end of the entry's value in the JSON
};

struct RawSafetensorsHeader {
  std::vector<RawSafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Returns a description of the first problem and sets its offset in `json`; empty: there is none.
// Names are then unique and every entry has dtype, shape and data_offsets, whose values are
// unchecked.
std::string read_safetensors_json(std::string_view json, RawSafetensorsHeader& result,
                                  uint64_t& error_offset);

}  // namespace dltrain
