// The layouts of a number of GPUs, and the fastest ones that fit: dltrain plan --search, and
// parallelism.layout auto.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "dltrain/commands.h"
#include "dltrain/gpu_estimate.h"
#include "dltrain/layout_candidate.h"
#include "dltrain/one_rank.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

// Meshes (numbers of ranks along each axis) that are shown, half of them with context ranks at
// most. A mesh whose layouts are all refused makes room for another one.
constexpr size_t kMeshes = 8, kMostRefusals = 100;
// Small models are cut into stages within blocks too, up to this number.
constexpr int64_t kMostSmallStages = 8;
// Stages are interleaved, or weights computed later, where stages wait for more than this part of
// the arithmetic otherwise.
constexpr int64_t kMostChunks = 4;
constexpr int64_t kMostContext = 64;
constexpr double kWaiting = 0.05;

class LayoutSearch {
 public:
  LayoutSearch(const LoadExperiment& load, const PlanRequest& request)
      : load_(load), request_(request), rates_(request.rates), given_(load({})) {
    rates_.gpu = request.gpus.front();
    if (!given_.training.global_batch_size) {
      fail_at(given_.training, "global_batch_size",
              "the search for a layout keeps the global batch; give global_batch_size");
    }
    measure_all();
  }

  // A run may not depend on the micro-batch that is found, nor is another one replaced. Throws
  // ConfigError.
  void check_micro_batch() const {
    const bool given = given_.training.given_micro_batch().has_value();
    if (given && micro_batch_matters_.empty()) {
      fail_at(given_.training, "micro_batch_size",
              "parallelism.layout: auto chooses micro_batch_size; remove one of them");
    }
    if (!given && !micro_batch_matters_.empty()) {
      fail_at(given_.parallelism, "layout",
              "auto would choose the micro-batch, on which results depend: {}; give "
              "training.micro_batch_size, which it keeps",
              micro_batch_matters_);
    }
  }

  // Returns the best candidate of each mesh, the fastest first.
  std::vector<LayoutCandidate> run() {
    enumerate();
    std::ranges::stable_sort(candidates_, {}, &LayoutCandidate::guess);
    std::vector<MeshLayouts> meshes;
    for (const LayoutCandidate& candidate : candidates_) {
      auto mesh = std::ranges::find_if(
          meshes, [&](const auto& m) { return m.open.front().has_mesh_of(candidate); });
      if (mesh == meshes.end()) {
        const auto with_context =
            std::ranges::count_if(meshes, [](const auto& m) { return m.open.front().context > 1; });
        const bool many = !keeps_context() && candidate.context > 1 && with_context == kMeshes / 2;
        if (many) continue;
        mesh = meshes.emplace(mesh);
      }
      mesh->open.push_back(candidate);
    }
    plan_all(meshes);
    std::vector<LayoutCandidate> best;  // of each mesh that has a plan
    for (const MeshLayouts& mesh : meshes) {
      if (mesh.planned.empty()) continue;
      planned_ += mesh.planned.size();
      const auto first = std::ranges::min_element(mesh.planned, {}, &LayoutCandidate::order);
      if (first->refused.empty()) {
        best.push_back(*first);
      } else if (refused_++ == 0) {
        first_refusal_ = first->refused;
      }
    }
    std::ranges::stable_sort(best, {}, &LayoutCandidate::order);
    return best;
  }

  // Returns the fastest. Throws Error if there is none.
  const LayoutCandidate& fastest(const std::vector<LayoutCandidate>& best) const {
    if (best.empty() && refused_ > 0) {
      fail(ExitCode::usage,
           "all {} layouts that were planned are refused, the first because of: {}", planned_,
           first_refusal_);
    }
    if (best.empty() && too_large_ == 0) {
      fail(ExitCode::usage,
           "no number of data-parallel ranks of {} ranks divides training.global_batch_size",
           request_.world);
    }
    if (best.empty() || !best.front().planned.fits()) {
      fail(ExitCode::memory, "none of the {} layouts that were planned fits {}; take more ranks",
           planned_, rates_.gpu->name);
    }
    return best.front();
  }

  void print(const std::vector<LayoutCandidate>& best) const {
    fmt::print(
        "layouts of {} ranks on {}: {} considered, {} planned; the best of each mesh, and what "
        "takes the others longer\n",
        request_.world, rates_.gpu->name, candidates_.size() + too_large_, planned_);
    fmt::print("  {}  {:>9}  {:>8}  {:>8}  {:>8}  {:>10}\n", head(), "step (ms)", "compute",
               "messages", "waits", "memory");
    for (const LayoutCandidate& c : best) {
      const LayoutEstimate& e = c.planned;
      if (!e.fits()) {
        fmt::print("  {}  does not fit: {:.1f} of {:.1f} GiB\n", named(c), e.needed / (1 << 30),
                   e.memory / (1 << 30));
      } else {
        fmt::print("  {}  {:>9.1f}  {:>7.0f}%  {:>7.0f}%  {:>7.0f}%  {:>6.1f} GiB{}\n", named(c),
                   1e3 * e.seconds, 100 * e.compute / e.seconds, 100 * e.exposed / e.seconds,
                   std::max(0.0, 100 * e.waits / e.seconds), e.needed / (1 << 30),
                   slower(e, best.front().planned));
      }
    }
    if (refused_ > 0) {
      fmt::print("  {} more meshes are refused, the first because of: {}\n", refused_,
                 first_refusal_.substr(0, first_refusal_.find('\n')));
    }
    if (!micro_batch_matters_.empty() && !given_.training.given_micro_batch()) {
      fmt::print("losses depend on the micro-batch: {}; training.micro_batch_size keeps one\n",
                 micro_batch_matters_);
    }
  }

  FastestLayout layout(const LayoutCandidate& c) const {
    return {c.overrides(),
            fmt::format("layout of {} ranks: data {}{}{}, tensor {}, pipeline {}{}, zero_stage {}, "
                        "micro_batch_size {}, recompute {}; {} considered, {} planned",
                        request_.world, c.data,
                        c.context > 1 ? fmt::format(", context {}", c.context) : "",
                        c.expert > 1 ? fmt::format(", expert {}", c.expert) : "", c.tensor,
                        c.pipeline, c.schedule.empty() ? "" : " " + c.schedule, c.zero,
                        c.micro_batch, c.recompute, candidates_.size() + too_large_, planned_)};
  }

 private:
  Session open(Experiment& experiment, int world) const {
    return open_planned(experiment, world, request_.ranks_per_node, rates_.gpu, data_);
  }

  // Plans one candidate of each mesh after another. Each has an experiment of its own, so threads
  // share them out; the choice does not depend on threads.
  void plan_all(std::vector<MeshLayouts>& meshes) const {
    double fastest = std::numeric_limits<double>::infinity();
    std::vector<MeshLayouts*> open;
    do {
      open.clear();
      size_t shown = 0, refusals = 0;
      for (MeshLayouts& mesh : meshes) {
        refusals += mesh.refusals();
        if (mesh.is_refused()) continue;
        if (shown++ == kMeshes || refusals > kMostRefusals) break;
        if (mesh.prepare_next(fastest)) open.push_back(&mesh);
      }
      in_threads(open.size(), [&](size_t i) { plan(open[i]->planned.back()); });
      for (const MeshLayouts* mesh : open) {
        const LayoutCandidate& candidate = mesh->planned.back();
        if (candidate.fits()) fastest = std::min(fastest, candidate.planned.seconds);
      }
    } while (!open.empty());
  }

  // Calls f(0), …, f(count − 1) on as many threads as there are cores.
  template <typename F>
  static void in_threads(size_t count, const F& f) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < count; i = next++) f(i);
    };
    std::vector<std::future<void>> threads(std::max(1u, std::thread::hardware_concurrency()));
    for (auto& thread : threads) thread = std::async(std::launch::async, work);
    for (auto& thread : threads) thread.get();
  }

  void enumerate() {
    const int64_t batch = *given_.training.global_batch_size;
    const PipelineSchedule given_schedule = given_.parallelism.pipeline_schedule;
    const bool changes = given_schedule == PipelineSchedule::interleaved ||
                         given_schedule == PipelineSchedule::zero_bubble;
    for (const auto& [recompute, one] : measured_) {
      for (const LayoutCandidate& mesh : meshes(one)) {
        if (batch % mesh.data != 0) continue;
        for (int64_t chunks = 1; chunks <= (mesh.pipeline > 1 ? kMostChunks : 1); ++chunks) {
          if (chunks > 1 && one.blocks % (mesh.pipeline * chunks) != 0) continue;
          for (int64_t zero = 0; zero <= (mesh.data * mesh.context > 1 ? 3 : 0); ++zero) {
            LayoutCandidate candidate = mesh;
            candidate.chunks = chunks;
            candidate.zero = zero;
            candidate.recompute = recompute;
            candidate.schedule = chunks > 1 ? "interleaved" : changes ? "1f1b" : "";
            add(one, candidate, batch / mesh.data);
            if (mesh.pipeline == 1 || chunks > 1) continue;
            candidate.schedule = "zero_bubble";
            add(one, candidate, batch / mesh.data);
          }
        }
      }
    }
  }

  // Returns all meshes. A context or expert above 1 in the configuration is kept.
  std::vector<LayoutCandidate> meshes(const OneRank& one) const {
    const ParallelismConfig& given = given_.parallelism;
    std::vector<int64_t> contexts{given.context}, experts{given.expert};
    if (given.context == 1 && one.tokens > 0) {
      contexts = divisors(request_.world, kMostContext);
      // Causal attention cuts the text into two chunks for each rank.
      std::erase_if(contexts, [&](int64_t c) { return c > 1 && one.tokens % (2 * c) != 0; });
    }
    if (given.expert == 1 && one.experts > 0) experts = divisors(one.experts, one.experts);
    const int64_t deepest = std::max(one.blocks, std::min(one.layers, kMostSmallStages));
    std::vector<LayoutCandidate> out;
    for (int64_t context : contexts) {
      const int64_t world = request_.world / context;
      for (int64_t tensor : divisors(world, std::min<int64_t>(node(), 8))) {
        for (int64_t pipeline : divisors(world / tensor, deepest)) {
          const int64_t data = world / (tensor * pipeline);
          for (int64_t expert : experts) {
            if (data * context % expert != 0) continue;
            out.push_back({.data = data,
                           .context = context,
                           .expert = expert,
                           .tensor = tensor,
                           .pipeline = pipeline,
                           .given = given.context > 1 || given.expert > 1});
          }
        }
      }
    }
    return out;
  }

  bool keeps_context() const { return given_.parallelism.context > 1; }
  int64_t node() const {
    return request_.ranks_per_node > 0 ? request_.ranks_per_node : request_.world;
  }

  // Measures the model on one rank for each kind of recomputation.
  void measure_all() {
    auto& out = measured_;
    OneRank& none = out[0].second;
    int64_t samples = 1;
    try {
      none = measure_one("none", samples);  // opens the data for the others
    } catch (const Error& error) {          // batch norm of vectors needs several
      if (error.code() != ExitCode::usage) throw;
      none = measure_one("none", samples = 2);
    }
    OneRank more;
    in_threads(3, [&](size_t i) {
      (i == 0 ? more : out[i].second) = measure_one(out[i].first, i == 0 ? 4 * samples : samples);
    });
    // The part of the time of one sample's micro-batch that does not grow with more samples.
    const double sample = (more.micro_batch - none.micro_batch) / 3;
    const double fixed = std::clamp(1 - sample / none.micro_batch, 0.0, 1.0);
    for (auto& [recompute, one] : out) {
      one.sample = one.micro_batch * (1 - fixed) / static_cast<double>(samples);
      for (double OneRank::*bytes :
           {&OneRank::activations, &OneRank::residual, &OneRank::keys, &OneRank::rows}) {
        one.*bytes /= static_cast<double>(samples);
      }
      one.micro_batch *= fixed;
    }
  }

  // The seconds of `micro` samples are those of the micro-batch.
  OneRank measure_one(const std::string& recompute, int64_t micro) {
    const LayoutCandidate alone{.micro_batch = micro, .given = true, .recompute = recompute};
    std::vector<std::string> overrides = alone.overrides();
    overrides.push_back(fmt::format("training.global_batch_size={}", micro));
    Experiment experiment = load_(overrides);
    const Session session = open(experiment, 1);
    if (!data_) {
      data_ = session.options.data;
      micro_batch_matters_ = micro_batch_matters(session);
    }
    OneRank out = measure_one_rank(session);
    out.copies = out.gradients * static_cast<double>(dtype_size(experiment.precision.compute)) / 4;
    const Graph& graph = session.executor->training().graph;
    const std::set<std::string_view> within = layers_of_blocks(graph);
    double outside = 0;
    const StepEstimate estimate = estimate_step(
        graph, 1, session.executor->topology(), rates_, [&](const EstimatedEvent& event) {
          const bool counts = event.node.phase != Phase::update && !event.is_message;
          if (counts && !within.contains(event.node.layer)) outside += event.seconds;
        });
    out.update = estimate.update;
    out.micro_batch = estimate.forward[0][0] + estimate.backward[0][0];
    if (outside < out.micro_batch) {
      out.outside = outside * static_cast<double>(out.blocks) / (out.micro_batch - outside);
    }
    return out;
  }

  // Adds the layout with each size of micro-batches that should fit.
  void add(const OneRank& one, LayoutCandidate candidate, int64_t share) {
    const auto parts = static_cast<double>(candidate.tensor * candidate.pipeline);
    const auto of_state = [&](double bytes, int64_t stage) {
      return bytes / parts *
             (candidate.zero >= stage ? 1 / static_cast<double>(candidate.data * candidate.context)
                                      : one.part(candidate.expert));
    };
    const double state =
        of_state(one.moments, 1) + of_state(one.gradients, 2) + of_state(one.replicated, 3);
    bool fits = false;
    // Micro-batches of several samples are divided by samples, which needs no messages.
    const std::optional<int64_t> given_micro = given_.training.given_micro_batch();
    const bool one_sample = candidate.context > 1 && !keeps_context();
    for (int64_t micro : divisors(share, one_sample ? 1 : share)) {
      if (!micro_batch_matters_.empty() && micro != given_micro.value_or(micro)) continue;
      const int64_t steps = share / micro, chunks = candidate.chunks;
      const bool waits_less = chunks > 1 || candidate.zero_bubble();
      if (waits_less &&
          static_cast<double>(candidate.pipeline - 1) < kWaiting * static_cast<double>(steps))
        continue;
      const int64_t passes = (chunks + 1) * candidate.pipeline - 1;  // of chunks, in flight
      const int64_t in_flight = candidate.pipeline + (candidate.zero_bubble() ? 1 : 0);
      const auto frames = static_cast<double>(chunks == 1 ? std::min(steps, in_flight)
                                                          : std::min(steps * chunks, passes));
      const double activations = one.activations * static_cast<double>(micro) * frames / parts /
                                 static_cast<double>(chunks * candidate.context);
      // The guess may be too high; the exact plan decides.
      if (0.8 * (state + activations) > static_cast<double>(rates_.gpu->memory_bytes)) continue;
      candidate.micro_batch = micro;
      candidate.guess = guess(one, candidate, steps);
      candidates_.push_back(candidate);
      fits = true;
    }
    if (!fits) ++too_large_;
  }

  double guess(const OneRank& one, const LayoutCandidate& c, int64_t steps) const {
    const auto parts = static_cast<double>(c.tensor * c.pipeline),
               context = static_cast<double>(c.context), expert = static_cast<double>(c.expert),
               data = static_cast<double>(c.data) * context;
    const double samples = static_cast<double>(steps * c.micro_batch) / context;
    const double compute = (one.micro_batch * static_cast<double>(steps) + one.sample * samples) /
                           parts * one.slowest_stage(c.pipeline);
    const auto part = static_cast<double>(steps * c.chunks * (c.zero_bubble() ? 3 : 1));
    const double waits = compute * static_cast<double>(c.pipeline - 1) / part;
    const double update = one.update / parts / (c.zero > 0 ? data : 1);
    const auto tensor = static_cast<double>(c.tensor);
    const double link = rates_.link;
    const double between = rates_.node_link > 0 ? rates_.node_link : link;
    const double sums = 4 * static_cast<double>(one.blocks) / static_cast<double>(c.pipeline) *
                        samples * one.residual * 2 * (tensor - 1) / tensor / link;
    const double passed =
        c.pipeline > 1 ? 2 * samples * one.residual * static_cast<double>(c.chunks) / between : 0;
    // Axes whose ranks are on one node, tensor ranks nearest, then context and expert ranks.
    const auto link_of = [&](int64_t ranks) { return ranks <= node() ? link : between; };
    const int64_t near = std::gcd(c.context, c.expert);
    const int64_t span =
        c.expert == near ? c.tensor * near : c.tensor * c.context * c.expert / near;
    const double keys =
        3 * (context - 1) * samples * one.keys / parts / link_of(c.tensor * c.context);
    const double rows = 4 * (expert - 1) / expert * samples * one.rows / parts / link_of(span);
    // Gradients are summed, from ZeRO 2 on in every micro-batch; copies of parameters are gathered
    // after an update, or twice in every micro-batch.
    const double rounds = c.zero >= 2 ? static_cast<double>(steps) : 1;
    const double gathers = c.zero == 3 ? 2 * rounds : 1;
    const double reduced =
        (data - 1) / data * one.part(c.expert) / parts / between *
        (c.zero == 0 ? 2 * one.gradients : rounds * one.gradients + gathers * one.copies);
    // Exact plans of Llama and GPT hide most sums behind gradients of weights, which zero_bubble
    // computes later, and half of the gradients' messages.
    const double exposed_sums = sums * (c.zero_bubble() ? 1.1 : 0.2);
    return update + compute + waits + exposed_sums + passed + keys + rows +
           (c.zero == 3 ? std::max(0.15 * reduced, reduced - 0.8 * compute)
                        : std::max(reduced / 2, reduced - compute / 2));
  }

  void plan(LayoutCandidate& candidate) const {
    try {
      Experiment experiment = load_(candidate.overrides());
      candidate.planned = estimate_layout(open(experiment, request_.world), rates_);
    } catch (const Error& error) {
      candidate.refused = error.what();
    }
  }

  // The columns of the layout; `context` and `expert` only where a candidate has them.
  std::string head() const {
    return fmt::format("{:>4}{}{}  {:>6}  {:>8}  {:>4}  {:>11}  {:<9}", "data",
                       has_context() ? "  context" : "", has_expert() ? "  expert" : "", "tensor",
                       "pipeline", "zero", "micro-batch", "recompute");
  }
  std::string named(const LayoutCandidate& c) const {
    const std::string pipeline = c.chunks > 1      ? fmt::format("{}x{}", c.pipeline, c.chunks)
                                 : c.zero_bubble() ? fmt::format("{} zb", c.pipeline)
                                                   : fmt::format("{}", c.pipeline);
    return fmt::format("{:>4}{}{}  {:>6}  {:>8}  {:>4}  {:>11}  {:<9}", c.data,
                       has_context() ? fmt::format("  {:>7}", c.context) : "",
                       has_expert() ? fmt::format("  {:>6}", c.expert) : "", c.tensor, pipeline,
                       c.zero, c.micro_batch, c.recompute);
  }
  bool has_context() const {
    return std::ranges::any_of(candidates_, [](const auto& c) { return c.context > 1; });
  }
  bool has_expert() const {
    return std::ranges::any_of(candidates_, [](const auto& c) { return c.expert > 1; });
  }

  // How much slower a layout is than the best, and what takes most of the difference.
  static std::string slower(const LayoutEstimate& e, const LayoutEstimate& best) {
    if (e.seconds <= best.seconds) return "";
    const std::pair<double, const char*> causes[] = {{e.compute - best.compute, "compute"},
                                                     {e.exposed - best.exposed, "messages"},
                                                     {e.waits - best.waits, "waits"}};
    const auto& [more, cause] = *std::ranges::max_element(causes);
    return fmt::format("  +{:.0f} %: {} +{:.1f} ms", 100 * (e.seconds / best.seconds - 1), cause,
                       1e3 * more);
  }

  const LoadExperiment& load_;
  const PlanRequest& request_;
  MachineRates rates_;
  const Experiment given_;
  std::vector<std::pair<std::string, OneRank>> measured_{
      {"none", {}}, {"selective", {}}, {"full", {}}};  // by recomputation
  std::optional<DataSplit> data_;                      // opened once
  std::vector<LayoutCandidate> candidates_;
  size_t too_large_ = 0, planned_ = 0, refused_ = 0;  // refused_: meshes
  std::string first_refusal_;
  std::string micro_batch_matters_;
};

}  // namespace

void search_layouts(const LoadExperiment& load, const PlanRequest& request) {
  LayoutSearch search(load, request);
  const auto best = search.run();
  search.print(best);
  std::string command;
  for (const std::string& override : search.fastest(best).overrides()) {
    command += " -s " + override;
  }
  fmt::print("the fastest that fits:{}\n", command);
}

FastestLayout fastest_layout(const LoadExperiment& load, const PlanRequest& request) {
  LayoutSearch search(load, request);
  search.check_micro_batch();
  const auto best = search.run();
  return search.layout(search.fastest(best));
}

}  // namespace dltrain
