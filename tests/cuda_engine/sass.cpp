// The machine code of hot kernels, disassembled: accesses of 128 bits, nothing in local memory, and
// few enough registers for the warps that hide the latency of memory. The same for the programs
// that NVRTC compiles for the fused groups of the target models. Needs cuobjdump and nvdisasm
// (scripts/cuda_disassembler.sh).
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <cxxabi.h>
#include <fmt/format.h>

#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "cuda/fused_source.h"
#include "cuda/vendor/nvrtc.h"
#include "reference/engine.h"
#include "run/session.h"
#include "temporary_folder.h"

namespace dltrain {
namespace {

std::vector<std::string> lines_of(const std::string& command) {
  const std::string path =
      "PATH=" DLTRAIN_SOURCE_DIR "/.deps/cuda-disassembler/bin:$PATH:" DLTRAIN_CUDA_BIN "; ";
  FILE* pipe = popen((path + command).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::vector<std::string> lines;
  char* line = nullptr;
  size_t capacity = 0;
  for (ssize_t n; (n = getline(&line, &capacity, pipe)) > 0;) {
    lines.emplace_back(line, line[n - 1] == '\n' ? n - 1 : n);
  }
  std::free(line);
  pclose(pipe);
  return lines;
}

bool has_disassembler() {
  if (!lines_of("command -v cuobjdump && command -v nvdisasm").empty()) return true;
  WARN("Skipped: no cuobjdump with nvdisasm; scripts/cuda_disassembler.sh gets them");
  return false;
}

struct MachineCode {
  int registers = 0, stack = 0, shared = 0;
  int loads = 0, stores = 0, local = 0;  // 128-bit accesses; accesses to local memory

  // Returns the number of warps that fit on a multiprocessor of Hopper, which has 65536 registers,
  // given out in units of 8 a thread, and 227 KiB of shared memory.
  int warps(int threads) const {
    int blocks = 65536 / ((registers + 7) / 8 * 8 * threads);
    blocks = std::min(blocks, 232448 / std::max(shared, 1));
    return std::min(blocks, 2048 / threads) * threads / 32;
  }
};

// "cast_kernel<float, Narrow<Bf16> >" for a mangled name.
std::string short_name(const std::string& mangled) {
  char* plain = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr);
  std::string name = plain != nullptr ? plain : mangled;
  std::free(plain);
  name = std::regex_replace(name, std::regex("dltrain::|\\(anonymous namespace\\)::|^void "), "");
  return name.substr(0, name.find('('));
}

// The kernels of a file whose names match, by name.
std::map<std::string, MachineCode> disassembled(const std::string& file, const std::string& options,
                                                const std::regex& wanted) {
  std::map<std::string, MachineCode> kernels;
  std::string name;
  for (const std::string& line :
       lines_of(fmt::format("cuobjdump {} --dump-resource-usage {} 2>/dev/null", options, file))) {
    std::smatch found;
    if (std::regex_match(line, found, std::regex(" *Function ([^ ]*):"))) {
      name = found[1];
    } else if (std::regex_search(line, found,
                                 std::regex("REG:(\\d+) STACK:(\\d+) SHARED:(\\d+)")) &&
               std::regex_match(short_name(name), wanted)) {
      kernels[short_name(name)] = {std::stoi(found[1]), std::stoi(found[2]), std::stoi(found[3])};
    }
  }
  if (kernels.empty()) return kernels;
  auto at = kernels.end();
  const char* accesses = "'Function : .*|(LDG|LDGSTS|STG)[.]E[.A-Z0-9]*[.]128|(LDL|STL)[. ]'";
  for (const std::string& line : lines_of(fmt::format(
           "cuobjdump {} -sass {} 2>/dev/null | grep -oE {}", options, file, accesses))) {
    if (line.starts_with("Function : ")) at = kernels.find(short_name(line.substr(11)));
    if (at == kernels.end()) continue;
    at->second.local += line.starts_with("LDL") || line.starts_with("STL") ? 1 : 0;
    at->second.loads += line.starts_with("LDG") ? 1 : 0;
    at->second.stores += line.starts_with("STG") ? 1 : 0;
  }
  return kernels;
}

void check_code(const MachineCode& code, int loads, int stores, int warps) {
  INFO(code.registers << " registers, " << code.shared << " B of shared memory");
  CHECK(code.stack == 0);
  CHECK(code.local == 0);
  CHECK(code.loads >= loads);
  CHECK(code.stores >= stores);
  CHECK(code.warps(256) >= warps);
}

struct HotKernel {
  const char* names;  // a regular expression of short names
  int loads, stores;  // least number of 128-bit accesses
  int warps = 32;     // least number on a multiprocessor (device_code.cuh)
};

// Kernels with a number of elements a thread: those for packs.
constexpr HotKernel kHot[] = {
    {"cast_kernel<.*>", 1, 1},
    {"elementwise_kernel<(float|Narrow.*)>", 2, 1},
    {"bias_activation_kernel<(float|Narrow.*), [48]>", 2, 1},
    {"reduce_columns<(float|Narrow.*), float, [48]>", 1, 0},
    {"cross_entropy_kernel<(float|Narrow.*), (32|256)>", 3, 0},
    {"cross_entropy_backward_kernel<(float|Narrow.*), (32|256)>", 1, 1},
    {"held_cross_entropy_kernel<(float|Narrow.*)>", 1, 1},
    {"softmax(_backward)?_kernel<(float|Narrow.*), (32|256)>", 2, 1},
    {"row_norm_kernel<(float|Narrow.*), .*, [48], (32|256), 0>", 2, 1},
    // A row in registers: its loads are all on their way at once.
    {"row_norm_kernel<(float|Narrow.*), .*, [48], (32|256), [1248]>", 2, 1, 24},
    {"row_norm_backward_kernel<(float|Narrow.*), .*, [48], (true|false), (true|false)>", 2, 1},
    {"(statistics|gradient_sums)_kernel<(float|Narrow.*), [48]>", 1, 0, 24},
    {"(normalise|input_gradient)_kernel<(float|Narrow.*), [48]>", 2, 1, 24},
    {"dropout_kernel<(float|Narrow.*)>", 1, 1},
    {"element_update_kernel<float, .*>", 2, 1},
    {"block_update_kernel<.*>", 4, 2, 24},
    {"low_precision_update_kernel<float, .*>", 2, 1},
    {"sum_of_squares_kernel<float>", 1, 0},
    {"ema_update_kernel<float>", 2, 1},
    {"tree_sum_kernel<float>", 2, 2},
    {"fp8_codes(_transposed)?_kernel<Narrow.*>", 2, 1, 24},
    {"fp8_code_blocks_kernel<(float|Narrow.*)>", 4, 2},
    {"strided_copy_kernel<Pack<unsigned long>, unsigned int>", 1, 1},
};

TEST_CASE("hot kernels have wide accesses, no local memory and enough warps") {
  if (!has_disassembler()) return;
  std::string all;
  for (const HotKernel& hot : kHot) all += fmt::format("{}{}", all.empty() ? "" : "|", hot.names);
  const auto kernels = disassembled(DLTRAIN_CUDA_PLUGIN, "-arch sm_90a", std::regex(all));
  if (kernels.empty()) {
    WARN("Skipped: the engine was built without code for sm_90a");
    return;
  }
  for (const HotKernel& hot : kHot) {
    int found = 0;
    for (const auto& [name, code] : kernels) {
      if (!std::regex_match(name, std::regex(hot.names))) continue;
      INFO(name);
      check_code(code, hot.loads, hot.stores, hot.warps);
      ++found;
    }
    INFO(hot.names);
    CHECK(found > 0);
  }
}

// The models of the goals in bf16, with two layers where all are alike.
constexpr std::array<const char*, 2> kTargets[] = {
    {"{type: gpt2, num_layers: 2}", "{type: synthetic_tokens, vocab_size: 50257, length: 64}"},
    {"{type: qwen2_5_1_5b, num_layers: 2}",
     "{type: synthetic_tokens, vocab_size: 151936, length: 64}"},
    {"{type: bert_large, num_layers: 2}",
     "{type: synthetic_tokens, vocab_size: 30522, length: 64, masked: 0.15}"},
    {"{type: bert_large, num_layers: 2, dropout: 0}",
     "{type: synthetic_tokens, vocab_size: 30522, length: 64, masked: 0.15}"},
    {"{type: resnet50}", "{type: synthetic, shape: [64, 64, 3], classes: 10, samples: 32}"},
    {"{type: char_lstm}", "{type: synthetic_tokens, vocab_size: 65, length: 64}"},
};

struct FusedProgram {
  int inputs = 0;
  std::string model;
};

// The fused groups of the targets by their source.
std::map<std::string, FusedProgram> target_programs() {
  std::map<std::string, FusedProgram> programs;
  for (const auto& [model, data] : kTargets) {
    const auto take = [&, text = model](std::string_view pass, const Graph& graph) {
      if (pass != "fuse") return;
      for (const Node& node : graph.nodes) {
        if (node.op->name != "fused_elementwise") continue;
        FusedTypes types{{}, graph.value(node.outputs[0]).spec.dtype};
        for (ValueId input : node.inputs) types.inputs.push_back(graph.value(input).spec.dtype);
        const auto steps = parse_fused_program(node.attributes.text("program"));
        programs.insert({fused_source(steps, types, "dltrain_fused"),
                         {static_cast<int>(types.inputs.size()), text}});
      }
    };
    auto experiment = load_config<Experiment>(
        {.files = {},
         .overrides = {fmt::format("model={}", model), fmt::format("data.train={}", data),
                       "loss=cross_entropy", "optimizer={type: adamw, learning_rate: 0.001}",
                       "training={global_batch_size: 2, max_steps: 1}", "device=cpu",
                       "precision.compute=bf16"}});
    open_session(experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
                              .log = take});
  }
  return programs;
}

TEST_CASE("the fused groups of the target models have wide accesses and no local memory") {
  if (!has_disassembler()) return;
  const TemporaryFolder folder;
  const auto programs = target_programs();
  CHECK(programs.size() >= 6);
  for (const auto& [source, program] : programs) {
    const std::string code = Nvrtc::find()->compile(source, fused_source_headers(), 90);
    std::ofstream(folder / "program.cubin", std::ios::binary) << code;
    const auto kernels =
        disassembled((folder / "program.cubin").string(), "", std::regex("dltrain_fused"));
    INFO(program.model << "\n" << source);
    REQUIRE(kernels.size() == 1);
    check_code(kernels.begin()->second, program.inputs, 1, 24);
  }
}

}  // namespace
}  // namespace dltrain
