// The tokens that a rank has of each sample with context parallelism (passes/context_cut.h): one
// run of adjacent tokens, or two. Of 2·C chunks rank r of C has chunks r and 2·C − 1 − r where
// attention is causal, so that all ranks compute as many scores.
#pragma once

#include <vector>

#include "base/host_device.h"
#include "ops/attributes.h"
#include "ops/placement.h"

namespace dltrain {

struct TokenCut {
  int ranks = 1, rank = 0;
  bool balanced = false;  // two runs

  int64_t chunks() const { return balanced ? 2 * ranks : ranks; }
  int64_t local(int64_t tokens) const { return tokens / ranks; }
  // The runs of a rank in a text of so many tokens, which must be a multiple of chunks().
  std::vector<CutRange> runs(int64_t tokens, int of_rank) const {
    const int64_t length = tokens / chunks();
    std::vector<CutRange> out{{of_rank * length, length}};
    if (balanced) out.push_back({(chunks() - 1 - of_rank) * length, length});
    return out;
  }
  std::vector<CutRange> runs(int64_t tokens) const { return runs(tokens, rank); }

  // A cut can be stored in the attributes of a node.
  explicit TokenCut(const Attributes& attributes)
      : ranks(static_cast<int>(attributes.integer("ranks", 1))),
        rank(static_cast<int>(attributes.integer("rank"))),
        balanced(attributes.boolean("balanced")) {}
  TokenCut(int ranks_, int rank_, bool balanced_)
      : ranks(ranks_), rank(rank_), balanced(balanced_) {}
  void set(Attributes& attributes) const {
    attributes.set("ranks", int64_t{ranks});
    attributes.set("rank", int64_t{rank});
    attributes.set("balanced", balanced);
  }
};

// The positions of a rank's tokens, for ops whose results depend on them. Without the attribute
// `token_runs` the rank has all tokens.
struct TokenPositions {
  int64_t run = 0, first = 0, second = 0;  // the length of a run, and where the runs begin
  int64_t local = 1, all = 1;              // tokens of a sample: of the rank, and in all

  TokenPositions() = default;
  explicit TokenPositions(const Attributes& attributes) {
    const std::vector<int64_t> numbers = attributes.integers("token_runs");
    if (numbers.size() != 5) return;
    run = numbers[0];
    first = numbers[1];
    second = numbers[2];
    local = numbers[3];
    all = numbers[4];
  }
  DLTRAIN_HD int64_t operator()(int64_t token) const {
    return token < run || run == 0 ? first + token : second + token - run;
  }

  static void set(Attributes& attributes, const TokenCut& cut, int64_t tokens) {
    const std::vector<CutRange> runs = cut.runs(tokens);
    attributes.set("token_runs",
                   std::vector<int64_t>{runs[0].extent, runs[0].offset, runs.back().offset,
                                        cut.local(tokens), tokens});
  }
};

}  // namespace dltrain
