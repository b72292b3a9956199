// Splits the emitted graph of an encoder-decoder model in two: the nodes that depend on the source
// alone, and the rest. Values that cross the cut, such as keys and values of cross-attention, are
// computed once per text and stored in its slot: state "cache.source.<number>" of role cache,
// [slots, elements of a text].
#pragma once

#include <span>
#include <vector>

#include "graph/builder.h"

namespace dltrain {

struct SourceCut {
  std::span<const ValueId> sources;  // the inputs that contain the source
  ValueId tokens = kNoValue;         // of the target texts
  ValueId counts = kNoValue, slot_ids = kNoValue;
  int64_t slots = 1;
};

// Returns the values of the source part that the rest reads, in the order of their ids, without
// inputs. Throws Error(usage) for integer values, which cannot be stored.
std::vector<ValueId> values_of_source(const Graph& graph, const SourceCut& cut);

// Replaces the values by values read from the slots; the nodes that computed them become dead code.
// `in_order`: sample n uses slot n.
void read_from_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut,
                     bool in_order);
// Writes the values into the slots; the graph must be that of one text.
void write_to_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut);

}  // namespace dltrain
