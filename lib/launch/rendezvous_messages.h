// What launchers write to each other at the store (launch/rendezvous.h), as JSON.
//
// Whatever another launcher wrote and this version does not understand is Error(rank).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "launch/rendezvous.h"

namespace dltrain::launch_messages {

nlohmann::json parse(const std::string& text);

template <typename T>
T field(const nlohmann::json& object, const char* name) {
  try {
    return object.at(name).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(ExitCode::rank, "another launcher wrote no '{}'; is it of the same version?", name);
  }
}

nlohmann::json to_json(const LaunchNode& node);
LaunchNode node_from(const nlohmann::json& object);

// `place`: of the launcher that tells it. Only the first bytes of long lines are told.
std::string to_text(const Failure& failure, int place);
Failure failure_from(const nlohmann::json& object);

// Of what launchers write when they come, their entries:

// What is wrong with the node ranks that were asked for, in ascending order; empty: nothing.
std::string contradiction(const std::vector<nlohmann::json>& entries);
// --nnodes as it was given.
std::string nodes_text(const LaunchOptions& options);
// What the launchers of one run must have been given alike, and two have not; empty: nothing.
std::string difference(const nlohmann::json& a, const nlohmann::json& b);
// The leader cannot know how its host is reached; the others do, where there are others.
void set_own_address(std::vector<nlohmann::json>& entries);

}  // namespace dltrain::launch_messages
