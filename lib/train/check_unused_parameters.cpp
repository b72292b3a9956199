// Parameters that no gradient reaches, or whose gradient is zero throughout.
#include <algorithm>

#include "base/error.h"
#include "train/checks_support.h"

namespace dltrain {

CheckResult check_unused_parameters(const CheckOptions& options, int64_t samples) {
  const auto run = prepare(options, samples, DType::f32);
  Executor& executor = *run->session.executor;
  std::vector<std::string> without = executor.training().unused;
  const size_t unreached = without.size();
  run_batch(run->session, first_batch(run->session));
  int parameters = 0;
  for (const ParameterInfo& info : executor.training().parameters) {
    if (info.role != Role::parameter) continue;
    ++parameters;
    if (executor.layout().find("gradient." + info.name) == nullptr) continue;
    const auto gradient = read_numbers(executor, "gradient." + info.name);
    if (std::all_of(gradient.begin(), gradient.end(), [](double g) { return g == 0; })) {
      without.push_back(info.name);
    }
  }
  if (without.empty()) {
    return pass_if(true, fmt::format("each of the {} parameters has a gradient", parameters));
  }
  std::string names;
  for (size_t i = 0; i < without.size() && i < 5; ++i) names += (i == 0 ? "" : ", ") + without[i];
  if (without.size() > 5) names += fmt::format(" and {} more", without.size() - 5);
  return pass_if(false, fmt::format("{} of {} parameters do not reach the loss, {} have a gradient "
                                    "of zeros: {}",
                                    unreached, parameters, without.size() - unreached, names));
}

}  // namespace dltrain
