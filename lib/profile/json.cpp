#include "profile/report.h"
#include "telemetry/json_object.h"

namespace dltrain {
namespace {

JsonObject row_json(const ProfileRow& row) {
  JsonObject out;
  out.add("name", row.name);
  if (!row.detail.empty()) out.add("detail", row.detail);
  out.add_rounded("calls", row.calls).add_rounded("ms", 1e3 * row.seconds);
  out.add_rounded("forward_ms", 1e3 * row.forward).add_rounded("backward_ms", 1e3 * row.backward);
  out.add_rounded("update_ms", 1e3 * row.update);
  out.add_rounded("flops", row.flops).add_rounded("bytes", row.bytes);
  out.add_rounded("flops_per_second", row.flop_rate());
  out.add_rounded("bytes_per_second", row.byte_rate());
  if (row.limit_seconds > 0) out.add_rounded("of_limit", row.of_limit());
  return out;
}

std::vector<JsonObject> rows_json(const std::vector<ProfileRow>& rows) {
  std::vector<JsonObject> out;
  for (const ProfileRow& row : rows) out.push_back(row_json(row));
  return out;
}

JsonObject shares_json(const std::vector<StepShare>& shares, const std::vector<double>& seconds) {
  JsonObject out;
  for (size_t i = 0; i < shares.size(); ++i) out.add_rounded(shares[i].name, 1e3 * seconds[i]);
  return out;
}

}  // namespace

std::string profile_json(const ProfileReport& report) {
  const Profile& profile = report.profile;
  JsonObject out, limits;
  limits.add_rounded("flops_f32", report.limits.flops_f32);
  if (report.limits.flops_low > 0) limits.add_rounded("flops_low", report.limits.flops_low);
  limits.add_rounded("bytes", report.limits.bytes).add("source", report.limits.source);
  out.add("format", 1).add("name", report.name).add("device", report.device);
  out.add("backend", report.backend).add("threads", report.threads);
  out.add("method", report.method).add("limits", limits);
  out.add("warmup", report.warmup).add("steps", profile.steps);
  out.add("samples_per_step", report.samples_per_step);
  out.add_rounded("step_ms", 1e3 * report.plain_step_seconds);
  out.add_rounded("observed_step_ms", 1e3 * profile.step_seconds);
  out.add_rounded("model_flops", report.model_flops, 9);
  if (report.utilization() > 0) {
    out.add_rounded("mfu", report.utilization()).add("mfu_dtype", report.arithmetic);
  }
  std::vector<double> seconds;
  for (const StepShare& share : profile.shares) seconds.push_back(share.seconds);
  out.add("shares_ms", shares_json(profile.shares, seconds));
  std::vector<JsonObject> ranks;
  for (const RankShares& rank : report.ranks) {
    JsonObject one;
    one.add_rounded("observed_step_ms", 1e3 * rank.step_seconds);
    ranks.push_back(one.add("shares_ms", shares_json(profile.shares, rank.seconds)));
  }
  if (!ranks.empty()) out.add("ranks", ranks);
  const KernelTotals& k = profile.kernels;
  JsonObject kernels;
  kernels.add_rounded("flops", k.flops).add_rounded("bytes", k.bytes).add_rounded("calls", k.calls);
  kernels.add_rounded("calls_below_5_us", k.short_calls);
  kernels.add_rounded("limited_by_arithmetic_ms", 1e3 * k.arithmetic_seconds);
  kernels.add_rounded("limited_by_memory_ms", 1e3 * k.memory_seconds);
  JsonObject loader;
  loader.add("workers", report.data_workers);
  loader.add_rounded("fill_ms", 1e3 * profile.loader.fill_seconds);
  loader.add_rounded("computing_ms", 1e3 * profile.loader.computing);
  std::vector<JsonObject> gaps;
  for (const Gap& gap : profile.gaps) {
    JsonObject one;
    one.add("cause", gap.cause).add("step", gap.step).add_rounded("ms", 1e3 * gap.seconds);
    gaps.push_back(one.add_rounded("at_ms", 1e3 * gap.at, 9));
  }
  out.add("kernels", kernels).add("loader", loader).add("gaps", gaps);
  out.add_rounded("cpus_used_by_others", report.other_load);
  if (report.watts > 0) {
    out.add_rounded("gpu_power_watts", report.watts);
    out.add_rounded("joules_per_sample", report.joules_per_sample());
  }
  if (!report.throttled.empty()) out.add("gpu_throttled", report.throttled);
  out.add("verdicts", verdicts(report));
  out.add("ops", rows_json(profile.ops)).add("layers", rows_json(profile.layers));
  out.add("calls", rows_json(profile.calls)).add("trace", report.trace.string());
  return out.text() + "\n";
}

}  // namespace dltrain
