// The routers of mixtures of experts (layer moe): the losses that are added to the loss of
// training, and what reports tell about them.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct RouterInfo {
  std::string layer;
  int64_t experts = 0, choices = 0;            // E and K of lib/ops/experts.cpp
  double balance_loss = 0, router_z_loss = 0;  // coefficients of the losses
  // passes/expert_cut.h; if it has rewritten the layer, the sums of place_rows follow those of
  // router_losses.
  int64_t owners = 1;
  double buffer = 0, capacity = 0;
};

// The outputs of router_losses of one layer.
struct EmittedRouter {
  RouterInfo info;
  ValueId losses = kNoValue, sums = kNoValue;
};

// The sums of a router over all micro-batches of a step or of an evaluation.
struct RouterSums {
  RouterInfo info;
  std::vector<double> sums;
};

struct RouterReport {
  // Means over all routers: balance_loss and router_z_loss without their coefficients,
  // router_entropy in nats, and the largest share of tokens that one expert got (max_expert_load).
  // With a capacity they have dropped_share, the share of the chosen pairs of a token and an expert
  // that was dropped. With experts on several ranks they have expert_buffer, the greatest buffer
  // that a message needed (parallelism.expert_buffer).
  std::vector<std::pair<std::string, double>> values;
  // For each layer the share of the tokens that chose each expert; balanced it is K / E.
  std::vector<std::pair<std::string, std::vector<double>>> load;
};

RouterReport report_routers(std::span<const RouterSums> routers);

// Returns what is wrong if rows did not find room in the buffers between ranks: the layer, and what
// would have been enough. Otherwise an empty string.
std::string check_buffers(std::span<const RouterSums> routers);

// Returns what the routers add to the loss: the sum of their losses times the coefficients.
double added_loss(std::span<const RouterSums> routers);

}  // namespace dltrain
