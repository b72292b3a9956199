#include "comm/exchange.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace dltrain {
namespace {

std::byte* bytes_of(void* p) {
  return static_cast<std::byte*>(p);
}
// Channels take plain pointers for both directions; what is only sent is never written to.
std::byte* bytes_of(const void* p) {
  return static_cast<std::byte*>(const_cast<void*>(p));
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// How `count` elements are dealt to the ranks, and each chunk into segments.
struct Exchange::Chunks {
  size_t count, element_size, chunk, segment;

  // all_reduce: chunks of equal size on cache line borders, the last ones shorter or empty.
  static Chunks deal(size_t count, size_t element_size, int ranks) {
    const size_t each = (count + ranks - 1) / ranks;
    return {count, element_size, (each + 63) / 64 * 64, kSegmentBytes / element_size};
  }

  size_t begin(int rank) const { return std::min(rank * chunk, count); }
  size_t elements(int rank) const { return std::min(chunk, count - begin(rank)); }
  size_t segments(int rank) const { return (elements(rank) + segment - 1) / segment; }
  size_t offset(size_t s) const { return s * segment * element_size; }
  size_t segment_elements(int rank, size_t s) const {
    return std::min(segment, elements(rank) - s * segment);
  }
  size_t segment_bytes(int rank, size_t s) const {
    return segment_elements(rank, s) * element_size;
  }
  size_t chunk_bytes(int rank) const { return elements(rank) * element_size; }
};

// One reduce-scatter, with the sending of the results where `gather` is set.
struct Exchange::Reduction {
  const Chunks& chunks;
  std::byte* input;   // all chunks
  std::byte* output;  // this rank's chunk
  DType dtype;
  ReduceOp op;
  uint64_t slot;
  bool gather;

  std::byte* input_chunk(int rank) const {
    return input + chunks.begin(rank) * chunks.element_size;
  }
};

Exchange::Exchange(Transport& transport) : transport_(transport) {
  const int size = transport.size();
  scratch_.resize(kWindow * size * kSegmentBytes);
  parts_.resize(size);
  scratch_channels_.resize(kWindow * size);
  for (size_t w = 0; w < kWindow; ++w) {
    for (int i = 1; i < size; ++i) {
      scratch_channels_[w * size + peer(i)] =
          transport.open(peer(i), scratch_data(w, peer(i)), kSegmentBytes);
    }
  }
}

// Sends every other rank its chunk and combines the own one from all parts, segment by segment,
// with kWindow segments in flight.
void Exchange::reduce_chunk(const Reduction& r) {
  const int size = transport_.size();
  const int own = transport_.rank();
  const Chunks& chunks = r.chunks;
  const size_t own_segments = chunks.segments(own);
  const size_t most_segments = chunks.segments(0);

  const auto receive_part = [&](size_t s) {
    for (int i = 1; i < size && s < own_segments; ++i) {
      scratch(s, peer(i)).receive(r.slot, 0, chunks.segment_bytes(own, s));
    }
  };
  const auto send_parts = [&](size_t s) {
    for (int i = 1; i < size; ++i) {
      const int p = peer(i);
      if (s >= chunks.segments(p)) continue;
      transport_.cached(p, r.input_chunk(p), chunks.chunk_bytes(p))
          .send(r.slot, chunks.offset(s), chunks.segment_bytes(p, s));
    }
  };

  for (size_t s = 0; s < kWindow; ++s) receive_part(s);
  for (size_t s = 0; s < std::min(kWindow, most_segments); ++s) send_parts(s);
  for (size_t s = 0; s < most_segments; ++s) {
    if (s < own_segments) {
      for (int i = 1; i < size; ++i) {
        scratch(s, peer(i)).wait_received();
        parts_[peer(i)] = scratch_data(s, peer(i));
      }
      parts_[own] = r.input_chunk(own) + chunks.offset(s);
      reduce_parts(parts_, r.output + chunks.offset(s), chunks.segment_elements(own, s), r.dtype,
                   r.op);
      for (int i = 1; i < size && r.gather; ++i) {
        transport_.cached(peer(i), r.output, chunks.chunk_bytes(own))
            .send(r.slot + 1, chunks.offset(s), chunks.segment_bytes(own, s));
      }
      receive_part(s + kWindow);
    }
    send_parts(s + kWindow);
  }
}

void Exchange::all_reduce(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot) {
  const size_t element = dtype_size(dtype);
  if (count == 0) return;
  if (count * element <= kSmallBytes) return all_reduce_small(data, count, dtype, op, slot);
  const int size = transport_.size();
  const int own = transport_.rank();
  const Chunks chunks = Chunks::deal(count, element, size);
  std::byte* output = bytes_of(data) + chunks.begin(own) * element;
  const Reduction r{chunks, bytes_of(data), output, dtype, op, slot, true};
  const auto channel = [&](int p) -> Channel& {
    return transport_.cached(p, r.input_chunk(p), chunks.chunk_bytes(p));
  };

  // A peer sends a reduced segment only after it has received this rank's part of it, so a result
  // never overwrites what is still to be sent.
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    for (size_t s = 0; s < chunks.segments(p); ++s) {
      channel(p).receive(slot + 1, chunks.offset(s), chunks.segment_bytes(p, s));
    }
  }
  reduce_chunk(r);
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    Channel& results = transport_.cached(p, output, chunks.chunk_bytes(own));
    for (size_t s = 0; s < chunks.segments(p); ++s) channel(p).wait_received();
    for (size_t s = 0; s < chunks.segments(p); ++s) channel(p).wait_sent();
    for (size_t s = 0; s < chunks.segments(own); ++s) results.wait_sent();
  }
}

void Exchange::all_reduce_small(void* data, size_t count, DType dtype, ReduceOp op, uint64_t slot) {
  const int size = transport_.size();
  const size_t bytes = count * dtype_size(dtype);
  for (int i = 1; i < size; ++i) scratch(0, peer(i)).receive(slot, 0, bytes);
  for (int i = 1; i < size; ++i) transport_.cached(peer(i), data, bytes).send(slot, 0, bytes);
  for (int i = 1; i < size; ++i) {
    scratch(0, peer(i)).wait_received();
    transport_.cached(peer(i), data, bytes).wait_sent();
    parts_[peer(i)] = scratch_data(0, peer(i));
  }
  parts_[transport_.rank()] = data;
  reduce_parts(parts_, data, count, dtype, op);
}

void Exchange::reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                              ReduceOp op, uint64_t slot) {
  if (count == 0) return;
  const int size = transport_.size();
  const size_t element = dtype_size(dtype);
  const Chunks chunks{count * size, element, count, kSegmentBytes / element};
  const Reduction r{chunks, bytes_of(input), bytes_of(output), dtype, op, slot, false};
  reduce_chunk(r);
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    Channel& channel = transport_.cached(p, r.input_chunk(p), chunks.chunk_bytes(p));
    for (size_t s = 0; s < chunks.segments(p); ++s) channel.wait_sent();
  }
}

void Exchange::all_gather(const void* input, void* output, size_t bytes, uint64_t slot) {
  if (bytes == 0) return;
  const int size = transport_.size();
  const auto part = [&](int p) { return bytes_of(output) + p * bytes; };
  for (int i = 1; i < size; ++i) {
    transport_.cached(peer(i), part(peer(i)), bytes).receive(slot, 0, bytes);
  }
  for (int i = 1; i < size; ++i) {
    transport_.cached(peer(i), bytes_of(input), bytes).send(slot, 0, bytes);
  }
  copy_bytes(part(transport_.rank()), input, bytes);
  for (int i = 1; i < size; ++i) {
    transport_.cached(peer(i), part(peer(i)), bytes).wait_received();
    transport_.cached(peer(i), bytes_of(input), bytes).wait_sent();
  }
}

// Along a binomial tree: rank r (counted from the root) receives from r without its highest bit.
void Exchange::broadcast(void* data, size_t bytes, int root, uint64_t slot) {
  if (bytes == 0) return;
  const int size = transport_.size();
  const int place = (transport_.rank() - root + size) % size;
  const auto channel = [&](int p) -> Channel& {
    return transport_.cached((p + root) % size, data, bytes);
  };
  int next = 1;
  while (next <= place) next *= 2;
  if (place > 0) {
    channel(place - next / 2).receive(slot, 0, bytes);
    channel(place - next / 2).wait_received();
  }
  for (int step = next; place + step < size; step *= 2) channel(place + step).send(slot, 0, bytes);
  for (int step = next; place + step < size; step *= 2) channel(place + step).wait_sent();
}

void Exchange::all_to_all(const void* input, void* output, size_t bytes, uint64_t slot) {
  if (bytes == 0) return;
  const int size = transport_.size();
  const int own = transport_.rank();
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    transport_.cached(p, bytes_of(output) + p * bytes, bytes).receive(slot, 0, bytes);
  }
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    transport_.cached(p, bytes_of(input) + p * bytes, bytes).send(slot, 0, bytes);
  }
  copy_bytes(bytes_of(output) + own * bytes, bytes_of(input) + own * bytes, bytes);
  for (int i = 1; i < size; ++i) {
    const int p = peer(i);
    transport_.cached(p, bytes_of(output) + p * bytes, bytes).wait_received();
    transport_.cached(p, bytes_of(input) + p * bytes, bytes).wait_sent();
  }
}

void Exchange::barrier(uint64_t slot) {
  for (int i = 1; i < transport_.size(); ++i) scratch(0, peer(i)).receive(slot, 0, 0);
  for (int i = 1; i < transport_.size(); ++i) scratch(0, peer(i)).send(slot, 0, 0);
  for (int i = 1; i < transport_.size(); ++i) scratch(0, peer(i)).wait_received();
  for (int i = 1; i < transport_.size(); ++i) scratch(0, peer(i)).wait_sent();
}

}  // namespace dltrain
