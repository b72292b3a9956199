// gpu_check: compares every op case on an engine with the reference engine, and times ops. Part of
// the bundle that scripts/gpu_check.py runs on machines with a GPU; free of the test framework.
//
//   gpu_check [--op NAME,…] [--skip NAME,…] [--dtype f32,bf16,f16] [--group I/N]    op cases
//   gpu_check --time ceilings|ops|variants|gemm [--scale F]                         timings
//   gpu_check --collectives                                 NCCL in a group of one rank
//
// For all: [--engine cuda|cpu] [--device N] [--without VARIANT,…] [--lines FILE]
//
// --lines appends one JSON object for each result to FILE when it is known, so that a process that
//         is killed keeps what it had. The first has the device; op cases end with one that says
//         so.
// --group takes the I-th (from 0) of N groups of the ops.
// --without leaves out the kernels of these variants ("cuDNN"), so that the next row is taken.
// Each case runs once plainly and once captured (where the engine captures): both must write the
// same bits. Exit status: 0 all passed, 2 usage, 8 no such device, or one that failed, 9 a case
// failed.
#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cpu/engine.h"
#include "gpu_check/benchmark.h"
#include "gpu_check/collectives.h"
#include "ops/compare.h"
#include "ops/kernel.h"
#include "reference/engine.h"

namespace dltrain {
namespace {

using nlohmann::json;

struct Options {
  std::string engine = "cuda", time, lines;
  std::vector<std::string> ops, skip, without;
  std::vector<DType> dtypes = {DType::f32};
  size_t group = 0, groups = 1;
  int device = 0;
  bool collectives = false;
  double scale = 1;
};

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

std::vector<DType> dtypes_of(const std::string& text) {
  std::vector<DType> dtypes;
  for (const std::string& name : split_list(text)) {
    const auto dtype = dtype_from_name(name);
    if (!dtype || !is_floating(*dtype) || *dtype == DType::f64) {
      fail(ExitCode::usage, "--dtype {}: f32, bf16 or f16", name);
    }
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--collectives") {
      o.collectives = true;
      continue;
    }
    if (++i == argc) fail(ExitCode::usage, "{} needs a value", name);
    const std::string value = argv[i];
    if (name == "--engine") {
      o.engine = value;
    } else if (name == "--op") {
      o.ops = split_list(value);
    } else if (name == "--skip") {
      o.skip = split_list(value);
    } else if (name == "--without") {
      o.without = split_list(value);
    } else if (name == "--dtype") {
      o.dtypes = dtypes_of(value);
    } else if (name == "--group") {
      if (std::sscanf(value.c_str(), "%zu/%zu", &o.group, &o.groups) != 2 || o.group >= o.groups) {
        fail(ExitCode::usage, "--group {}: I/N, with I below N", value);
      }
    } else if (name == "--lines") {
      o.lines = value;
    } else if (name == "--time") {
      o.time = value;
    } else if (name == "--device") {
      o.device = std::stoi(value);
    } else if (name == "--scale") {
      o.scale = std::stod(value);
    } else {
      fail(ExitCode::usage, "unknown option {}", name);
    }
  }
  return o;
}

// The file of --lines.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), file_(path, std::ios::app) {
    if (!path.empty() && !file_.good()) fail(ExitCode::storage, "{} cannot be written", path);
  }
  void add(const json& line) {
    if (path_.empty()) return;
    file_ << line.dump() << std::endl;
    if (!file_.good()) fail(ExitCode::storage, "{} cannot be written", path_);
  }

 private:
  std::string path_;
  std::ofstream file_;
};

const Engine& named_engine(const std::string& name) {
  if (name == "cpu") return cpu_engine();
  std::string why;
  const Engine* engine = load_engine_plugin(name, why);
  if (engine == nullptr) fail(ExitCode::device, "no {} engine: {}", name, why);
  return *engine;
}

// The engine of --engine without the rows of --without.
const Engine& choose_engine(const Options& options) {
  static Engine chosen;
  static std::vector<KernelRow> rows;
  const Engine& engine = named_engine(options.engine);
  chosen = engine;
  for (size_t i = 0; i < engine.kernel_count; ++i) {
    if (!contains(options.without, engine.kernels[i].variant)) rows.push_back(engine.kernels[i]);
  }
  chosen.kernels = rows.data();
  chosen.kernel_count = rows.size();
  return chosen;
}

json describe(const DeviceProperties& p) {
  return {{"backend", p.backend},
          {"name", p.name},
          {"architecture", p.architecture},
          {"libraries", p.libraries},
          {"memory_mib", p.total_memory >> 20}};
}

// After a fault: an error that CUDA keeps makes all later calls of the process fail.
bool still_works(const Engine& engine, int index) {
  try {
    const auto device = engine.open(index);
    const Buffer block(*device, 256);
    const auto stream = device->make_stream();
    device->zero(block.data(), block.bytes(), *stream);
    stream->synchronize();
    return true;
  } catch (const Error& error) {
    fmt::print("the device fails after this case: {}\n", error.what());
    return false;
  }
}

// The ops of the group: neighbours of the table are in one.
std::vector<std::string> ops_of(const Options& options, const Engine& engine) {
  std::vector<std::string> names, out;
  for (const OpDef& op : all_ops()) {
    if (has_kernel(engine, op.name)) names.emplace_back(op.name);
  }
  const size_t n = names.size();
  for (size_t i = n * options.group / options.groups; i < n * (options.group + 1) / options.groups;
       ++i) {
    const bool wanted = options.ops.empty() || contains(options.ops, names[i]);
    if (wanted && !contains(options.skip, names[i])) out.push_back(names[i]);
  }
  return out;
}

ExitCode check_ops(const Options& options, Lines& lines) {
  const Engine& engine = choose_engine(options);
  lines.add({{"device", describe(engine.open(options.device)->properties())}});
  const std::vector<std::string> ops = ops_of(options, engine);
  size_t runs = 0, failed = 0;
  bool works = true;
  for (const DType dtype : options.dtypes) {
    const auto wanted = [&](const OpCase& c) {
      const bool is = contains(ops, c.op) && (dtype == DType::f32 || has_low_precision(c));
      if (is) lines.add({{"begins", c.name}, {"op", c.op}, {"dtype", dtype_name(dtype)}});
      return is;
    };
    const auto report_case = [&](std::span<const CaseReport> reports) {
      bool fault = false;
      for (const CaseReport& r : reports) {
        ++runs;
        lines.add({{"case", r.op_case->name},
                   {"op", r.op_case->op},
                   {"dtype", dtype_name(dtype)},
                   {"how", r.how},
                   {"kernel", r.variant},
                   {"worst", r.worst / r.op_case->tolerance},
                   {"fault", r.fault}});
        if (r.fault.empty()) continue;
        fault = true;
        ++failed;
        fmt::print("FAIL {} ({}, {}, {}): {}\n", r.op_case->name, dtype_name(dtype), r.how,
                   r.variant, r.fault);
      }
      works = !fault || still_works(engine, options.device);
      return works;
    };
    if (works) compare_engine(engine, reference_engine(), wanted, dtype, report_case);
  }
  if (works) lines.add({{"ended", true}});
  fmt::print("{} comparisons, {} failed\n", runs, failed);
  if (runs == 0) fail(ExitCode::usage, "no case of these ops");
  return !works ? ExitCode::device : failed == 0 ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode time_set(const Options& options, Lines& lines) {
  const Engine& engine = choose_engine(options);
  const auto device = engine.open(options.device);
  lines.add({{"device", describe(device->properties())}});
  fmt::print("{:<44} {:<12} {:>10} {:>10} {:>10}\n", "op", "kernel", "ms", "GB/s", "TFLOP/s");
  const auto show = [&](const Timing& t) {
    fmt::print("{:<44} {:<12} {:>10.4f} {:>10.1f} {:>10.2f} {}\n", t.op, t.variant, t.milliseconds,
               t.gigabytes_per_second, t.teraflops, t.fault);
    std::fflush(stdout);
    lines.add({{"op", t.op},
               {"kernel", t.variant},
               {"ms", t.milliseconds},
               {"gbs", t.gigabytes_per_second},
               {"tflops", t.teraflops},
               {"fault", t.fault}});
  };
  return time_ops(engine, *device, options.time, options.scale, show) ? ExitCode::ok
                                                                      : ExitCode::check_failed;
}

ExitCode check_messages(const Options& options, Lines& lines) {
  const Engine& engine = choose_engine(options);
  const auto device = engine.open(options.device);
  lines.add({{"device", describe(device->properties())}});
  std::string why;
  const auto checks = check_collectives(engine, *device, why);
  if (!why.empty()) {
    fmt::print("not checked: {}\n", why);
    lines.add({{"not_checked", why}});
  }
  bool passed = true;
  for (const CollectiveCheck& c : checks) {
    fmt::print("{:<16} {:<6} {:<16} {}\n", c.operation, c.dtype, c.backend,
               c.fault.empty() ? "right" : "FAIL: " + c.fault);
    lines.add({{"operation", c.operation},
               {"dtype", c.dtype},
               {"carrier", c.backend},
               {"fault", c.fault}});
    passed = passed && c.fault.empty();
  }
  return passed ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Lines lines(options.lines);
  return !options.time.empty() ? time_set(options, lines)
         : options.collectives ? check_messages(options, lines)
                               : check_ops(options, lines);
}

}  // namespace
}  // namespace dltrain

int main(int argc, char** argv) {
  try {
    return static_cast<int>(dltrain::run(argc, argv));
  } catch (const dltrain::Error& error) {
    fmt::print(stderr, "gpu_check: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_check: {}\n", error.what());
    return static_cast<int>(dltrain::ExitCode::internal);
  }
}
