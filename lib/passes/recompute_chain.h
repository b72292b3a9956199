// The fastest schedule of a chain of stages whose backward has to fit a given memory: what the
// forward keeps, and from where stages run again (Beaumont, Eyraud-Dubois, Herrmann, Joly,
// Shilova 2019, "Optimal checkpointing for heterogeneous chains: how to train deep neural networks
// with limited memory"). There a stage keeps either everything that its backward reads or nothing;
// here it may also keep parts and recompute the rest right before its backward.
#pragma once

#include <cstddef>
#include <vector>

namespace dltrain {

// Bytes and seconds of stage s, which reads the result of stage s − 1.
struct ChainStage {
  // A choice of what is kept from a forward run of the stage until its backward: the result of the
  // stage, and `kept` − `result` bytes more, without which `again` seconds are needed.
  struct Choice {
    double kept = 0, again = 0;
  };
  double result = 0;         // bytes of what the next stage reads
  double full = 0;           // bytes of all that the backward of the stage reads, with the result
  double forward_work = 0;   // bytes at the peak of a forward run, with the result, without input
  double backward_work = 0;  // bytes that the backward uses beside `full`
  double seconds = 0;        // of a forward run
  std::vector<Choice> choices;  // the first keeps everything: {full, 0}
};

// A run of the forward over stages `first` to `last`. Results of stages before `first` are there.
struct ChainSweep {
  static constexpr int kNothing = -2, kResult = -1;
  int first = 0, last = 0;
  // For each of these stages: kNothing, kResult, or the index of the choice.
  std::vector<int> kept;
};

struct ChainSchedule {
  double seconds = 0;  // of forward runs beyond the first, and of what choices run again
  // The first sweep is the forward over all stages. Another one runs when the backward has come
  // to its last stage. Each stage is the last of at most one sweep.
  std::vector<ChainSweep> sweeps;
};

class ChainPlanner {
 public:
  // Computes the table for memories up to that with which nothing runs again. `steps`: the
  // resolution of that memory. Takes time in proportion to stages² · steps · (stages + choices).
  explicit ChainPlanner(std::vector<ChainStage> stages, int steps = 1000);

  // The bytes with which a schedule exists, and those with which nothing runs again.
  double least() const;
  double most() const;
  // Returns the fastest schedule for so many bytes (at least least()) in which what a sweep keeps
  // stays until the backward of its stage.
  ChainSchedule schedule(double bytes) const;

 private:
  // The sizes of a stage in units.
  struct Units {
    int result = 0, forward = 0, backward = 0;
    std::vector<int> choices;
  };
  int units(double bytes) const;
  float& seconds(int first, int last, int memory);
  float seconds(int first, int last, int memory) const;
  struct Best {
    float seconds;
    int split = -1;  // the stage at which the later part begins; −1: `first` is kept as `choice`
    int choice = -1;
  };
  Best best(int first, int last, int memory) const;
  void extract(int first, int last, int memory, size_t sweep, ChainSchedule& out) const;

  std::vector<ChainStage> stages_;
  std::vector<Units> units_;
  std::vector<double> before_;  // seconds of the stages before each, and of all
  double unit_ = 1;             // bytes
  int steps_ = 0;
  std::vector<float> table_;  // by first, last and memory; infinite: impossible
};

}  // namespace dltrain
