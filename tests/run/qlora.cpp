// Bases in 4 and 8 bits (model.lora.base: int8, nf4; passes/frozen_base.h): they compute what a f32
// base with the expanded weights computes, in every layout. Codes are compared with bitsandbytes in
// tests/tensor/weight_codes.cpp, files and resuming are tested in tests/apps/test_lora.py.
#include "base/file.h"
#include "nn/lora.h"
#include "refusal.h"
#include "run/layout_run.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"

using namespace dltrain;
using Catch::Matchers::Contains;

namespace {

Network based(size_t network, const std::string& lora) {
  Network out = networks()[network];
  out.overrides.push_back("model.lora={rank: 4" + lora + "}");
  return out;
}

Session opened(Experiment& experiment) {
  return open_session(experiment,
                      {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
}

// Writes the initial values of a model, those that `network` keeps in codes as these give them
// back. Returns the number of the latter.
int write_expanded(const Network& network, const std::filesystem::path& path) {
  Experiment experiment = layout_experiment(network, {});
  const Session session = opened(experiment);
  std::vector<NamedTensor> names;
  std::vector<std::vector<float>> all;
  int coded = 0;
  for (const ParameterInfo& info : session.executor->training().parameters) {
    if (info.adaptation == Adaptation::adapter) continue;
    std::vector<float> file(static_cast<size_t>(info.spec.shape.elements())), memory(file.size());
    initialize(info.initializer, static_cast<uint64_t>(experiment.seed), info.name, file);
    if (info.codes.format != WeightFormat::wide) {
      const int64_t rows = info.spec.shape[0], columns = info.spec.shape[1];
      file_to_memory(info, file, memory);
      memory = decode_weight(info.codes, rows, columns,
                             encode_weight(info.codes, rows, columns, memory));
      memory_to_file(info, memory, file);
      ++coded;
    }
    names.push_back({info.name, {info.file.shape, DType::f32}});
    all.push_back(std::move(file));
  }
  FileWriter writer(path);
  SafetensorsWriter tensors(writer, names, {});
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.write(names[i].name, std::as_bytes(std::span(all[i])));
  }
  tensors.finish();
  writer.close();
  return coded;
}

}  // namespace

TEST_CASE("a base in codes computes what the expanded weights compute in f32, to the bit") {
  const TemporaryFolder folder;
  for (const char* base :
       {", base: nf4", ", base: int8", ", base: nf4, double_quantization: false"}) {
    for (const auto& [network, weights] : {std::pair(0, 2), {2, 8}}) {
      const auto file =
          folder.path() / fmt::format("{}-{}.safetensors", network, std::string(base).substr(8, 4));
      CHECK(write_expanded(based(network, base), file) == weights);
      for (const char* compute : {"precision.compute=f32", "precision.compute=bf16"}) {
        INFO(networks()[network].name << base << " " << compute);
        const LayoutRun codes = layout_run(based(network, base), 1, {compute});
        const LayoutRun wide = layout_run(based(network, ", save: adapters"), 1,
                                          {compute, "model.init_from=" + file.string()});
        CHECK(codes.losses == wide.losses);
        CHECK(codes.norms == wide.norms);
        CHECK(codes.state == wide.state);  // the adapters and their moments
        // The base differs from that in f32, so this test sees it.
        CHECK(codes.losses != layout_run(based(network, ""), 1, {compute}).losses);
      }
    }
  }
}

TEST_CASE("of a weight in codes the state has codes and scales, and checkpoints nothing") {
  for (const auto& [base, bits] : {std::pair("nf4", 4.25), {"int8", 10.1}}) {
    INFO(base);
    Experiment experiment = layout_experiment(based(2, fmt::format(", base: {}", base)), {});
    Session session = opened(experiment);
    const StateLayout& layout = session.executor->layout();
    double bytes = 0, elements = 0;
    for (const ParameterInfo& info : session.executor->training().parameters) {
      if (info.adaptation != Adaptation::frozen) continue;
      if (info.codes.format == WeightFormat::wide) {
        CHECK(layout.find(info.name)->role == Role::constant);
        continue;
      }
      CHECK(layout.find(info.name) == nullptr);
      elements += static_cast<double>(info.spec.shape.elements());
      for (const CodedPart& part :
           coded_parts(info.codes, info.spec.shape[0], info.spec.shape[1])) {
        bytes += static_cast<double>(layout.find(state_name(part.kind, info.name))->spec.bytes());
      }
    }
    CHECK(elements == 2 * (4 + 8) * 16 * 16);
    CHECK(8 * bytes / elements < bits);
    // No copy in another format, and no result that is kept from the forward to the backward.
    for (const StateTensor& tensor : layout.tensors()) {
      if (!rules_of(tensor.role).checkpointed) continue;
      CHECK_FALSE(adapted_module(tensor.owner).empty());
    }
    const Graph& graph = session.executor->training().graph;
    int expanded = 0;
    for (const Node& node : graph.nodes) {
      if (node.op->name != "dequantize") continue;
      ++expanded;
      for (const Node& reader : graph.nodes) {
        if (std::ranges::find(reader.inputs, node.outputs[0]) == reader.inputs.end()) continue;
        CHECK(reader.phase == node.phase);
      }
    }
    CHECK(expanded == 2 * 8 - 1);  // nothing before the first adapter learns
  }
}

TEST_CASE("a base in codes trains alike with recomputation, micro-batches and ranks") {
  const Network network = based(2, ", dropout: 0.1, base: nf4");
  const LayoutRun alone = layout_run(network, 1, {});
  for (const char* recompute : {"selective", "blocks", "full", "auto"}) {
    INFO(recompute);
    const LayoutRun run = layout_run(network, 1, {fmt::format("memory.recompute={}", recompute)});
    CHECK(run.losses == alone.losses);
    CHECK(run.state == alone.state);
  }
  const auto check = [&](int ranks, const std::vector<std::string>& overrides) {
    INFO(ranks << " ranks " << overrides[0]);
    const LayoutRun run = layout_run(network, ranks, overrides);
    CHECK(greatest_difference(run.losses, alone.losses) < 1e-5);
    CHECK(greatest_difference(run.norms, alone.norms) < 1e-5);
  };
  check(1, {"training.micro_batch_size=3"});
  check(2, {"training.micro_batch_size=3"});
  for (const char* layout : {"parallelism.zero_stage=1", "parallelism.zero_stage=2",
                             "parallelism.context=2", "parallelism.pipeline=2"}) {
    check(2, {layout, "training.micro_batch_size=3"});
  }
  const LayoutRun staged =
      layout_run(network, 2, {"parallelism.pipeline=2", "training.micro_batch_size=3"});
  CHECK(staged.report.arena_bytes < alone.report.arena_bytes);
  // Products in f32 by override read the codes too.
  const std::vector<std::string> mixed{"precision={compute: bf16, overrides: {'h.0.*': f32}}"};
  CHECK(greatest_difference(layout_run(network, 1, mixed).losses, alone.losses) < 2e-2);
}

TEST_CASE("checkpoints without the base, and what a base in codes refuses") {
  const LayoutRun all = layout_run(based(2, ""), 1, {});
  const LayoutRun adapters = layout_run(based(2, ", save: adapters"), 1, {});
  CHECK(adapters.losses == all.losses);
  CHECK(adapters.state.size() < all.state.size());
  for (const auto& [name, bytes] : adapters.state) CHECK(bytes == all.state.at(name));
  const auto refused = [](const std::string& lora, const std::vector<std::string>& more) {
    return refusal_of([&] { layout_experiment(based(2, lora), more); }, ExitCode::usage);
  };
  CHECK_THAT(refused(", base: nf4", {"parallelism.tensor=2"}), Contains("tensor or expert"));
  CHECK_THAT(refused(", base: int8", {"parallelism.zero_stage=3"}), Contains("zero_stage: 3"));
  CHECK_THAT(refused(", save: adapters", {"parallelism.zero_stage=3"}), Contains("zero_stage: 3"));
  CHECK_THAT(refused(", base: nf4, save: all", {}), Contains("hold no codes"));
  CHECK_THAT(refused(", base: int8, double_quantization: true", {}), Contains("only base: nf4"));
  CHECK_THAT(refused(", base: nf4, variant: dora", {}), Contains("dora reads the f32 weights"));
  CHECK_THAT(refused(", base: nf4", {"model.final_bias_from_data=true"}),
             Contains("final_bias_from_data"));
  CHECK_THAT(refusal_of([] { layout_run(based(2, ", base: nf4, match: lm_head"), 1, {}); },
                        ExitCode::usage),
             Contains("here there are none"));
}
