#include "experiment/parallelism_config.h"

#include <tuple>
#include <utility>

#include "base/parse_number.h"
#include "passes/stage_cut.h"

namespace dltrain {
namespace {

// The number in a text; 0 for anything else.
double factor_in(const std::string& text) {
  const double number = parse_number<double>(text).value_or(0);
  return number > 0 && number <= 1e6 ? number : 0;
}

}  // namespace

void ParallelismConfig::describe(Fields& f) {
  f.choice("layout", layout,
           {{"given", LayoutChoice::given, "by the keys below"},
            {"auto", LayoutChoice::automatic,
             "`train`, `profile` and `plan` choose tensor, sequence_parallel, pipeline and its "
             "schedule, zero_stage, training.micro_batch_size and memory.recompute: the fastest "
             "for the started ranks that fits, by the estimates of `plan --search`. `context` and "
             "`expert` stay as given, as does the global batch. One rank has no layout"}},
           {.doc = "How the ranks share the model"});
  f.integer("data", data,
            {.doc = "Data-parallel ranks; −1: as many as were started",
             .min = -1,
             .known_as = {"data_parallel", "dp"}});
  f.integer("tensor", tensor,
            {.doc = "Ranks that share each layer (tensor parallelism): neighbouring ranks compute "
                    "shards of the products of the same samples. The number of ranks is data × "
                    "context × tensor × pipeline",
             .min = 1,
             .max = 1024,
             .known_as = {"tensor_parallel", "tp", "tensor_model_parallel_size",
                          "tensor_parallel_size", "tensor_parallel_degree"}});
  f.boolean("sequence_parallel", sequence_parallel,
            {.doc = "With `tensor`: each rank has its rows only (samples or tokens) of the values "
                    "between the products that ranks share. Activations take less memory, and "
                    "messages have as many bytes",
             .known_as = {"sp"}});
  f.integer(
      "product_pieces", product_pieces,
      {.doc = "With `sequence_parallel`: pieces into which products are cut in the forward, so "
              "that the messages before or after them are on their way while a product runs; "
              "1: none. Absent: what is fastest by the cost model on a GPU, 1 on the CPU",
       .min = 1,
       .max = 16,
       .known_as = {"tp_comm_overlap", "async_tensor_parallel"}});
  f.integer(
      "context", context,
      {.doc = "Ranks that share the tokens of each sample (context parallelism): each computes "
              "a part of them, and attention gathers keys and values. For long texts: "
              "activations take 1/context of the memory",
       .min = 1,
       .max = 1024,
       .known_as = {"context_parallel", "cp", "context_parallel_size", "context_parallel_degree"}});
  f.choice("context_method", context_method,
           {{"all_gather", ContextMethod::all_gather,
             "every rank gets the keys and values of all tokens, in the backward again"},
            {"ring", ContextMethod::ring,
             "they pass from rank to rank while attention to those that have arrived is "
             "computed"}},
           {.doc = "How attention reaches the tokens of other ranks",
            .known_as = {"cp_comm_type", "rotate_method"}});
  f.integer("pipeline", pipeline,
            {.doc = "Stages of the model (pipeline parallelism): each group of ranks has some of "
                    "the layers, and the micro-batches of a step pass through them",
             .min = 1,
             .max = 64,
             .known_as = {"pipeline_parallel", "pp", "pipeline_model_parallel_size",
                          "pipeline_parallel_size", "pipeline_parallel_degree"}});
  f.integer(
      "expert", expert,
      {.doc = "Ranks over which the experts of a mixture (layer moe) are divided. It does not "
              "multiply the number of ranks: groups of so many data-parallel and context ranks "
              "exchange their tokens",
       .min = 1,
       .max = 1024,
       .known_as = {"expert_parallel", "ep", "expert_model_parallel_size", "expert_parallel_size",
                    "expert_parallel_degree", "ep_size"}});
  f.text(
      "expert_buffer", expert_buffer,
      {.doc = "Rows that a rank has room for in a message to another rank of its group: `worst`, "
              "those of all its tokens; or a multiple of the average. If a step needs more, it "
              "changes nothing and the run ends with exit code 5"});
  f.text("expert_capacity", expert_capacity,
         {.doc = "Tokens of a micro-batch that an expert takes in training, the first ones: "
                 "`dropless`, all; or a multiple of the average, and further tokens go without it",
          .known_as = {"capacity_factor", "moe_capacity_factor", "moe_expert_capacity_factor"}});
  f.choice(
      "pipeline_schedule", pipeline_schedule,
      {{"1f1b", PipelineSchedule::one_forward_one_backward,
        "forward and backward in turn: a stage has at most as many micro-batches in memory as "
        "there are stages"},
       {"gpipe", PipelineSchedule::gpipe, "all forwards, then all backwards"},
       {"interleaved", PipelineSchedule::interleaved,
        "1f1b with several stages on each rank (virtual_stages), between which it takes turns: "
        "ranks wait less, and exchange more messages"},
       {"zero_bubble", PipelineSchedule::zero_bubble,
        "1f1b that computes the gradients of weights while ranks would wait (ZB-H1, Qi et al. "
        "2023): they wait a third, and every stage has as many micro-batches in memory as there "
        "are stages, and one more"}},
      {.doc = "Order of the micro-batches on a rank. Losses do not depend on it"});
  f.integer(
      "virtual_stages", virtual_stages,
      {.doc = "Stages of each rank along `pipeline`, with pipeline_schedule interleaved: stage "
              "s is on rank s modulo `pipeline`",
       .min = 1,
       .max = 64,
       .known_as = {"interleave", "num_virtual_stages", "virtual_pipeline_degree",
                    "virtual_pipeline_model_parallel_size"}});
  f.texts("pipeline_stages", pipeline_stages,
          {.doc = "Layers with which the second and every later stage begin: their paths, as "
                  "`dltrain plan` prints them. Absent or `auto`: chosen by the time of the layers "
                  "and the size of messages",
           .scalar_ok = true});
  f.number("timeout", timeout,
           {.doc = "Seconds without a heartbeat of a rank, or of waiting in a collective, after "
                   "which the run ends with exit code 6",
            .min = 0.1,
            .max = 864000,
            .known_as = {"ddp_timeout", "nccl_timeout"}});
  f.number(
      "join_timeout", join_timeout,
      {.doc = "Seconds that the first rank waits for the others, and ranks that save shards for "
              "the run folder that all share",
       .min = 0.1,
       .max = 864000});
  f.number("straggler_factor", straggler_factor,
           {.doc = "A rank is reported as slow if its time per step, without waiting for others, "
                   "stays above this multiple of the median; 0: never",
            .min = 0,
            .max = 1000});
  f.integer("zero_stage", zero_stage,
            {.doc = "What is sharded over the data-parallel ranks (ZeRO): 0 nothing, 1 "
                    "optimizer moments and master weights, 2 gradients too, 3 parameters too",
             .min = 0,
             .max = 3,
             .known_as = {"zero", "stage", "fsdp", "zero_optimization"}});
  f.text("zero_shard_size", zero_shard_size,
         {.doc = "Ranks over which ZeRO shards: `all`; `node`: those of each node; or a number of "
                 "neighbouring ranks. Every such group holds all state, gathers stay within it, "
                 "and gradients are added between groups once a step (hybrid sharding)",
          .known_as = {"mics_shard_size", "zero_hpz_partition_size", "dp_shard_size",
                       "data_parallel_shard_degree", "sharding_strategy", "hybrid_shard"}});
  f.number("bucket_mb", bucket_mb,
           {.doc = "MiB of f32 gradients or parameters that are sent as one message",
            .max = 65536,
            .above = 0,
            .known_as = {"bucket_cap_mb", "reduce_bucket_size"}});
  f.choice("reduce_dtype", reduce_dtype,
           {{"f32", DType::f32, "as they are"},
            {"bf16", DType::bf16, "rounded on each rank, added in f32 and rounded again"}},
           {.doc = "Element type in which f32 gradients are sent between ranks",
            .known_as = {"communication_data_type", "compression", "allreduce_dtype"}});
  f.choice(
      "collectives", collectives,
      {{"auto", CollectiveBackendKind::automatic,
        "nccl if every rank has its own GPU and the library, otherwise staged"},
       {"nccl", CollectiveBackendKind::nccl, "NVIDIA's library, or an error"},
       {"staged", CollectiveBackendKind::staged, "through host memory; ranks may share a GPU"}},
      {.doc = "Backend of collectives between ranks on GPUs",
       .known_as = {"backend", "ddp_backend", "distributed_backend"}});
}

int ParallelismConfig::shard_number() const {
  return parse_number<int>(zero_shard_size).value_or(0);
}
double ParallelismConfig::buffer_factor() const {
  return factor_in(expert_buffer);
}
double ParallelismConfig::capacity_factor() const {
  return factor_in(expert_capacity);
}

std::vector<std::string> ParallelismConfig::keys_of_model() const {
  std::vector<std::string> out;
  if (tensor > 1) out.emplace_back("tensor");
  if (context > 1) out.emplace_back("context");
  if (pipeline > 1) out.emplace_back("pipeline");
  return out;
}

std::vector<std::string> ParallelismConfig::idle_keys() const {
  // No errors: a sweep over the ranks of an axis has the same keys for one rank.
  const std::tuple<const char*, bool, const char*, int64_t> keys[] = {
      {"context_method", context_method != ContextMethod::all_gather, "context", context},
      {"pipeline_stages", !chooses_stages(), "pipeline", pipeline},
      {"pipeline_schedule", pipeline_schedule != PipelineSchedule::one_forward_one_backward,
       "pipeline", pipeline},
      {"virtual_stages", virtual_stages > 1, "pipeline", pipeline},
      {"expert_buffer", expert_buffer != "worst", "expert", expert}};
  std::vector<std::string> out;
  for (const auto& [key, given, axis, ranks] : keys) {
    if (given && ranks == 1) {
      out.push_back(fmt::format("parallelism.{} has no effect with {}: 1; it needs {} of 2 or more",
                                key, axis, axis));
    }
  }
  return out;
}

void ParallelismConfig::validate(Diagnostics& diagnostics) const {
  if (layout == LayoutChoice::automatic) {
    const std::pair<const char*, bool> chosen[] = {{"data", data != -1},
                                                   {"tensor", tensor != 1},
                                                   {"sequence_parallel", sequence_parallel},
                                                   {"pipeline", pipeline != 1},
                                                   {"pipeline_stages", !chooses_stages()},
                                                   {"zero_stage", zero_stage != 0}};
    for (const auto& [key, given] : chosen) {
      if (given) diagnostics.add(*this, key, "layout: auto chooses {}; remove one of them", key);
    }
  }
  const bool word = zero_shard_size == "all" || zero_shard_size == "node";
  if (!word && shard_number() < 1) {
    diagnostics.add(*this, "zero_shard_size", "'{}' is neither all, node nor a number of ranks",
                    zero_shard_size);
  } else if (zero_shard_size != "all" && zero_stage == 0) {
    diagnostics.add(*this, "zero_shard_size",
                    "zero_shard_size {} has no effect with zero_stage 0; give zero_stage 1, 2 or 3",
                    zero_shard_size);
  }
  if (sequence_parallel && tensor == 1 && layout == LayoutChoice::given) {
    diagnostics.add(*this, "sequence_parallel",
                    "sequence_parallel has no effect with tensor: 1; give tensor: 2 or more");
  }
  if (product_pieces.value_or(1) > 1 && !sequence_parallel) {
    diagnostics.add(*this, "product_pieces",
                    "product_pieces has no effect without sequence_parallel: true");
  }
  if (expert_buffer != "worst" && buffer_factor() < 1) {
    diagnostics.add(*this, "expert_buffer", "'{}' is neither worst nor a number of at least 1",
                    expert_buffer);
  }
  if (expert_capacity != "dropless" && capacity_factor() == 0) {
    diagnostics.add(*this, "expert_capacity", "'{}' is neither dropless nor a positive number",
                    expert_capacity);
  }
  const bool interleaved = pipeline_schedule == PipelineSchedule::interleaved;
  if (interleaved && virtual_stages == 1) {
    diagnostics.add(*this, "virtual_stages",
                    "pipeline_schedule interleaved needs several stages on each rank; give "
                    "virtual_stages of 2 or more");
  } else if (!interleaved && virtual_stages > 1) {
    diagnostics.add(*this, "virtual_stages",
                    "virtual_stages {} needs pipeline_schedule: interleaved", virtual_stages);
  }
  if (pipeline == 1) return;
  const int64_t stages = pipeline * virtual_stages;
  if (stages > kMostStages) {
    diagnostics.add(*this, "virtual_stages", "{} stages on each of {} ranks are more than {}",
                    virtual_stages, pipeline, kMostStages);
  }
  if (chooses_stages()) return;
  if (std::ssize(*pipeline_stages) != stages - 1) {
    diagnostics.add(*this, "pipeline_stages",
                    "{} layer{}, but {} stages need {}: that with which the second stage begins, "
                    "and so on",
                    pipeline_stages->size(), pipeline_stages->size() == 1 ? "" : "s", stages,
                    stages - 1);
  }
}

}  // namespace dltrain
