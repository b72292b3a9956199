// The section `parallelism` of an experiment.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_group.h"
#include "config/fields.h"

namespace dltrain {

enum class PipelineSchedule : uint8_t { one_forward_one_backward, gpipe, interleaved, zero_bubble };

enum class LayoutChoice : uint8_t { given, automatic };

enum class ContextMethod : uint8_t { all_gather, ring };

struct ParallelismConfig : ConfigObject {
  LayoutChoice layout = LayoutChoice::given;
  int64_t data = -1;
  int64_t tensor = 1;
  bool sequence_parallel = false;
  std::optional<int64_t> product_pieces;
  int64_t context = 1;
  ContextMethod context_method = ContextMethod::all_gather;
  int64_t pipeline = 1;
  int64_t expert = 1;
  std::string expert_buffer = "worst", expert_capacity = "dropless";  // or a factor
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  int64_t virtual_stages = 1;
  std::optional<std::vector<std::string>> pipeline_stages;  // absent or {"auto"}: chosen
  double timeout = 600, join_timeout = 60;                  // s
  double straggler_factor = 2;
  int64_t zero_stage = 0;
  std::string zero_shard_size = "all";  // or "node", or a number of ranks
  double bucket_mb = 25;
  DType reduce_dtype = DType::f32;
  CollectiveBackendKind collectives = CollectiveBackendKind::automatic;
  bool chooses_stages() const {
    return !pipeline_stages || *pipeline_stages == std::vector<std::string>{"auto"};
  }
  // The keys with which several ranks together have one copy of the model, and these ranks.
  std::vector<std::string> keys_of_model() const;
  int64_t ranks_of_model() const { return tensor * context * pipeline; }
  // The smallest number of ranks of this layout; `data` decides if it is given. Without it there
  // are as many data-parallel ranks as `expert` needs, which divides these times the context ranks.
  int64_t least_ranks() const {
    return (data > 0 ? data : expert / std::gcd(expert, context)) * ranks_of_model();
  }
  int shard_number() const;  // the number in zero_shard_size; 0 for a word
  // passes/expert_cut.h; 0 for the words.
  double buffer_factor() const;
  double capacity_factor() const;
  size_t bucket_bytes() const { return static_cast<size_t>(bucket_mb * (1 << 20)); }
  // Sentences about keys whose axis has one rank, with which they have no effect.
  std::vector<std::string> idle_keys() const;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

}  // namespace dltrain
