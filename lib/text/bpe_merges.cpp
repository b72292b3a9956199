#include "text/bpe_merges.h"

#include <algorithm>
#include <bit>

namespace dltrain {
namespace {

// Shorter pieces are scanned for each merge; longer ones use a heap to avoid quadratic time.
constexpr size_t kShort = 64;

}  // namespace

MergeTable::MergeTable(size_t pairs) {
  const size_t size = std::bit_ceil(std::max<size_t>(pairs * 2, 16));
  slots_.assign(size, {kEmpty, {}});
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::put(int32_t left, int32_t right, const BpeMerge& merge) {
  const uint64_t key = key_of(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

size_t Merger::merge(std::span<int32_t> ids) {
  if (ids.size() < 2) return ids.size();
  return ids.size() <= kShort ? merge_short(ids) : merge_long(ids);
}

size_t Merger::merge_short(std::span<int32_t> ids) {
  size_t count = ids.size();
  pairs_.resize(kShort);
  BpeMerge* pairs = pairs_.data();  // pairs[i]: of ids[i] and ids[i + 1]
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = table_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == UINT32_MAX) break;
    ids[best] = pairs[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best > 0) pairs[best - 1] = table_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = table_.find(ids[best], ids[best + 1]);
  }
  return count;
}

size_t Merger::merge_long(std::span<int32_t> ids) {
  const auto count = static_cast<int32_t>(ids.size());
  nodes_.resize(ids.size());
  heap_.clear();
  const auto offer = [&](int32_t left) {
    const int32_t right = nodes_[static_cast<size_t>(left)].after;
    if (right < 0) return;
    const BpeMerge merge =
        table_.find(ids[static_cast<size_t>(left)], ids[static_cast<size_t>(right)]);
    if (merge.id < 0) return;
    heap_.push_back({merge.rank, left, merge.id});
    std::push_heap(heap_.begin(), heap_.end());
  };
  for (int32_t i = 0; i < count; ++i) {
    nodes_[static_cast<size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<size_t>(best.index);
    const int32_t right = nodes_[at].after;
    // Skips pairs that have changed since they were pushed.
    if (ids[at] < 0 || right < 0) continue;
    const BpeMerge now = table_.find(ids[at], ids[static_cast<size_t>(right)]);
    if (now.id != best.id || now.rank != best.rank) continue;
    ids[at] = best.id;
    ids[static_cast<size_t>(right)] = -1;  // removed
    nodes_[at].after = nodes_[static_cast<size_t>(right)].after;
    if (nodes_[at].after >= 0) nodes_[static_cast<size_t>(nodes_[at].after)].before = best.index;
    offer(best.index);
    if (nodes_[at].before >= 0) offer(nodes_[at].before);
  }
  return static_cast<size_t>(std::remove(ids.begin(), ids.end(), -1) - ids.begin());
}

}  // namespace dltrain
