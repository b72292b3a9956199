#include "text/unigram_search.h"

#include <algorithm>
#include <span>
#include <utility>

namespace dltrain {
namespace {

constexpr double kUnknownPenalty = 10;  // as in the library
constexpr std::string_view kUnigramSpace = "\xE2\x96\x81";

}  // namespace

UnigramSearch::UnigramSearch(const SentencePieceModel& model) : words_(has_separate_words(model)) {
  using Type = SentencePieceModel::Type;
  const std::vector<double> scores = search_scores(model);
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (size_t id = 0; id < scores.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type == Type::normal) unknown_ = std::min(unknown_, scores[id]);
    if (piece.type != Type::normal && piece.type != Type::user_defined) continue;
    pieces.emplace_back(piece.text, static_cast<int32_t>(id));
  }
  unknown_ -= kUnknownPenalty;
  std::ranges::sort(pieces);
  // Nodes are added in order of depth, so that the children of a node follow each other.
  std::vector<std::pair<std::span<const decltype(pieces)::value_type>, size_t>> below{{pieces, 0}};
  nodes_.resize(1);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    auto [left, depth] = below[n];
    if (!left.empty() && left[0].first.size() == depth) {
      nodes_[n].id = left[0].second;
      nodes_[n].score = scores[static_cast<size_t>(left[0].second)];
      left = left.subspan(1);
    }
    nodes_[n].children = nodes_.size();
    while (!left.empty()) {
      const char byte = left[0].first[depth];
      const auto other = [byte, at = depth](const auto& piece) { return piece.first[at] != byte; };
      const auto same = static_cast<size_t>(std::ranges::find_if(left, other) - left.begin());
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      below.emplace_back(left.first(same), depth + 1);
      left = left.subspan(same);
    }
    nodes_[n].children_end = nodes_.size();
  }
}

std::vector<UnigramSearch::Part> UnigramSearch::operator()(std::string_view text) const {
  struct Best {  // of the paths that end at a place
    double score = 0;
    Part last = {};  // of no bytes: there is no path
  };
  std::vector<Best> best(text.size() + 1);
  for (size_t begin = 0, next = 0; begin < text.size(); begin = next) {
    do ++next;
    while (next < text.size() && (text[next] & 0xC0) == 0x80);  // bytes of one character
    // Rounding then does not depend on the words before, so that a text can be encoded in pieces.
    if (words_ && text.substr(begin).starts_with(kUnigramSpace) &&
        !text.substr(0, begin).ends_with(kUnigramSpace)) {
      best[begin].score = 0;
    }
    const auto offer = [&](size_t end, double score, int32_t id) {
      score += best[begin].score;
      if (best[end].last.bytes != 0 && score <= best[end].score) return;
      best[end] = {score, {id, static_cast<uint32_t>(end - begin)}};
    };
    bool known = false;
    const Node* node = nodes_.data();
    for (size_t end = begin; end < text.size();) {
      const std::span children(nodes_.data() + node->children, nodes_.data() + node->children_end);
      const auto byte = static_cast<unsigned char>(text[end]);
      const auto found = std::ranges::lower_bound(children, byte, {}, &Node::byte);
      if (found == children.end() || found->byte != byte) break;
      node = &*found;
      ++end;
      if (node->id < 0) continue;
      offer(end, node->score, node->id);
      known |= end == next;
    }
    if (!known) offer(next, unknown_, -1);
  }
  std::vector<Part> parts;
  for (size_t end = text.size(); end > 0; end -= best[end].last.bytes) {
    parts.push_back(best[end].last);
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace dltrain
