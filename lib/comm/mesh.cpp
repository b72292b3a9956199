#include "comm/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  int ranks = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    check_internal(axis.size > 0 && !axis.name.empty(), "axis '{}' of {} ranks", axis.name,
                   axis.size);
    check_internal(std::none_of(axes_.begin(), axes_.begin() + static_cast<ptrdiff_t>(i),
                                [&](const MeshAxis& other) { return other.name == axis.name; }),
                   "two axes '{}'", axis.name);
    check_internal(!__builtin_mul_overflow(ranks, axis.size, &ranks),
                   "a mesh of more ranks than an int can count");
  }
}

namespace {

bool contains_axis(std::string_view axes, std::string_view name) {
  if (axes.empty()) return true;
  axes = axes.substr(0, axes.find(':'));
  for (size_t begin = 0; begin <= axes.size();) {
    const size_t end = std::min(axes.find(',', begin), axes.size());
    if (axes.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

int Mesh::size(std::string_view axes) const {
  int ranks = 1;
  for (const MeshAxis& axis : axes_) ranks *= contains_axis(axes, axis.name) ? axis.size : 1;
  return ranks;
}

int Mesh::coordinate(int rank, std::string_view axes) const {
  int position = 0, stride = 1;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    if (contains_axis(axes, axis->name)) {
      position += rank % axis->size * stride;
      stride *= axis->size;
    }
    rank /= axis->size;
  }
  return position;
}

std::string Mesh::over(std::string_view axes) const {
  std::string out;
  bool all = true;
  for (const MeshAxis& axis : axes_) {
    if (axis.size == 1) continue;
    const bool in = contains_axis(axes, axis.name);
    if (in) out += (out.empty() ? "" : ",") + axis.name;
    all = all && in;
  }
  return all ? "" : out;
}

std::string Mesh::keys(std::string_view axes) const {
  std::string out;
  for (const MeshAxis& axis : axes_) {
    if (axis.size == 1 || !contains_axis(axes, axis.name)) continue;
    const bool data = axis.name == mesh_axes::kReplica || axis.name == mesh_axes::kShard;
    const std::string key = data ? "data" : axis.name == "context_expert" ? "context" : axis.name;
    if (out.ends_with(key)) continue;  // neighbours in the mesh
    out += (out.empty() ? "" : ", ") + key;
  }
  return out;
}

std::vector<int> Mesh::group(int rank, std::string_view axes) const {
  std::vector<int> ranks{0};
  for (const MeshAxis& axis : axes_) {
    const bool in = contains_axis(axes, axis.name);
    const int own = coordinate(rank, axis.name);
    std::vector<int> next;
    for (int outer : ranks) {
      for (int i = in ? 0 : own; i < (in ? axis.size : own + 1); ++i) {
        next.push_back(outer * axis.size + i);
      }
    }
    ranks = std::move(next);
  }
  return ranks;
}

RankCoordinates coordinates_of(const Mesh& mesh, int rank) {
  const auto place = [&](const char* axes) {
    return RankCoordinates::Place{.index = mesh.coordinate(rank, axes), .count = mesh.size(axes)};
  };
  return {.data = place(mesh_axes::kData),
          .context = place(mesh_axes::kContext),
          .tensor = place(mesh_axes::kTensor),
          .pipeline = place(mesh_axes::kPipeline)};
}

MeshGroups::MeshGroups(Collectives& world, const Mesh& mesh, const std::set<std::string>& sets)
    : world_(world) {
  check_internal(mesh.size() == world.size(), "a mesh of {} ranks over {}", mesh.size(),
                 world.size());
  for (const std::string& axes : sets) {
    const std::vector<int> ranks = mesh.group(world.rank(), axes);
    auto& part = parts_[axes];
    // Stages exchange messages at points of the step that differ, unlike all that `world` does.
    const bool own = axes.starts_with(mesh_axes::kPipeline);
    if (own || static_cast<int>(ranks.size()) < world.size()) part = world.split(ranks);
  }
}

Collectives& MeshGroups::along(std::string_view axes) const {
  if (axes.empty()) return world_;
  const auto found = parts_.find(axes);
  check_internal(found != parts_.end(), "there is no group over {}", axes);
  return found->second ? *found->second : world_;
}

std::set<std::string> MeshGroups::sets() const {
  std::set<std::string> out;
  for (const auto& [axes, part] : parts_) out.insert(axes);
  return out;
}

void MeshGroups::settle() const {
  world_.settle();
  for (const auto& [axes, part] : parts_) {
    if (part) part->settle();
  }
}

}  // namespace dltrain
