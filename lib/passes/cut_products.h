// Hides messages of sequence parallelism in the forward behind the products beside them (Wang et
// al. 2023, "Overlap Communication with Dependent Computation via Decomposition").
//
// A product that reads gathered rows, or whose result is summed and scattered to the ranks, is cut
// along the rows into pieces with a message each, so that all but one piece of the message is on
// its way while a product runs. A piece has the same part of the rows of every rank. The rows of
// each product and the order of its sums are the same as before. The backward reads the rows
// gathered in one piece, by a gather of its own.
//
// Runs after the reverse pass and before lower_context(). overlap_messages() then moves the ends
// of messages to their readers.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace dltrain {

// Returns the number of pieces of a product: 1 leaves it whole. `product`: the first one that reads
// a message, or the one that makes it. `message`: bytes that a rank receives. `copied`: bytes that
// are copied if there are pieces. `even`: the ranks have shards of one size of what these products
// read. All ranks must return the same number; without `even` their products and copies differ.
using PiecesOfProduct =
    std::function<int(const Node& product, double message, double copied, bool even)>;

// Returns the number of messages that have been cut.
int cut_products(Graph& graph, const PiecesOfProduct& pieces);

}  // namespace dltrain
