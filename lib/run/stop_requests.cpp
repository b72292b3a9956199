#include "run/stop_requests.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/stop.h"
#include "runtime/host_reduce.h"

namespace dltrain {
namespace {

constexpr int32_t kTimeLimit = 1 << 16;  // greater than all signals
constexpr double kAskEvery = 0.02;       // seconds between requests of the other ranks

double seconds_after(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

}  // namespace

int32_t AskingPause::proposal() const {
  return static_cast<int32_t>(kAskEvery / std::max(seconds_after(begin_) / calls_, 1e-6));
}

void AskingPause::restart(int32_t length) {
  calls_ = 0;
  length_ = length;
  begin_ = std::chrono::steady_clock::now();
}

int32_t StopRequests::own_request() const {
  const int signal = options_.handle_signals ? stop_signal() : 0;
  if (signal != 0) return signal;
  const auto& most = session_.experiment->training.max_time;
  return limits_time_ && most && seconds_after(options_.started) >= *most ? kTimeLimit : 0;
}

bool StopRequests::stop_wanted() {
  if (stop_pause_.covers_call()) return false;
  std::array<int32_t, 2> values{own_request(),
                                -std::min(2 * stop_pause_.calls(), stop_pause_.proposal())};
  static const auto subject = std::make_shared<const std::string>("whether to stop");
  reduce_on_host(session_.options.ranks.collectives, std::span<int32_t>(values), ReduceOp::max,
                 subject);
  stop_pause_.restart(session_.options.ranks.world > 1 ? -values[1] : 0);
  if (values[0] != 0) agreed_ = values[0];
  return values[0] != 0;
}

StopRequests::AfterStep StopRequests::after_step(bool writes, StepObserver* observer) {
  if (request_pause_.covers_call()) return {};
  std::array<int32_t, 4> request{own_request(), 0, writes ? 1 : 0, -request_pause_.proposal()};
  const auto& minutes = session_.experiment->checkpoint.save_minutes;
  // Ranks may receive a forwarded signal in different steps, so only rank 0 requests to save.
  request[1] =
      (session_.options.ranks.is_leader() && options_.handle_signals && take_save_request()) ||
      (minutes && seconds_after(last_save_) >= 60 * *minutes);
  {
    const ObservedPart part(observer, StepPart::ranks);
    static const auto subject = std::make_shared<const std::string>("what to do after the step");
    reduce_on_host(session_.options.ranks.collectives, std::span<int32_t>(request), ReduceOp::max,
                   subject);
  }
  request_pause_.restart(session_.options.ranks.world > 1 ? -request[3] : 0);
  if (request[0] != 0) agreed_ = request[0];
  return {.stop = request[0] != 0, .save = request[1] != 0, .none_writes = request[2] == 0};
}

StopReason StopRequests::reason() const {
  return agreed_ >= kTimeLimit ? StopReason::time_limit : StopReason::signal;
}

int StopRequests::signal() const {
  return agreed_ % kTimeLimit;
}

}  // namespace dltrain
