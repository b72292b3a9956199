// Chooses the pieces of the forward for recomputation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/forward_cuts.h"
#include "passes/recompute.h"

namespace dltrain {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The cuts with the fewest bytes at borders such that each piece keeps at most `limit` bytes; empty
// if impossible.
struct PieceChoice {
  double borders = kNever;
  std::vector<size_t> chosen;  // indices of cuts, including the end
};
PieceChoice choose(const std::vector<ForwardCut>& cuts, double limit) {
  const size_t n = cuts.size();
  std::vector<double> best(n, kNever);
  std::vector<size_t> before(n, n);
  for (size_t i = 0; i < n; ++i) {
    if (cuts[i].kept <= limit) best[i] = cuts[i].bytes;
    for (size_t j = i; j-- > 0 && cuts[i].kept - cuts[j].kept <= limit;) {
      if (best[j] + cuts[i].bytes < best[i]) best[i] = best[j] + cuts[i].bytes, before[i] = j;
    }
  }
  PieceChoice out{best[n - 1], {}};
  if (out.borders == kNever) return out;
  for (size_t i = n - 1; i != n; i = before[i]) out.chosen.push_back(i);
  std::reverse(out.chosen.begin(), out.chosen.end());
  return out;
}

// Minimises the bytes of borders plus largest piece, over a geometric series of limits.
std::vector<size_t> best_cuts(const std::vector<ForwardCut>& cuts) {
  const double all = cuts.back().kept;
  double least = kNever;
  std::vector<size_t> out;
  for (double limit = all; limit >= all / 1000 && limit > 0; limit /= 1.1) {
    PieceChoice choice = choose(cuts, limit);
    if (choice.borders == kNever) break;  // smaller limits are impossible too
    double greatest = 0, before = 0;
    for (size_t i : choice.chosen) {
      greatest = std::max(greatest, cuts[i].kept - before);
      before = cuts[i].kept;
    }
    if (choice.borders + greatest < least) {
      least = choice.borders + greatest;
      out = std::move(choice.chosen);
    }
  }
  return out;
}

std::vector<int> pieces_of_least_memory(const Graph& graph, size_t count) {
  std::vector<int> pieces(count, -1);
  const std::vector<ForwardCut> cuts = find_forward_cuts(graph);
  size_t node = 0;
  int piece = 0;
  for (size_t i : best_cuts(cuts)) {
    for (; node <= cuts[i].after; ++node) pieces[node] = piece;
    ++piece;
  }
  return pieces;
}

// Passes add nodes without a block: those between nodes of a block are assigned to it, and so are
// casts that only the block reads.
std::vector<int> pieces_of_blocks(const Graph& graph, size_t count) {
  std::vector<int> pieces(count, -1);
  for (size_t begin = 0; begin < count;) {
    const int block = graph.nodes[begin].block;
    size_t end = begin + 1;
    if (block >= 0) {
      for (size_t i = begin; i < count; ++i) {
        if (graph.nodes[i].block == block) end = i + 1;
      }
      std::fill(pieces.begin() + static_cast<std::ptrdiff_t>(begin),
                pieces.begin() + static_cast<std::ptrdiff_t>(end), block);
    }
    begin = end;
  }
  for (size_t i = count; i-- > 0;) {
    if (pieces[i] >= 0 || graph.nodes[i].op->same_elements != SameElements::cast) continue;
    int reader = -2;  // none yet
    for (size_t k = i + 1; k < count; ++k) {
      const auto& inputs = graph.nodes[k].inputs;
      if (std::find(inputs.begin(), inputs.end(), graph.nodes[i].outputs[0]) == inputs.end()) {
        continue;
      }
      reader = reader == -2 || reader == pieces[k] ? pieces[k] : -1;
    }
    if (reader >= 0) pieces[i] = reader;
  }
  return pieces;
}

}  // namespace

std::vector<int> recomputed_pieces(const Graph& graph, Recompute mode) {
  const size_t count = forward_nodes(graph);
  if (count == 0) return {};
  return mode == Recompute::full ? pieces_of_least_memory(graph, count)
                                 : pieces_of_blocks(graph, count);
}

}  // namespace dltrain
