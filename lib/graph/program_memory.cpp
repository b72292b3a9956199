// Memory of a program's values: blocks with the lifetime from first to last use, and their places.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "graph/program.h"

namespace dltrain {

// Lets the first output of an element-wise op reuse the block of an input whose last reader is this
// node.
void Program::merge_in_place(size_t index, const std::vector<int>& last_use) {
  const Node& node = graph_.nodes[index];
  if (!node.op->in_place_allowed || node.outputs.empty()) return;
  const ValueId output = node.outputs[0];
  if (graph_.value(output).role != Role::activation) return;
  if (group_offsets_[static_cast<size_t>(output)].group >= 0) return;
  for (ValueId input : node.inputs) {
    if (input == kNoValue) continue;
    const ValueId root = graph_.storage(input);
    const int block = value_block_[static_cast<size_t>(root)];
    if (block < 0 || graph_.value(root).role != Role::activation) continue;
    if (group_offsets_[static_cast<size_t>(root)].group >= 0) continue;
    if (last_use[static_cast<size_t>(root)] != static_cast<int>(index)) continue;
    if (graph_.value(input).spec != graph_.value(output).spec) continue;
    value_block_[static_cast<size_t>(output)] = block;
    return;
  }
}

void Program::place_memory() {
  const int end = static_cast<int>(graph_.nodes.size());
  std::vector<int> last_use(graph_.values.size(), -2);
  for (int i = 0; i < end; ++i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    const Call& call = calls_[plain_calls_[static_cast<size_t>(i)].front()];
    if (call.ends_forward && !options_.lives.empty()) continue;  // see keep_messages()
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (ValueId id : *ids) {
        if (id != kNoValue) last_use[static_cast<size_t>(graph_.storage(id))] = i;
      }
    }
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (graph_.values[i].role != Role::output) continue;
    last_use[static_cast<size_t>(graph_.storage(static_cast<ValueId>(i)))] = end;
  }
  group_offsets_ = graph_.group_offsets();
  std::vector<int> group_block(graph_.groups.size(), -1);
  value_block_.assign(graph_.values.size(), -1);
  const auto new_block = [&](size_t bytes, int first, int last) {
    blocks_.push_back({.bytes = bytes, .first = first, .last = last});
    return static_cast<int>(blocks_.size() - 1);
  };
  for (ValueId id : graph_.with_role(Role::input)) {
    value_block_[static_cast<size_t>(id)] = new_block(
        graph_.value(id).spec.bytes(), -1, std::max(last_use[static_cast<size_t>(id)], -1));
  }
  for (int i = 0; i < end; ++i) {
    const auto index = static_cast<size_t>(i);
    merge_in_place(index, last_use);
    for (ValueId id : graph_.nodes[index].outputs) {
      const GraphValue& value = graph_.value(id);
      if (value.storage_of != kNoValue || persistent(value.role)) continue;
      int& block = value_block_[static_cast<size_t>(id)];
      const int last = last_use[static_cast<size_t>(id)];
      const int group = group_offsets_[static_cast<size_t>(id)].group;
      if (group >= 0) block = group_block[static_cast<size_t>(group)];
      if (block < 0) {
        block = new_block(
            group >= 0 ? graph_.groups[static_cast<size_t>(group)].bytes : value.spec.bytes(), i,
            last);
        if (group >= 0) group_block[static_cast<size_t>(group)] = block;
      } else {
        MemoryBlock& shared = blocks_[static_cast<size_t>(block)];
        shared.last = std::max(shared.last, last);
      }
    }
  }
  keep_messages(end);
  std::vector<int> workspaces, temporaries;  // blocks of each call
  for (const Call& call : calls_) {
    const int at = static_cast<int>(call.node);
    workspaces.push_back(new_block(call.kernel->workspace_bytes(), at, at));
    int temporary = -1;
    if (call.temporary) {
      const Node& node = graph_.nodes[call.node];
      temporary = new_block(graph_.value(node.outputs[0]).spec.bytes(), at, at);
    } else if (call.adds_temporary) {
      temporary = temporaries.back();
    }
    temporaries.push_back(temporary);
  }
  work_bytes_ = place_blocks(blocks_, reuse_copies());
  frame_offsets_.assign(1, {});
  for (size_t i = 0; i < options_.frames; ++i) frame_offsets_[0].push_back(i * work_bytes_);
  if (options_.frames > 1 || !options_.lives.empty()) share_blocks();
  for (size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].workspace = place_of_block(workspaces[i]);
    if (temporaries[i] >= 0) calls_[i].temporary = place_of_block(temporaries[i]);
  }
}

// Messages that are received before their segment begins (ScheduledSegment) keep their memory: on
// GPUs the values of the stage before, which come while the backward of the frame's last
// micro-batch still sends; with several chunks all, and what is sent.
void Program::keep_messages(int end) {
  const bool several = !options_.lives.empty();
  const auto block_of = [&](ValueId id) -> MemoryBlock& {
    const int block = value_block_[static_cast<size_t>(graph_.storage(id))];
    return blocks_[static_cast<size_t>(block)];
  };
  const auto is_in = [](int chunk) {
    return [chunk](const Node& n) { return n.phase != Phase::update && n.chunk == chunk; };
  };
  const auto& nodes = graph_.nodes;
  for (const Call& call : calls_) {
    const Node& node = nodes[call.node];
    const bool forward = node.phase == Phase::forward;
    if (several && call.ends_forward) {
      if (is_state(graph_.storage(node.inputs[0]))) continue;
      MemoryBlock& block = block_of(node.inputs[0]);
      const bool only_sent = block.first >= 0 && block.last < static_cast<int>(call.node) &&
                             nodes[static_cast<size_t>(block.last)].phase == Phase::forward;
      if (only_sent) block.piece = piece_of(node.chunk, FramePiece::sent);
    } else if (several && call.receives && forward) {
      const auto first = std::ranges::find_if(nodes, is_in(node.chunk));
      const auto last = std::find_if(nodes.rbegin(), nodes.rend(), is_in(node.chunk));
      block_of(node.outputs[0]).first = static_cast<int>(first - nodes.begin());
      block_of(node.outputs[0]).last = static_cast<int>(nodes.rend() - last) - 1;
    } else if (several && call.receives) {
      block_of(node.outputs[0]).piece = piece_of(node.chunk, FramePiece::received);
    } else if (call.receives && forward && !options_.device->properties().on_host) {
      block_of(node.outputs[0]).first = -1;
      block_of(node.outputs[0]).last = end;
    }
  }
}

// Moves the blocks that are used within one segment to memory that the frames share, because their
// segments run one after another.
void Program::share_blocks() {
  check_internal(std::ranges::is_sorted(graph_.nodes, {}, &Node::phase),
                 "nodes are not in the order of the segments");
  const int end = static_cast<int>(graph_.nodes.size());
  const size_t pieces = std::max<size_t>(1, options_.lives.size());
  std::vector<std::vector<MemoryBlock>> lists(pieces + 1);  // the last one is shared
  std::vector<size_t> list_of;
  for (const MemoryBlock& block : blocks_) {
    const bool within = block.first >= 0 && block.last < end && block.last >= block.first;
    const Node& first = graph_.nodes[static_cast<size_t>(within ? block.first : 0)];
    const Node& last = graph_.nodes[static_cast<size_t>(within ? block.last : 0)];
    const bool in_chunk = within && first.chunk == last.chunk;
    const bool outlives = pieces == 1 || !in_chunk || last.phase == Phase::update;
    const int kept = piece_of(first.chunk, FramePiece::kept);
    list_of.push_back(block.piece != 0                        ? static_cast<size_t>(block.piece)
                      : in_chunk && first.phase == last.phase ? pieces
                      : outlives                              ? 0
                                                              : static_cast<size_t>(kept));
    lists[list_of.back()].push_back(block);
  }
  std::vector<size_t> bytes;
  for (std::vector<MemoryBlock>& list : lists) bytes.push_back(place_blocks(list));
  const size_t frames = options_.frames;
  if (pieces == 1 && frames * bytes[0] + bytes[1] >= frames * work_bytes_) {
    work_bytes_ *= frames;
    return;
  }
  std::vector<size_t> next(pieces + 1);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const size_t list = list_of[i];
    blocks_[i] = lists[list][next[list]++];
    blocks_[i].shared = list == pieces;
    blocks_[i].piece = blocks_[i].shared ? 0 : static_cast<int>(list);
  }
  place_frames(bytes);
}

// Places the pieces of all frames, the largest first; those that are used at different times may
// overlap. `bytes`: of each piece of a frame, and last those that frames share.
void Program::place_frames(const std::vector<size_t>& bytes) {
  struct Piece {
    size_t number = 0, frame = 0, offset = 0;
  };
  const size_t pieces = bytes.size() - 1, shared = bytes.back();
  const auto meet = [&](const Piece& a, const Piece& b) {
    if (options_.lives.empty()) return true;
    const std::vector<FrameLife>& others = options_.lives[b.number][b.frame];  // in their order
    auto y = others.begin();
    return std::ranges::any_of(options_.lives[a.number][a.frame], [&](const FrameLife& x) {
      while (y != others.end() && y->last < x.first) ++y;
      return y != others.end() && y->first <= x.last;
    });
  };
  std::vector<Piece> all, placed;
  for (size_t number = 0; number < pieces; ++number) {
    for (size_t i = 0; i < options_.frames; ++i) all.push_back({number, i});
  }
  std::ranges::stable_sort(all, std::greater{}, [&](const Piece& p) { return bytes[p.number]; });
  frame_offsets_.assign(pieces, std::vector<size_t>(options_.frames));
  work_bytes_ = shared;
  for (Piece& piece : all) {
    piece.offset = shared;  // behind those that it meets, which are in the order of their offsets
    for (const Piece& other : placed) {
      if (piece.offset + bytes[piece.number] <= other.offset) break;
      if (meet(piece, other)) {
        piece.offset = std::max(piece.offset, other.offset + bytes[other.number]);
      }
    }
    frame_offsets_[piece.number][piece.frame] = piece.offset;
    work_bytes_ = std::max(work_bytes_, piece.offset + bytes[piece.number]);
    placed.insert(std::ranges::upper_bound(placed, piece.offset, {}, &Piece::offset), piece);
  }
}

std::optional<MemoryPlace> Program::place(ValueId root) const {
  const int block = value_block_[static_cast<size_t>(root)];
  if (block < 0) return std::nullopt;
  MemoryPlace out = place_of_block(block);
  out.offset += group_offsets_[static_cast<size_t>(root)].offset;
  return out;
}

// Returns the memory of the low-precision copies, which are adjacent in the order of their ids.
ReusableRegion Program::reuse_copies() {
  ReusableRegion reused;
  if (options_.keep_gradients) return reused;
  const int end = static_cast<int>(graph_.nodes.size());
  // For each copy: the last node that reads it before the rewrite, and the node that rewrites it.
  struct Uses {
    int last_read = -1, written = 0;
    bool always = false;  // also by a step that is not finite
  };
  std::vector<Uses> uses(graph_.values.size(), {-1, end});
  for (int i = 0; i < end; ++i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    const auto of_storage = [&](ValueId id) -> Uses& {
      return uses[static_cast<size_t>(graph_.storage(id))];
    };
    for (ValueId id : node.outputs) {
      if (of_storage(id).written != end) continue;
      of_storage(id).written = i;
      of_storage(id).always = node.op->update == UpdateKind::rounding;
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue && of_storage(id).written == end) of_storage(id).last_read = i;
    }
  }
  for (ValueId copy : graph_.with_role(Role::low_precision)) {
    auto [last_read, written, always] = uses[static_cast<size_t>(copy)];
    // The copy of a frozen parameter is not rewritten, and an update that also rounds does not
    // rewrite it in a step that is not finite; this memory is never reused.
    if (!always) written = end;
    MemoryBlock own{.bytes = graph_.value(copy).spec.bytes(),
                    .first = -1,
                    .last = written == end ? end : last_read,
                    .offset = reused.bytes};
    copies_.push_back({copy, reused.bytes});
    reused.bytes += align_up(own.bytes);
    reused.occupied.push_back(own);
    if (written == end) continue;
    own.first = written;
    own.last = end;
    reused.occupied.push_back(own);
  }
  return reused;
}

Program::PeakMemory Program::peak_memory() const {
  PeakMemory out;
  if (graph_.nodes.empty()) return out;
  out.node = std::max(busiest_step(blocks_).step, 0);  // inputs are there before
  std::vector<bool> gradient(blocks_.size(), false), value(blocks_.size(), false);
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (value_block_[i] < 0) continue;
    value[static_cast<size_t>(value_block_[i])] = true;
    if (graph_.values[i].role == Role::gradient)
      gradient[static_cast<size_t>(value_block_[i])] = true;
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const MemoryBlock& block = blocks_[i];
    if (block.reused || block.bytes == 0 || block.first > out.node || block.last < out.node)
      continue;
    out.bytes += align_up(block.bytes);
    out.live.push_back({.node = block.first,
                        .bytes = align_up(block.bytes),
                        .gradient = gradient[i],
                        .workspace = !value[i]});
  }
  return out;
}

std::vector<size_t> Program::live_bytes() const {
  std::vector<size_t> out(graph_.nodes.size(), 0);
  for (const MemoryBlock& block : blocks_) {
    if (block.reused) continue;
    const int end = std::min(block.last + 1, static_cast<int>(out.size()));
    for (int i = std::max(block.first, 0); i < end; ++i) {
      out[static_cast<size_t>(i)] += align_up(block.bytes);
    }
  }
  return out;
}

size_t Program::workspace_bytes() const {
  size_t most = 0;
  for (const Call& call : calls_) most = std::max(most, call.kernel->workspace_bytes());
  return most;
}

}  // namespace dltrain
