#include "comm/collective_algorithms.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "comm/reduce.h"

namespace dltrain {
namespace {

std::byte* bytes_of(void* p) {
  return static_cast<std::byte*>(p);
}
// Data that is only sent is not modified.
std::byte* bytes_of(const void* p) {
  return static_cast<std::byte*>(const_cast<void*>(p));
}

size_t segment_bytes_for(int size) {
  return std::clamp(CollectiveAlgorithms::kScratchBytes / static_cast<size_t>(size),
                    CollectiveAlgorithms::kMinSegmentBytes, CollectiveAlgorithms::kSegmentBytes) /
         64 * 64;
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// The division of `count` elements into a chunk for each rank, and of the chunks into segments.
struct CollectiveAlgorithms::Chunks {
  size_t count, element_size, chunk, segment;

  // For all_reduce: chunks of equal size, aligned to cache lines; the last ones may be shorter or
  // empty.
  static Chunks divide(size_t count, size_t element_size, int ranks, size_t segment_bytes) {
    const size_t each = (count + ranks - 1) / ranks;
    return {count, element_size, (each + 63) / 64 * 64, segment_bytes / element_size};
  }

  size_t begin(int rank) const { return std::min(rank * chunk, count); }
  size_t elements(int rank) const { return std::min(chunk, count - begin(rank)); }
  size_t segments(int rank) const { return (elements(rank) + segment - 1) / segment; }
  // In bytes. The offset of a segment in its chunk is that in chunk 0.
  size_t offset(int rank, size_t s) const { return (begin(rank) + s * segment) * element_size; }
  size_t segment_elements(int rank, size_t s) const {
    return std::min(segment, elements(rank) - std::min(s * segment, elements(rank)));
  }
  size_t segment_bytes(int rank, size_t s) const {
    return segment_elements(rank, s) * element_size;
  }
};

CollectiveAlgorithms::CollectiveAlgorithms(PeerConnections& connections)
    : connections_(connections),
      segment_bytes_(segment_bytes_for(connections.size())),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(scratch_bytes(connections.size()))),
      parts_(connections.size()),
      exchanges_(connections.size() - 1) {}

size_t CollectiveAlgorithms::scratch_bytes(int size) {
  return static_cast<size_t>(size) * segment_bytes_for(size);
}

// Sends every other rank its chunk of `input`, which has all chunks, and combines this rank's chunk
// from all parts to `output`; with `gather` also sends the result to all. It proceeds by segments,
// so that received data is combined while the cache holds it.
void CollectiveAlgorithms::reduce_chunks(const Chunks& chunks, std::byte* input, std::byte* output,
                                         DType dtype, ReduceOp op, uint64_t slot, bool gather) {
  const int own = connections_.rank();
  for (size_t s = 0; s < chunks.segments(0); ++s) {  // no rank has more
    const size_t own_bytes = chunks.segment_bytes(own, s);
    const auto input_at = [&](int rank) { return input + chunks.offset(rank, s); };
    std::byte* const result = output + chunks.offset(0, s);
    exchange_all(slot, [&](int p) {
      parts_[p] = scratch(p);
      return PeerExchange{p, input_at(p), chunks.segment_bytes(p, s), scratch(p), own_bytes};
    });
    parts_[own] = input_at(own);
    reduce_parts(parts_, result, chunks.segment_elements(own, s), dtype, op);
    if (!gather) continue;
    exchange_all(slot + 1, [&](int p) {
      return PeerExchange{p, result, own_bytes, input_at(p), chunks.segment_bytes(p, s)};
    });
  }
}

void CollectiveAlgorithms::all_reduce(void* data, size_t count, DType dtype, ReduceOp op,
                                      uint64_t slot) {
  const size_t element = dtype_size(dtype);
  if (count == 0) return;
  if (count * element <= kSmallBytes) {
    return uses_tree() ? all_reduce_tree(data, count, dtype, op, slot)
                       : all_reduce_small(data, count, dtype, op, slot);
  }
  const Chunks chunks = Chunks::divide(count, element, connections_.size(), segment_bytes_);
  std::byte* output = bytes_of(data) + chunks.begin(connections_.rank()) * element;
  reduce_chunks(chunks, bytes_of(data), output, dtype, op, slot, true);
}

void CollectiveAlgorithms::all_reduce_small(void* data, size_t count, DType dtype, ReduceOp op,
                                            uint64_t slot) {
  const size_t bytes = count * dtype_size(dtype);
  exchange_all(slot, [&](int p) {
    parts_[p] = scratch(p);
    return PeerExchange{p, data, bytes, scratch(p), bytes};
  });
  parts_[connections_.rank()] = data;
  reduce_parts(parts_, data, count, dtype, op);
}

// Every rank combines its part with those of its children, from the nearest on, and sends the
// result to its parent. 16-bit types travel as f32 and are rounded once, by rank 0.
void CollectiveAlgorithms::all_reduce_tree(void* data, size_t count, DType dtype, ReduceOp op,
                                           uint64_t slot) {
  const int rank = connections_.rank(), size = connections_.size();
  const DType wide = accumulator_dtype(dtype);
  const size_t bytes = count * dtype_size(wide);
  convert_parts(data, dtype, scratch(0), wide, count);
  const std::array<const void*, 2> parts{scratch(0), scratch(1)};
  for (int bit = 1; bit < size; bit *= 2) {
    if ((rank & bit) != 0) {
      send(scratch(0), bytes, rank - bit, slot);
      break;
    }
    if (rank + bit >= size) continue;
    receive(scratch(1), bytes, rank + bit, slot);
    reduce_parts(parts, scratch(0), count, wide, op);
  }
  if (rank == 0) convert_parts(scratch(0), wide, data, dtype, count);
  send_down(data, count * dtype_size(dtype), 0, slot + 1);
}

void CollectiveAlgorithms::reduce_scatter(const void* input, void* output, size_t count,
                                          DType dtype, ReduceOp op, uint64_t slot) {
  if (count == 0) return;
  const int size = connections_.size();
  const size_t element = dtype_size(dtype);
  const Chunks chunks{count * size, element, count, segment_bytes_ / element};
  reduce_chunks(chunks, bytes_of(input), bytes_of(output), dtype, op, slot, false);
}

void CollectiveAlgorithms::all_gather(const void* input, void* output, size_t bytes,
                                      uint64_t slot) {
  if (bytes == 0) return;
  const auto part = [&](int p) { return bytes_of(output) + p * bytes; };
  const int rank = connections_.rank(), size = connections_.size();
  if (uses_tree() && size * bytes <= kTreeGatherBytes) {
    copy_bytes(part(rank), input, bytes);
    for (int bit = 1; bit < size; bit *= 2) {
      const auto parts_from = [&](int first) { return std::min(bit, size - first) * bytes; };
      if ((rank & bit) != 0) {
        send(part(rank), parts_from(rank), rank - bit, slot);
        break;
      }
      if (rank + bit < size) {
        receive(part(rank + bit), parts_from(rank + bit), rank + bit, slot);
      }
    }
    return send_down(output, size * bytes, 0, slot + 1);
  }
  exchange_all(slot, [&](int p) { return PeerExchange{p, input, bytes, part(p), bytes}; });
  copy_bytes(part(connections_.rank()), input, bytes);
}

void CollectiveAlgorithms::all_to_all(const CollectiveCall& call, uint64_t slot) {
  const auto* input = static_cast<const std::byte*>(call.input);
  auto* output = static_cast<std::byte*>(call.output);
  const auto used = [&](const int32_t* rows, int p) {
    return rows != nullptr ? static_cast<size_t>(rows[p]) * call.row * dtype_size(call.dtype)
                           : call.bytes();
  };
  exchange_all(slot, [&](int p) {
    const size_t at = static_cast<size_t>(p) * call.bytes();
    return PeerExchange{p, input + at, used(call.sent_rows, p), output + at,
                        used(call.received_rows, p)};
  });
  const int own = connections_.rank();
  const size_t at = static_cast<size_t>(own) * call.bytes();
  copy_bytes(output + at, input + at, used(call.sent_rows, own));
}

void CollectiveAlgorithms::broadcast(void* data, size_t bytes, int root, uint64_t slot) {
  if (bytes > 0) send_down(data, bytes, root, slot);
}

// From the root along the tree, in which ranks are counted from the root. The opposite direction of
// each exchange is empty.
void CollectiveAlgorithms::send_down(void* data, size_t bytes, int root, uint64_t slot) {
  const int size = connections_.size();
  const int position = (connections_.rank() - root + size) % size;
  const auto at = [&](int p) { return (p + root) % size; };
  int bit = position & -position;  // of the way to the parent
  if (position > 0) receive(data, bytes, at(position - bit), slot);
  if (position == 0) bit = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)));
  size_t children = 0;
  while ((bit /= 2) > 0) {
    if (position + bit >= size) continue;
    exchanges_[children++] = {at(position + bit), data, bytes, nullptr, 0};
  }
  connections_.exchange(slot, std::span(exchanges_).first(children));
}

void CollectiveAlgorithms::send(const void* data, size_t bytes, int to, uint64_t slot) {
  const PeerExchange part{to, data, bytes, nullptr, 0};
  connections_.exchange(slot, {&part, 1});
}

void CollectiveAlgorithms::receive(void* data, size_t bytes, int from, uint64_t slot) {
  const PeerExchange part{from, nullptr, 0, data, bytes};
  connections_.exchange(slot, {&part, 1});
}

void CollectiveAlgorithms::barrier(uint64_t slot) {
  if (uses_tree()) return all_reduce_tree(nullptr, 0, DType::i32, ReduceOp::sum, slot);
  exchange_all(slot, [](int p) { return PeerExchange{p, nullptr, 0, nullptr, 0}; });
}

}  // namespace dltrain
