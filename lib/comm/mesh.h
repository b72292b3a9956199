// The ranks of a run as a grid with named axes, and the groups along them.
//
// Axes are listed outermost first: neighbours along the last one are neighbouring ranks, which
// share a node as far as they can. Today there are two: `replica` × `shard`
// (parallelism.zero_shard_size): ranks along `shard` hold the parts of one state, ranks along
// `replica` hold the same part. Ops say the axis over which they reduce or gather in an attribute
// (kOver); without one they concern all ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/collectives.h"

namespace dltrain {

namespace mesh_axes {
inline constexpr const char* kReplica = "replica";
inline constexpr const char* kShard = "shard";
}  // namespace mesh_axes

// The attribute of collective ops.
inline constexpr const char* kOver = "over";

struct MeshAxis {
  std::string name;
  int size = 1;
};

class Mesh {
 public:
  // One rank. Names must differ, sizes be positive and their product an int; else it is a bug.
  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes);

  int size() const;  // ranks
  const std::vector<MeshAxis>& axes() const { return axes_; }
  // Extent of an axis, 1 where there is none of that name, and the place of a rank along it.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;
  // The ranks that differ from `rank` in this axis at most, ascending. Empty name: all ranks.
  std::vector<int> group(int rank, std::string_view axis) const;

 private:
  int stride(size_t axis) const;
  std::vector<MeshAxis> axes_;
};

// The groups of one rank: `world` itself, and a part of it along each axis. Every rank makes them
// at the same place, since they are split from `world`, which outlives them.
class MeshGroups {
 public:
  MeshGroups(Collectives& world, const Mesh& mesh);

  // The group along an axis; empty: all ranks. An axis that the mesh has not is a bug.
  Collectives& along(std::string_view axis) const;

 private:
  Collectives& world_;
  std::map<std::string, std::unique_ptr<Collectives>, std::less<>> parts_;  // null: all ranks
};

}  // namespace dltrain
