// The model and the memory of a run for its report, from a plan made on this machine.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "run/run_record.h"
#include "run/session.h"

namespace dltrain {

// {"parameters", "inputs", "output", "device", "flops_per_step", "kernel_calls", "layers":
// [{"name", "copies", "parameters", "activation_bytes", "forward_flops", "backward_flops"}],
// "memory":
// [{"what", "bytes"}], "host_memory", "timeline": {"at", "bytes", "what": [of each call], "phases":
// [{"name", "from"}], "peak": {"bytes", "what", "largest": [{"what", "bytes"}]}}}; {"problem"} if
// the run cannot be planned here, for example because its data is elsewhere. `predictions`: of
// report_predictions(); gets the images of its samples, as "images": data URIs of PNG files, if the
// inputs are images.
nlohmann::ordered_json report_model(const RunRecord& run, const Engines& engines,
                                    nlohmann::ordered_json& predictions);

}  // namespace dltrain
