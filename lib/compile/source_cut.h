// Cuts the graph of a model whose texts have a source (an encoder and a decoder), as layers have
// emitted it, in two: what is made of the source alone, and the rest. What the rest reads of it,
// such as keys and values of attention to the source, is computed once a text and kept in its slot:
// state "cache.source.<number>" of role cache, [slots, elements of a text].
#pragma once

#include <span>
#include <vector>

#include "graph/builder.h"

namespace dltrain {

struct SourceCut {
  std::span<const ValueId> sources;  // inputs that are the source
  ValueId tokens = kNoValue;         // of the texts that are continued
  ValueId counts = kNoValue, slot_ids = kNoValue;
  int64_t slots = 1;
};

// The values on the source's side that nodes on the other read, in the order of their ids; inputs
// are not among them. Throws Error(usage) for integers, which are not kept.
std::vector<ValueId> values_of_source(const Graph& graph, const SourceCut& cut);

// Puts values that are read from the slots in their places. `in_order`: the samples are the slots.
// What computed them becomes dead code.
void read_from_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut,
                     bool in_order);
// Writes them into the slots; the graph is of one text.
void write_to_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut);

}  // namespace dltrain
