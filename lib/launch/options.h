// Parses the values of torchrun's flags. Invalid values are Error(usage) naming the flag.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "launch/launcher.h"

namespace dltrain {

// --nnodes: "4", or "1:4" for any number from 1 to 4.
std::pair<int, int> parse_nodes(const std::string& text);

// --nproc-per-node: a number, cpu (one rank per CPU of this process), gpu (one per GPU), auto (gpu
// if there is one, else cpu). `gpus` is called only if needed.
int parse_processes(const std::string& text, const std::function<int()>& gpus);

// --rdzv-endpoint: "host", "host:port" or "[::1]:port". The port defaults to `default_port`.
std::pair<std::string, int> parse_endpoint(const std::string& text, int default_port);

// --rdzv-conf: "join_timeout=60,last_call_timeout=5,read_timeout=30" (seconds).
void parse_rendezvous_conf(const std::string& text, LaunchOptions& to);

}  // namespace dltrain
