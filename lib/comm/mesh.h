// The ranks of a run as a grid with named axes, and the groups along them.
//
// Axes are listed outermost first: neighbours along the last one are neighbouring ranks, which are
// on the same node if possible. There are two axes, `replica` × `shard`
// (parallelism.zero_shard_size): ranks along `shard` hold the parts of one state, ranks along
// `replica` hold the same part. The attribute kOver of an op names the axis over which it reduces
// or gathers; without it the op involves all ranks.
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
inline constexpr const char* kPipeline = "pipeline";  // the stages of a model (passes/stage_cut.h)
}  // namespace mesh_axes

// The attribute of collective ops.
inline constexpr const char* kOver = "over";

struct MeshAxis {
  std::string name;
  int size = 1;
};

class Mesh {
 public:
  Mesh() = default;  // one rank
  // Names must differ, sizes must be positive, and their product must fit an int.
  explicit Mesh(std::vector<MeshAxis> axes);

  int size() const;  // ranks
  const std::vector<MeshAxis>& axes() const { return axes_; }
  // The size of an axis (1 if there is none of that name), and the position of a rank along it.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;
  // The ranks that differ from `rank` in this axis only, and `rank`, ascending. Empty: all ranks.
  std::vector<int> group(int rank, std::string_view axis) const;

 private:
  int stride(size_t axis) const;
  std::vector<MeshAxis> axes_;
};

// The groups of one rank: `world`, and a part of it along each axis. All ranks make them at the
// same point, because they are split from `world`. `world` outlives them.
class MeshGroups {
 public:
  MeshGroups(Collectives& world, const Mesh& mesh);

  // The group along an axis of the mesh. Empty: all ranks.
  Collectives& along(std::string_view axis) const;
  // Collectives::settle() of all groups.
  void settle() const;

 private:
  Collectives& world_;
  std::map<std::string, std::unique_ptr<Collectives>, std::less<>> parts_;  // null: all ranks
};

}  // namespace dltrain
