// The ranks of a run as a grid with named axes, and the groups over sets of axes.
//
// Axes are listed outermost first: neighbours along the last one are neighbouring ranks, which are
// on the same node if possible. The axes are `pipeline` × `replica` × `shard` × `expert` ×
// `context` × `context_expert` × `tensor`: ranks along `pipeline` are the stages of a model
// (parallelism.pipeline), ranks along `context` and `context_expert` have parts of the tokens of
// each sample (parallelism.context), ranks along `tensor` shards of each layer
// (parallelism.tensor), and all of these have the same samples; the others are the data-parallel
// ranks. Ranks along `expert` and `context_expert` have experts of their own (parallelism.expert).
// Ranks along `shard`, `expert`, `context` and `context_expert` hold the parts of one state and
// ranks along `replica` the same part (parallelism.zero_shard_size). The attribute kOver of an op
// names the axes over which it reduces or gathers (Mesh::over); without it the op involves all
// ranks.
//
// A pipeline has two groups over the same ranks, so that a gradient does not wait for the message
// of an activation that its receiver does not read yet: the text after a colon distinguishes them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/collectives.h"

namespace dltrain {

namespace mesh_axes {
inline constexpr const char* kReplica = "replica";
inline constexpr const char* kShard = "shard";
inline constexpr const char* kPipeline = "pipeline";           // passes/stage_cut.h
inline constexpr const char* kPipelineBack = "pipeline:back";  // for gradients
inline constexpr const char* kTensor = "tensor";
// Sets of axes: ranks with parts of the tokens (passes/context_cut.h), and of the experts
// (passes/expert_cut.h).
inline constexpr const char* kContext = "context,context_expert";
inline constexpr const char* kExpert = "expert,context_expert";
// Ranks with different samples, ranks whose gradients, statistics and metrics are added up, ranks
// that hold the parts of one state, and ranks that add up an evaluation.
inline constexpr const char* kData = "replica,shard,expert";
inline constexpr const char* kSums = "replica,shard,expert,context,context_expert";
inline constexpr const char* kState = "shard,expert,context,context_expert";
inline constexpr const char* kDataAndPipeline =
    "pipeline,replica,shard,expert,context,context_expert";
// For the state of experts: ranks that add up its gradients, and ranks that hold its parts.
inline constexpr const char* kSumsOfExpert = "replica,shard,context";
inline constexpr const char* kStateOfExpert = "shard,context";
// Along these, ranks have different parts of the parameters.
inline constexpr const char* kCut = "expert,context_expert,tensor";
inline constexpr const char* kCutAndPipeline = "pipeline,expert,context_expert,tensor";
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

  const std::vector<MeshAxis>& axes() const { return axes_; }
  // A set of axes is a text: their names in the order of the mesh, separated by commas; "" is all
  // axes. The number of ranks along a set (1 for axes that do not exist), and the position of a
  // rank among those of its group().
  int size(std::string_view axes = "") const;
  int coordinate(int rank, std::string_view axes) const;
  // Returns the set without axes of one rank, and "" if it then contains all other axes.
  std::string over(std::string_view axes) const;
  // Returns the keys of `parallelism` for the axes of a set that have several ranks: "data,
  // tensor".
  std::string keys(std::string_view axes) const;
  // The ranks that differ from `rank` in these axes only, and `rank`, ascending. They are numbered
  // by their coordinates in these axes.
  std::vector<int> group(int rank, std::string_view axes) const;

 private:
  std::vector<MeshAxis> axes_;
};

// The place of a rank along the mesh. What depends on the rank follows from it: the samples of a
// rank and its share of an evaluation from `data`, its tokens of them from `context`, its shards of
// layers from `tensor`, its layers from `pipeline`.
struct RankCoordinates {
  struct Place {
    int index = 0, count = 1;
  };
  Place data, context, tensor, pipeline;
};
RankCoordinates coordinates_of(const Mesh& mesh, int rank);

// The groups of one rank: `world`, and those over the sets of axes that the plans use. All ranks
// make them at the same point and in the same order, because they are split from `world`, which
// outlives them.
class MeshGroups {
 public:
  MeshGroups(Collectives& world, const Mesh& mesh, const std::set<std::string>& sets);

  // The group over a set of axes. Empty: all ranks.
  Collectives& along(std::string_view axes) const;
  std::set<std::string> sets() const;
  // Collectives::settle() of all groups.
  void settle() const;

 private:
  Collectives& world_;
  std::map<std::string, std::unique_ptr<Collectives>, std::less<>> parts_;  // null: all ranks
};

}  // namespace dltrain
