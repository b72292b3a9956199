#include "comm/mesh.h"

#include <algorithm>
#include <numeric>

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

int Mesh::size() const {
  return std::accumulate(axes_.begin(), axes_.end(), 1,
                         [](int ranks, const MeshAxis& axis) { return ranks * axis.size; });
}

int Mesh::size(std::string_view axis) const {
  for (const MeshAxis& a : axes_) {
    if (a.name == axis) return a.size;
  }
  return 1;
}

// The distance between neighbours along an axis.
int Mesh::stride(size_t axis) const {
  int stride = 1;
  for (size_t i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].size;
  return stride;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return rank / stride(i) % axes_[i].size;
  }
  return 0;
}

std::vector<int> Mesh::group(int rank, std::string_view axis) const {
  std::vector<int> ranks;
  if (axis.empty()) {
    ranks.resize(static_cast<size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name != axis) continue;
    const int first = rank - coordinate(rank, axis) * stride(i);
    for (int k = 0; k < axes_[i].size; ++k) ranks.push_back(first + k * stride(i));
    return ranks;
  }
  return {rank};
}

MeshGroups::MeshGroups(Collectives& world, const Mesh& mesh) : world_(world) {
  check_internal(mesh.size() == world.size(), "a mesh of {} ranks over {}", mesh.size(),
                 world.size());
  for (const MeshAxis& axis : mesh.axes()) {
    auto& part = parts_[axis.name];
    if (axis.size < world.size()) part = world.split(mesh.group(world.rank(), axis.name));
  }
}

Collectives& MeshGroups::along(std::string_view axis) const {
  if (axis.empty()) return world_;
  const auto found = parts_.find(axis);
  check_internal(found != parts_.end(), "the mesh has no axis {}", axis);
  return found->second ? *found->second : world_;
}

void MeshGroups::settle() const {
  world_.settle();
  for (const auto& [axis, part] : parts_) {
    if (part) part->settle();
  }
}

}  // namespace dltrain
