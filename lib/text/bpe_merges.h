// The merges of byte-pair encoding: a table of pairs of tokens, and an algorithm that applies it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dltrain {

struct BpeMerge {
  uint32_t rank = UINT32_MAX;  // lower ranks merge first; UINT32_MAX: the pair is not merged
  int32_t id = -1;             // of the merged token
};

// A hash table from pairs of ids.
class MergeTable {
 public:
  // Reserves room for this many pairs.
  explicit MergeTable(size_t pairs = 0);
  // Adds a pair or replaces its merge.
  void put(int32_t left, int32_t right, const BpeMerge& merge);
  BpeMerge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key;
    BpeMerge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15ull >> shift_);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

// Merges the tokens of pieces. Holds scratch memory: one per thread.
class Merger {
 public:
  // `table` must outlive it.
  explicit Merger(const MergeTable& table) : table_(table) {}
  // Replaces the ids of one piece by the merged ones and returns their number.
  size_t merge(std::span<int32_t> ids);

 private:
  size_t merge_short(std::span<int32_t> ids);
  size_t merge_long(std::span<int32_t> ids);

  struct Node {
    int32_t before, after;  // neighbours; -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t index;  // of the left one
    int32_t id;     // of the merged token
    // Lowest rank first, then leftmost; a heap has the greatest element on top.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : index > other.index;
    }
  };

  const MergeTable& table_;
  std::vector<BpeMerge> pairs_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace dltrain
