#include "graph/schedule.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "graph/schedule_times.h"

namespace dltrain {

MicroStep micro_step_of(int64_t index, int64_t count) {
  if (count == 1) return MicroStep::only;
  if (index == 0) return MicroStep::first;
  return index + 1 == count ? MicroStep::last : MicroStep::middle;
}

StepSchedule step_schedule(int64_t micro_batches, int64_t in_flight,
                           std::optional<int64_t> weights_lag) {
  check_internal(micro_batches > 0 && in_flight > 0, "{} micro-batches, {} at a time",
                 micro_batches, in_flight);
  const int64_t lag = weights_lag.value_or(0);
  const int64_t frames = std::min(micro_batches, in_flight + lag + (lag > 0 ? 1 : 0));
  StepSchedule out;
  const auto add = [&](Phase segment, int64_t micro_batch) {
    out.push_back({segment, static_cast<size_t>(micro_batch % frames), micro_batch,
                   micro_step_of(micro_batch, micro_batches)});
  };
  int64_t done = 0;
  const auto add_backward = [&] {
    add(Phase::backward, done);
    if (weights_lag && done >= lag) add(Phase::weights, done - lag);
    ++done;
  };
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i - done == in_flight) {
      const size_t backward = out.size();
      add_backward();
      out[backward].before_sends.push_back(out.size());
    }
    add(Phase::forward, i);
  }
  while (done < micro_batches) add_backward();
  for (int64_t i = std::max<int64_t>(0, done - lag); weights_lag && i < done; ++i) {
    add(Phase::weights, i);
  }
  // The frame of the last micro-batch waits for the reductions that it has started.
  out.push_back({Phase::update, out.back().frame, out.back().micro_batch, MicroStep::only});
  return out;
}

namespace {

// The index of the segment during which the messages of each segment are received.
std::vector<size_t> receive_times(const StepSchedule& schedule) {
  std::vector<size_t> out(schedule.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = i;
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto* early : {&schedule[i].first, &schedule[i].before_sends}) {
      for (size_t later : *early) out[later] = i;
    }
  }
  return out;
}

class Interleaving {
 public:
  Interleaving(int64_t micro_batches, int ranks, int chunks)
      : micro_batches_(micro_batches), ranks_(ranks), chunks_(chunks) {
    check_internal(micro_batches > 0 && ranks > 1 && chunks > 1,
                   "{} micro-batches on {} ranks with {} chunks", micro_batches, ranks, chunks);
  }

  std::vector<StepSchedule> run() {
    std::vector<StageTimes> all;
    for (int rank = 0; rank < ranks_; ++rank) {
      StageTimes& times = all.emplace_back(StageTimes{order_of(rank), {}});
      for (const ScheduledSegment& segment : times.schedule) {
        times.seconds.push_back(segment.segment == Phase::forward ? 1 : 2);
      }
    }
    const auto begins = begin_times(all);
    ends_.resize(static_cast<size_t>(2 * chunks_ * ranks_ * micro_batches_));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (size_t i = 0; i < begins[rank].size(); ++i) {
        const ScheduledSegment& segment = all[rank].schedule[i];
        end_of(segment.segment, stage_of(static_cast<int>(rank), segment), segment.micro_batch) =
            begins[rank][i] + all[rank].seconds[i];
      }
    }
    std::vector<StepSchedule> out;
    for (int rank = 0; rank < ranks_; ++rank) {
      StepSchedule& schedule = out.emplace_back(std::move(all[static_cast<size_t>(rank)].schedule));
      receive_early(rank, schedule);
      give_frames(schedule);
      schedule.push_back({Phase::update, schedule.back().frame, micro_batches_ - 1});
    }
    return out;
  }

 private:
  // The forwards of a rank, or its backwards.
  StepSchedule turns(Phase phase) const {
    StepSchedule out;
    const int64_t groups = std::max<int64_t>(1, micro_batches_ / ranks_);
    for (int64_t g = 0, begin = 0; g < groups; ++g) {
      const int64_t end = begin + micro_batches_ / groups + (g < micro_batches_ % groups ? 1 : 0);
      for (int turn = 0; turn < chunks_; ++turn) {
        const int chunk = phase == Phase::forward ? turn : chunks_ - 1 - turn;
        for (int64_t i = begin; i < end; ++i) {
          out.push_back({phase, 0, i, micro_step_of(i, micro_batches_), chunk});
        }
      }
      begin = end;
    }
    return out;
  }

  StepSchedule order_of(int rank) const {
    const StepSchedule forwards = turns(Phase::forward), backwards = turns(Phase::backward);
    const int64_t groups = std::max<int64_t>(1, micro_batches_ / ranks_);
    const int64_t group = (micro_batches_ + groups - 1) / groups;
    const auto ahead = std::min(
        forwards.size(), static_cast<size_t>(2 * (ranks_ - rank - 1) + (chunks_ - 1) * group));
    StepSchedule out(forwards.begin(), forwards.begin() + static_cast<int64_t>(ahead));
    for (size_t i = 0; i < backwards.size(); ++i) {
      if (ahead + i < forwards.size()) out.push_back(forwards[ahead + i]);
      out.push_back(backwards[i]);
    }
    return out;
  }

  int stage_of(int rank, const ScheduledSegment& segment) const {
    return segment.chunk * ranks_ + rank;
  }
  double& end_of(Phase phase, int stage, int64_t micro_batch) {
    const int64_t row = (phase == Phase::forward ? 0 : chunks_ * ranks_) + stage;
    return ends_[static_cast<size_t>(row * micro_batches_ + micro_batch)];
  }

  // The place of a stage's message among all.
  using Key = std::tuple<double, Phase, int, int64_t>;
  Key key(Phase phase, int stage, int64_t micro_batch) {
    return {end_of(phase, stage, micro_batch), phase, phase == Phase::forward ? -stage : stage,
            micro_batch};
  }

  void receive_early(int rank, StepSchedule& schedule) {
    std::vector<std::pair<Key, size_t>> receives;
    const auto source = [&](const ScheduledSegment& segment) {
      return stage_of(rank, segment) + (segment.segment == Phase::forward ? -1 : 1);
    };
    const auto exists = [&](int stage) { return stage >= 0 && stage < chunks_ * ranks_; };
    for (size_t i = 0; i < schedule.size(); ++i) {
      const ScheduledSegment& segment = schedule[i];
      if (!exists(source(segment))) continue;
      receives.emplace_back(key(segment.segment, source(segment), segment.micro_batch), i);
    }
    std::ranges::sort(receives);
    size_t next = 0;
    const auto receive_until = [&](const Key& limit, std::vector<size_t>& list) {
      for (; next < receives.size() && receives[next].first < limit; ++next) {
        list.push_back(receives[next].second);
      }
    };
    std::vector<std::pair<Key, size_t>> under_way;  // forwards
    for (size_t i = 0; i < schedule.size(); ++i) {
      ScheduledSegment& segment = schedule[i];
      if (exists(source(segment))) {
        const Key received = key(segment.segment, source(segment), segment.micro_batch);
        receive_until(received, segment.first);
        if (next < receives.size() && receives[next].second == i) ++next;
        // Messages that precede the one that this segment waits for have been sent by then.
        std::erase_if(under_way, [&](const std::pair<Key, size_t>& forward) {
          if (forward.first < received) segment.sent.push_back(forward.second);
          return forward.first < received;
        });
      }
      const int own = stage_of(rank, segment);
      if (own == (segment.segment == Phase::forward ? chunks_ * ranks_ - 1 : 0)) continue;
      const Key sent = key(segment.segment, own, segment.micro_batch);
      receive_until(sent, segment.before_sends);
      if (segment.segment == Phase::forward) under_way.emplace_back(sent, i);
    }
  }

  // A micro-batch needs its frame from its first message to the backward of the first chunk.
  void give_frames(StepSchedule& schedule) const {
    const std::vector<size_t> received = receive_times(schedule);
    std::vector<size_t> first, last;
    for (size_t i = 0; i < schedule.size(); ++i) {
      if (schedule[i].chunk != 0) continue;
      const bool forward = schedule[i].segment == Phase::forward;
      (forward ? first : last).push_back(forward ? received[i] : i);
    }
    int64_t frames = 1;
    for (size_t i = 0, end = 0; i < last.size(); ++i) {
      while (end < first.size() && first[end] <= last[i]) ++end;
      frames = std::max(frames, static_cast<int64_t>(end - i));
    }
    for (ScheduledSegment& segment : schedule) {
      segment.frame = static_cast<size_t>(segment.micro_batch % frames);
    }
  }

  const int64_t micro_batches_;
  const int ranks_, chunks_;
  std::vector<double> ends_;  // of forwards, then backwards
};

}  // namespace

std::vector<StepSchedule> interleaved_schedules(int64_t micro_batches, int ranks, int chunks) {
  return Interleaving(micro_batches, ranks, chunks).run();
}

size_t frames_of(const StepSchedule& schedule) {
  size_t most = 0;
  for (const ScheduledSegment& entry : schedule) most = std::max(most, entry.frame);
  return most + 1;
}

int chunks_of(const StepSchedule& schedule) {
  int most = 0;
  for (const ScheduledSegment& entry : schedule) most = std::max(most, entry.chunk);
  return most + 1;
}

FrameLives frame_lives(const StepSchedule& schedule) {
  const int pieces = piece_of(chunks_of(schedule), FramePiece::kept);
  FrameLives out(static_cast<size_t>(pieces), {frames_of(schedule), std::vector<FrameLife>()});
  const auto lives = [&](const ScheduledSegment& segment, FramePiece piece) -> auto& {
    return out[static_cast<size_t>(piece_of(segment.chunk, piece))][segment.frame];
  };
  const std::vector<size_t> received = receive_times(schedule);
  for (size_t i = 0; i + 1 < schedule.size(); ++i) {
    const ScheduledSegment& segment = schedule[i];
    for (size_t forward : segment.sent) lives(schedule[forward], FramePiece::sent).back().last = i;
    if (segment.segment == Phase::forward) {
      lives(segment, FramePiece::kept).push_back({received[i], i});
      lives(segment, FramePiece::sent).push_back({i, schedule.size()});
    } else {
      lives(segment, FramePiece::kept).back().last = i;
      lives(segment, FramePiece::received).push_back({received[i], i});
      FrameLife& sent = lives(segment, FramePiece::sent).back();
      sent.last = std::min(sent.last, i);
    }
  }
  out[0] = out[static_cast<size_t>(piece_of(0, FramePiece::kept))];
  out[0][schedule.back().frame].back().last = schedule.size() - 1;
  return out;
}

}  // namespace dltrain
