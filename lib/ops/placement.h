// Describes how tensors are laid out over the ranks of one axis of the mesh.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dltrain {

// A part of a dimension that is cut over the ranks by itself: rank r has its elements
// [r · length, (r + 1) · length), the last rank those that remain. Heads and other groups of
// elements that belong together are not separated, because `length` is a multiple of their size.
// With copies, so many neighbouring ranks have the same elements (fewer heads of keys and values
// than ranks): r counts their groups. The gradient of a copy is partial, as the copies add up to
// it.
struct CutPart {
  int64_t extent = 0, length = 0, copies = 1;
  bool operator==(const CutPart&) const = default;
};
using CutParts = std::vector<CutPart>;

struct Placement {
  enum Kind : uint8_t {
    replicated,  // every rank has all of it
    sharded,     // every rank has ranges of one dimension
    partial      // the tensor is the sum of those of the ranks
  };
  Kind kind = replicated;
  int dimension = -1;  // sharded
  // sharded: the parts of the dimension, one after another. A plain dimension has one, a packed one
  // several: queries, keys and values of attention, gate and up of a gated layer. The shard of a
  // rank has its ranges of the parts in the same order.
  CutParts parts = {};

  // Returns this placement for a dimension that has been moved.
  Placement moved_to(int other) const { return {kind, other, parts}; }
  bool operator==(const Placement&) const = default;
};

// The elements of a dimension that a rank has of one part.
struct CutRange {
  int64_t offset = 0, extent = 0;
};
std::vector<CutRange> cut_ranges(const CutParts& parts, int rank);
// The number of elements in all ranges of a rank, and in the whole dimension.
int64_t cut_extent(const CutParts& parts, int rank);
int64_t whole_extent(const CutParts& parts);
bool has_copies(const CutParts& parts);
// Returns whether every rank has elements of every part.
bool is_possible(const CutParts& parts, int ranks);
// The parts of a plain dimension of `extent` groups of `size` elements.
CutParts even_cut(int64_t extent, int ranks, int64_t size = 1);

}  // namespace dltrain
