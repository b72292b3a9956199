// Chooses the pieces of the forward for recomputation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/recompute.h"

namespace dltrain {
namespace {

size_t forward_nodes(const Graph& graph) {
  size_t count = 0;
  while (count < graph.nodes.size() && graph.nodes[count].phase == Phase::forward) ++count;
  return count;
}

// Returns for each value the last forward node that reads its memory, or −1.
std::vector<int> last_forward_reads(const Graph& graph, size_t count) {
  std::vector<int> last(graph.values.size(), -1);
  for (size_t i = 0; i < count; ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) last[static_cast<size_t>(graph.storage(id))] = static_cast<int>(i);
    }
  }
  return last;
}

std::vector<bool> read_by_backward(const Graph& graph, size_t count) {
  std::vector<bool> read(graph.values.size(), false);
  for (size_t i = count; i < graph.nodes.size(); ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) read[static_cast<size_t>(graph.storage(id))] = true;
    }
  }
  return read;
}

// A position between two forward nodes at which a single activation is live.
struct Cut {
  size_t after = 0;  // the node before it
  double bytes = 0;  // of the activation
  double kept = 0;   // bytes that the nodes up to here have produced for the backward
};

std::vector<Cut> find_cuts(const Graph& graph, size_t count) {
  const std::vector<int> last = last_forward_reads(graph, count);
  const std::vector<bool> needed = read_by_backward(graph, count);
  std::vector<Cut> cuts;
  std::vector<ValueId> alive;
  double kept = 0;
  for (size_t i = 0; i < count; ++i) {
    for (ValueId id : graph.nodes[i].outputs) {
      const GraphValue& value = graph.value(id);
      if (value.role != Role::activation || value.storage_of != kNoValue) continue;
      alive.push_back(id);
      if (needed[static_cast<size_t>(id)]) kept += static_cast<double>(value.spec.bytes());
    }
    std::erase_if(alive,
                  [&](ValueId id) { return last[static_cast<size_t>(id)] <= static_cast<int>(i); });
    if (alive.size() == 1 && i + 1 < count) {
      cuts.push_back({i, static_cast<double>(graph.value(alive[0]).spec.bytes()), kept});
    }
  }
  cuts.push_back({count - 1, 0, kept});  // the end is always a cut
  return cuts;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

// The cuts with the fewest bytes at borders such that each piece keeps at most `limit` bytes; empty
// if impossible.
struct PieceChoice {
  double borders = kNever;
  std::vector<size_t> chosen;  // indices of cuts, including the end
};
PieceChoice choose(const std::vector<Cut>& cuts, double limit) {
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
std::vector<size_t> best_cuts(const std::vector<Cut>& cuts) {
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
  const std::vector<Cut> cuts = find_cuts(graph, count);
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
