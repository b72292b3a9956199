// Programs that are generated for fused groups, compiled by the C++ compiler over the emulation:
// they compute what the reference computes.
#include "cuda/fused_source.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include <dlfcn.h>
#include <fmt/format.h>

#include "catch.h"
#include "cuda/fused_operands.h"
#include "cuda_emulation/emulation.h"
#include "max_or_inf.h"
#include "ops/case.h"
#include "ops/kernel.h"
#include "ops/runner.h"
#include "reference/engine.h"
#include "temporary_folder.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

struct SourceProgram {
  const OpCase* op_case = nullptr;  // of those that have it the one with many packs and a rest
  FusedTypes types;
  std::string name;
};

std::string text_of(const SourceProgram& p) {
  const auto steps = parse_fused_program(p.op_case->attributes.text("program"));
  return fused_source(steps, p.types, p.name);
}

// Every program of the op cases, in each format, and with operands of three formats.
std::vector<SourceProgram> programs() {
  std::vector<SourceProgram> out;
  std::map<std::string, bool> seen;
  for (const OpCase& c : op_cases()) {
    if (c.op != "fused_elementwise" || !(c.inputs[0].spec.shape == Shape{33, 65}) ||
        seen[c.attributes.text("program")]) {
      continue;
    }
    seen[c.attributes.text("program")] = true;
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      out.push_back(
          {&c, {std::vector(c.inputs.size(), dtype), dtype}, fmt::format("program{}", out.size())});
    }
    constexpr DType kFormats[] = {DType::f32, DType::bf16, DType::f16};
    for (size_t first : {0, 1, 2}) {
      FusedTypes types{{}, kFormats[first]};
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        types.inputs.push_back(kFormats[(first + 1 + i) % 3]);
      }
      out.push_back({&c, types, fmt::format("program{}", out.size())});
    }
  }
  return out;
}

using Entry = void (*)(FusedOperands, int64_t, int64_t);

class Compiled {
 public:
  explicit Compiled(const std::vector<SourceProgram>& list) {
    std::string source = "#include \"cuda_emulation/emulation.h\"\n";
    for (const SourceProgram& p : list) source += text_of(p);
    const auto file = folder_.write("programs.cpp", source);
    const auto library = folder_ / "programs.so";
    const std::string root = DLTRAIN_SOURCE_DIR;
    const std::string command = fmt::format(
        "{} -std=c++20 -O1 -ffp-contract=off -fsanitize=alignment -fno-sanitize-recover=alignment "
        "-fPIC -shared -I{}/lib -I{}/kernels -I{}/tests {} -o {}",
        DLTRAIN_CXX_COMPILER, root, root, root, file.string(), library.string());
    REQUIRE(std::system(command.c_str()) == 0);
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    INFO((library_ == nullptr ? dlerror() : ""));
    REQUIRE(library_ != nullptr);
  }
  Entry entry(const SourceProgram& p) const {
    const auto found = reinterpret_cast<Entry>(dlsym(library_, p.name.c_str()));
    REQUIRE(found != nullptr);
    return found;
  }

 private:
  TemporaryFolder folder_;
  void* library_ = nullptr;  // never closed: the emulation's fibers may stand in it
};

// A tensor of a case in memory of its own, aligned or not.
struct Memory {
  std::vector<std::byte> bytes;
  size_t at = 0;
  Memory(size_t size, bool aligned) : bytes(size + 64) {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    at = (16 - address % 16) % 16 + (aligned ? 0 : 8);
  }
  std::byte* data() { return bytes.data() + at; }
};

double tolerance(DType dtype) {
  if (dtype == DType::f64) return 1e-12;
  return dtype == DType::f32 ? 3e-6 : dtype == DType::bf16 ? 5e-3 : 1e-3;
}

// The greatest difference, relative to the greatest value.
double difference(const SourceProgram& p, Entry entry, bool aligned) {
  OpRunner reference(reference_engine());
  OpRun run{
      .op = p.op_case->op, .attributes = case_attributes(*p.op_case, DType::f64), .inputs = {}};
  FusedOperands operands{};
  std::vector<Memory> inputs;
  int64_t count = 0;
  for (const HostTensor& given : case_inputs(*p.op_case, DType::f64)) {
    const HostTensor x = converted(given, p.types.inputs[inputs.size()]);
    run.inputs.push_back(converted(x, DType::f64));
    count = x.elements();
    inputs.emplace_back(x.data.size(), aligned);
    std::memcpy(inputs.back().data(), x.data.data(), x.data.size());
  }
  const HostTensor expected = reference.run(run).outputs[0];
  HostTensor found({expected.spec.shape, p.types.result});
  Memory output(found.data.size(), aligned);
  for (size_t i = 0; i < inputs.size(); ++i) operands.input[i] = inputs[i].data();
  operands.output = output.data();
  const int64_t width = fused_pack(p.types);
  emulation::launch(p.name.c_str(), 3u, 64u,
                    [&] { entry(operands, aligned ? count / width : 0, count); });
  std::memcpy(found.data.data(), output.data(), found.data.size());
  double worst = 0, scale = 1e-30;
  for (int64_t k = 0; k < count; ++k) scale = std::max(scale, std::abs(expected.get(k)));
  for (int64_t k = 0; k < count; ++k) {
    worst = max_or_inf(worst, std::abs(found.get(k) - expected.get(k)) / scale);
  }
  return worst;
}

TEST_CASE("generated programs of fused groups compute what the reference computes") {
  const std::vector<SourceProgram> list = programs();
  REQUIRE(list.size() >= 4 * 4);
  const Compiled compiled(list);
  for (const SourceProgram& p : list) {
    const Entry entry = compiled.entry(p);
    for (const bool aligned : {true, false}) {
      INFO(p.op_case->name << " to " << dtype_name(p.types.result)
                           << (aligned ? "" : ", not aligned"));
      CHECK(difference(p, entry, aligned) < tolerance(p.types.result));
    }
  }
}

TEST_CASE("the headers of generated programs are whole") {
  size_t own = 0;
  for (const SourceHeader& header : fused_source_headers()) {
    INFO(header.name);
    const std::string name = header.name, text = header.text;
    CHECK(text.size() > 50);
    own += name.find('/') != std::string::npos ? 1 : 0;
    // Their includes exist.
    for (size_t at = text.find("#include \""); at != std::string::npos;
         at = text.find("#include \"", at + 1)) {
      const std::string wanted = text.substr(at + 10, text.find('"', at + 10) - at - 10);
      bool found = false;
      for (const SourceHeader& other : fused_source_headers()) found |= wanted == other.name;
      INFO(wanted);
      CHECK(found);
    }
  }
  CHECK(own == 7);
}

}  // namespace
}  // namespace dltrain
