// Sums over whole tensors that an optimizer needs (LARS, LAMB, Adafactor), where ranks hold parts
// of the tensors: they are added up over these ranks before the step that reads them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "graph/builder.h"

namespace dltrain {

class TensorSums {
 public:
  // `builder`: of the update. `slot`: that of the next message.
  TensorSums(GraphBuilder& builder, const Mesh& mesh, int64_t& slot)
      : builder_(builder), mesh_(mesh), slot_(slot) {}

  // Emits the messages for the sums that a node reads, and makes it read their results.
  void add_up(Node& node);
  // Notes the sums that a node of the graph makes, of parts that the ranks of `axes` hold.
  void note(const Node& node, const std::string& axes);

 private:
  GraphBuilder& builder_;
  const Mesh& mesh_;
  int64_t& slot_;
  std::map<std::string, std::vector<ValueId>> open_;  // by axes: not yet added up
  Replacements results_;
};

// Returns the axis over which a parameter is sharded, without that of ZeRO; "" for none.
std::string cut_axis(const GraphValue& parameter);

}  // namespace dltrain
