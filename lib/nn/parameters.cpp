#include "nn/parameters.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace dltrain {
namespace {

// Calls visit(index in memory, index in file) for every element.
template <typename Visit>
void for_each_element(const ParameterInfo& info, const Visit& visit) {
  const Shape& file = info.file.shape;
  const int rank = file.rank();
  std::array<int64_t, Shape::kMaxRank> stride{}, place{};
  for (int i = 0; i < rank; ++i) {
    const int axis = info.file.permutation[static_cast<size_t>(i)];
    stride[static_cast<size_t>(i)] = file.elements(axis + 1, rank);
  }
  const Shape& memory = info.spec.shape;
  int64_t at = 0;
  for (int64_t i = 0; i < memory.elements(); ++i) {
    visit(static_cast<size_t>(i), static_cast<size_t>(at));
    for (int axis = rank; axis-- > 0;) {
      const auto a = static_cast<size_t>(axis);
      at += stride[a];
      if (++place[a] < memory[axis]) break;
      at -= stride[a] * memory[axis];
      place[a] = 0;
    }
  }
}

constexpr int64_t kTile = 32;  // a tile of both matrices fits the L1 cache

// to [columns, rows] is the transpose of from [rows, columns]; GPT-2's files need it.
void transpose_matrix(const float* from, int64_t rows, int64_t columns, float* to) {
#pragma omp parallel for schedule(static) if (rows * columns > 65536)
  for (int64_t c = 0; c < columns; c += kTile) {
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t width = std::min(columns - c, kTile), height = std::min(rows - r, kTile);
      // A copy of the tile, because rows of `from` may be multiples of 4 KiB apart, which a cache
      // holds at a few places only.
      float tile[kTile][kTile + 1];
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = 0; j < width; ++j) tile[i][j] = from[(r + i) * columns + c + j];
      }
      for (int64_t j = 0; j < width; ++j) {
        for (int64_t i = 0; i < height; ++i) to[(c + j) * rows + r + i] = tile[i][j];
      }
    }
  }
}

bool is_transposed_matrix(const ParameterInfo& info) {
  return info.file.permutation == std::vector<int>{1, 0};
}

void check_sizes(const ParameterInfo& info, size_t file, size_t memory) {
  const auto n = static_cast<size_t>(info.spec.shape.elements());
  check_internal(file == n && memory == n, "{}: {} elements in the file, {} in memory, expected {}",
                 info.name, file, memory, n);
}

}  // namespace

std::set<std::string> frozen_parameters(const std::vector<ParameterInfo>& parameters) {
  std::set<std::string> out;
  for (const ParameterInfo& info : parameters) {
    if (info.adaptation == Adaptation::frozen) out.insert(info.name);
  }
  return out;
}

void file_to_memory(const ParameterInfo& info, std::span<const float> file,
                    std::span<float> memory) {
  check_sizes(info, file.size(), memory.size());
  if (info.file.permutation.empty()) {
    std::copy(file.begin(), file.end(), memory.begin());
  } else if (is_transposed_matrix(info)) {
    transpose_matrix(file.data(), info.file.shape[0], info.file.shape[1], memory.data());
  } else {
    for_each_element(info, [&](size_t m, size_t f) { memory[m] = file[f]; });
  }
}

void memory_to_file(const ParameterInfo& info, std::span<const float> memory,
                    std::span<float> file) {
  check_sizes(info, file.size(), memory.size());
  if (info.file.permutation.empty()) {
    std::copy(memory.begin(), memory.end(), file.begin());
  } else if (is_transposed_matrix(info)) {
    transpose_matrix(memory.data(), info.spec.shape[0], info.spec.shape[1], file.data());
  } else {
    for_each_element(info, [&](size_t m, size_t f) { file[f] = memory[m]; });
  }
}

}  // namespace dltrain
