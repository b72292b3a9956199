// gpu_check: compares every op case on an engine with the reference engine, and times ops. Part of
// the bundle that scripts/gpu_check.sh runs on machines with a GPU; free of the test framework.
//
//   gpu_check [--engine cuda|cpu] [--device N] [--op NAME] [--dtype f32|bf16|f16] [--json FILE]
//                                                                            op cases
//   gpu_check --collectives [--engine …] [--json FILE]            NCCL in a group of one rank
//   gpu_check --time [--engine …] [--scale F] [--json FILE]                  timings
//
// Each case runs once plainly and once captured (where the engine captures): both must write the
// same bits. Exit status: 0 all passed, 2 usage, 8 no such device, 9 a case failed.
#include <cstdio>
#include <fstream>
#include <map>

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
  std::string engine = "cuda", op, json_file;
  DType dtype = DType::f32;
  int device = 0;
  bool time = false, collectives = false;
  double scale = 1;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--time") {
      o.time = true;
      continue;
    }
    if (name == "--collectives") {
      o.collectives = true;
      continue;
    }
    if (++i == argc) fail(ExitCode::usage, "{} needs a value", name);
    const std::string value = argv[i];
    if (name == "--engine") {
      o.engine = value;
    } else if (name == "--op") {
      o.op = value;
    } else if (name == "--dtype") {
      const auto dtype = dtype_from_name(value);
      if (!dtype || !is_floating(*dtype) || *dtype == DType::f64) {
        fail(ExitCode::usage, "--dtype {}: f32, bf16 or f16", value);
      }
      o.dtype = *dtype;
    } else if (name == "--json") {
      o.json_file = value;
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

const Engine& choose_engine(const std::string& name) {
  if (name == "cpu") return cpu_engine();
  std::string why;
  const Engine* engine = load_engine_plugin(name, why);
  if (engine == nullptr) fail(ExitCode::device, "no {} engine: {}", name, why);
  return *engine;
}

json describe(const DeviceProperties& p) {
  return {{"backend", p.backend},
          {"name", p.name},
          {"architecture", p.architecture},
          {"libraries", p.libraries},
          {"memory_mib", p.total_memory >> 20}};
}

bool proven(const Engine& engine, const CaseReport& report) {
  for (size_t i = 0; i < engine.kernel_count; ++i) {
    const KernelRow& row = engine.kernels[i];
    if (row.op == report.op_case->op && row.variant == report.variant) return row.proven;
  }
  return false;
}

// One line an op and variant: how many comparisons, how many failed, the worst difference.
struct Summary {
  int runs = 0, failed = 0;
  bool proven = false;
  double worst = 0;  // as a part of the tolerance
};

ExitCode check_ops(const Options& options, json& record) {
  const Engine& engine = choose_engine(options.engine);
  const auto wanted = [&](const OpCase& c) {
    return has_kernel(engine, c.op) && (options.op.empty() || c.op == options.op) &&
           (options.dtype == DType::f32 || has_low_precision(c));
  };
  const auto reports = compare_engine(engine, reference_engine(), wanted, options.dtype);
  record["dtype"] = dtype_name(options.dtype);
  for (const OpDef& op : all_ops()) {
    if (has_kernel(engine, op.name)) continue;
    fmt::print("no kernel for {}\n", op.name);
    record["missing"].push_back(op.name);
  }
  if (reports.empty()) fail(ExitCode::usage, "no case of op {}", options.op);
  std::map<std::pair<std::string, std::string>, Summary> ops;
  int failed = 0;
  for (const CaseReport& report : reports) {
    Summary& summary = ops[{report.op_case->op, report.variant}];
    ++summary.runs;
    summary.proven = proven(engine, report);
    summary.worst = std::max(summary.worst, report.worst / report.op_case->tolerance);
    if (report.fault.empty()) continue;
    ++summary.failed;
    ++failed;
    fmt::print("FAIL {} ({}, {}): {}\n", report.op_case->name, report.how, report.variant,
               report.fault);
    record["faults"].push_back({{"case", report.op_case->name},
                                {"how", report.how},
                                {"variant", report.variant},
                                {"fault", report.fault}});
  }
  fmt::print("{:<32} {:<12} {:>6} {:>6} {:>18}\n", "op", "kernel", "runs", "failed",
             "worst/tolerance");
  for (const auto& [key, s] : ops) {
    fmt::print("{:<32} {:<12} {:>6} {:>6} {:>18.3f}\n", key.first, key.second, s.runs, s.failed,
               s.worst);
    record["ops"].push_back({{"op", key.first},
                             {"kernel", key.second},
                             {"runs", s.runs},
                             {"failed", s.failed},
                             {"worst", s.worst},
                             {"proven_before", s.proven}});
  }
  fmt::print("{} comparisons, {} failed\n", reports.size(), failed);
  return failed == 0 ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode time_all(const Options& options, json& record) {
  const Engine& engine = choose_engine(options.engine);
  const auto device = engine.open(options.device);
  record["device"] = describe(device->properties());
  fmt::print("{:<32} {:<12} {:>10} {:>10} {:>10}\n", "op", "kernel", "ms", "GB/s", "TFLOP/s");
  for (const Timing& t : time_ops(engine, *device, options.scale)) {
    fmt::print("{:<32} {:<12} {:>10.4f} {:>10.1f} {:>10.2f}\n", t.op, t.variant, t.milliseconds,
               t.gigabytes_per_second, t.teraflops);
    record["timings"].push_back({{"op", t.op},
                                 {"kernel", t.variant},
                                 {"milliseconds", t.milliseconds},
                                 {"gigabytes_per_second", t.gigabytes_per_second},
                                 {"teraflops", t.teraflops}});
  }
  return ExitCode::ok;
}

ExitCode check_messages(const Options& options, json& record) {
  const Engine& engine = choose_engine(options.engine);
  const auto device = engine.open(options.device);
  record["device"] = describe(device->properties());
  std::string why;
  const auto checks = check_collectives(engine, *device, why);
  if (!why.empty()) {
    fmt::print("not checked: {}\n", why);
    record["not_checked"] = why;
  }
  bool passed = true;
  for (const CollectiveCheck& c : checks) {
    fmt::print("{:<16} {:<6} {:<16} {}\n", c.operation, c.dtype, c.carrier,
               c.fault.empty() ? "right" : "FAIL: " + c.fault);
    record["collectives"].push_back({{"operation", c.operation},
                                     {"dtype", c.dtype},
                                     {"carrier", c.carrier},
                                     {"fault", c.fault}});
    passed = passed && c.fault.empty();
  }
  return passed ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  json record;
  const ExitCode code = options.time          ? time_all(options, record)
                        : options.collectives ? check_messages(options, record)
                                              : check_ops(options, record);
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << record.dump(1) << '\n';
    if (!file.good()) fail(ExitCode::storage, "{} cannot be written", options.json_file);
  }
  return code;
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
