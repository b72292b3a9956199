#include "passes/stage_cut.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "comm/mesh.h"
#include "graph/builder.h"
#include "passes/dead_code.h"
#include "passes/partition.h"
#include "passes/stage_assignment.h"

namespace dltrain {
namespace {

class StageCutter {
 public:
  StageCutter(Graph graph, const StageCut& cut)
      : graph_(std::move(graph)),
        own_(cut.rank),
        last_(cut.stages() - 1),
        cut_(cut),
        slot_(graph_.next_slot()),
        assigned_(assign_stages(graph_, cut)),
        builder_(graph_),
        whole_sums_(graph_.whole_sums()) {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      roots_.push_back(graph_.storage(static_cast<ValueId>(i)));
    }
    for (int chunk = 0; chunk < cut.chunks; ++chunk) mine_ |= only(stage_of(chunk));
    old_ = std::exchange(graph_.nodes, {});
    trains_ = std::ranges::any_of(old_, [](const Node& n) { return n.phase == Phase::update; });
  }

  Graph run() {
    find_crossing();
    split_sums();
    for (int chunk = 0; chunk < cut_.chunks; ++chunk) emit(Phase::forward, chunk);
    for (int chunk = cut_.chunks; chunk-- > 0;) emit(Phase::backward, chunk);
    builder_.set_chunk(0);
    if (trains_) emit_update();
    place_state();
    graph_.update_producers();
    return eliminate_dead_code(std::move(graph_));
  }

 private:
  Stages& owners(ValueId id) { return assigned_.owners[static_cast<size_t>(graph_.storage(id))]; }
  // The stage whose node produces a value in a phase; −1: none does.
  int made_on(ValueId id, Phase phase) const { return assigned_.made_on(graph_, old_, id, phase); }
  int rank_of(int stage) const { return stage % cut_.ranks(); }
  Stages ranks_of(const Stages& stages) const {
    Stages out;
    for (int stage = 0; stage <= last_; ++stage) {
      if ((stages & only(stage)).any()) out |= only(rank_of(stage));
    }
    return out;
  }
  bool is_here(const Stages& stages) const { return (stages & mine_).any(); }

  // A value that a stage of this rank receives or sends on, or both.
  struct Crossing {
    ValueId value;
    int from, to;  // the stage that produces it, and the last one that reads it
    Phase phase;
    int chunk;
    int64_t slot_in, slot_out;
  };

  // The stages between the producer of a value and its readers, in the order in which both
  // neighbours send and receive.
  void find_crossing() {
    std::map<ValueId, int> furthest;  // of the readers
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].phase == Phase::update) continue;
      const int stage = first_of(assigned_.nodes[i]);
      for (ValueId id : old_[i].inputs) {
        for (Phase phase : {Phase::forward, Phase::backward}) {
          const int from = made_on(id, phase);
          if (from < 0 || from == stage) continue;
          int& to = furthest.try_emplace(id, from).first->second;
          to = phase == Phase::forward ? std::max(to, stage) : std::min(to, stage);
        }
      }
    }
    for (const auto& [id, to] : furthest) {
      const Node& made = old_[static_cast<size_t>(graph_.value(id).producer)];
      const int from = made_on(id, made.phase);
      const int step = made.phase == Phase::forward ? 1 : -1;
      for (int chunk = 0; chunk < cut_.chunks; ++chunk) {
        const int stage = stage_of(chunk);
        if ((stage - from) * step < 0 || (to - stage) * step < 0) continue;
        crossing_.push_back({id, from, to, made.phase, chunk, 0, 0});
      }
    }
    std::ranges::sort(crossing_, {}, [&](const Crossing& c) {
      const int distance = c.phase == Phase::forward ? c.from : -c.from;
      return std::tuple(c.phase, distance, graph_.value(c.value).producer, c.value);
    });
    for (Crossing& c : crossing_) {
      c.slot_in = slot_++;
      c.slot_out = slot_++;
    }
  }

  static Attributes message(Phase phase, int64_t slot) {
    return message_attributes(
        slot, phase == Phase::backward ? mesh_axes::kPipelineBack : mesh_axes::kPipeline);
  }
  static Attributes with_peer(Attributes attributes, int peer) {
    attributes.set("peer", int64_t{peer});
    return attributes;
  }

  // Returns the begun value, which `end` completes.
  ValueId receive(const TensorSpec& spec, int from, Phase phase, int64_t slot) {
    Attributes begin = with_peer(message(phase, slot), from);
    begin.set("shape", spec.shape.list());
    begin.set("dtype", std::string(dtype_name(spec.dtype)));
    return builder_.emit1("receive_begin", {}, begin);
  }
  ValueId end_receive(ValueId begun, Phase phase, int64_t slot) {
    return builder_.emit1("receive_end", {begun}, message(phase, slot));
  }
  void send(ValueId id, int to, Phase phase, int64_t slot) {
    builder_.emit("send_begin", {id}, with_peer(message(phase, slot), to));
  }
  void end_send(ValueId id, Phase phase, int64_t slot) {
    builder_.emit("send_end", {id}, message(phase, slot));
  }

  int stage_of(int chunk) const { return chunk * cut_.ranks() + own_; }

  void emit(Phase phase, int chunk) {
    const bool several = cut_.chunks > 1;
    chunk_ = chunk;
    builder_.set_phase(phase);
    builder_.set_chunk(trains_ ? chunk : 0);
    builder_.set_layer("pipeline");
    const int own = stage_of(chunk), step = phase == Phase::forward ? 1 : -1;
    const int before = rank_of(own - step + last_ + 1), after = rank_of(own + step + last_ + 1);
    std::vector<Crossing> crossing;
    std::ranges::copy_if(crossing_, std::back_inserter(crossing),
                         [&](const Crossing& c) { return c.phase == phase && c.chunk == chunk; });
    std::vector<ValueId> begun;
    for (const Crossing& c : crossing) {
      if (c.from == own) continue;
      begun.push_back(receive(graph_.value(c.value).spec, before, phase, c.slot_in));
    }
    // Until the backward of a micro-batch, its activations have certainly arrived.
    if (phase == Phase::backward && trains_) end_sends(Phase::forward, own);
    auto next = begun.begin();
    for (const Crossing& c : crossing) {
      if (c.from != own) received_[{chunk, c.value}] = end_receive(*next++, phase, c.slot_in);
    }
    const bool sends_last = several || (cut_.sends_last && phase == Phase::backward);
    // Not before the others are received: a message to a stage that is busy would delay them.
    for (const Crossing& c : crossing) {
      if (c.from == own || c.to == own || sends_last) continue;
      send(here(c.value), after, phase, c.slot_out);
    }
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].phase != phase || assigned_.nodes[i] != only(own)) continue;
      emit_node(old_[i]);
      for (const Crossing& c : crossing) {
        const bool made = c.from == own && graph_.value(c.value).producer == static_cast<int>(i);
        if (made && !sends_last) send(c.value, after, phase, c.slot_out);
      }
    }
    for (const Crossing& c : crossing) {
      if (sends_last && c.to != own) send(here(c.value), after, phase, c.slot_out);
    }
    if (phase == Phase::backward || !trains_) end_sends(phase, own);
  }

  void end_sends(Phase phase, int own) {
    for (const Crossing& c : crossing_) {
      if (c.phase == phase && c.chunk == chunk_ && c.to != own) {
        end_send(here(c.value), phase, c.slot_out);
      }
    }
  }

  // The value of this stage.
  ValueId here(ValueId id) const {
    const auto found = received_.find({chunk_, id});
    return found == received_.end() ? id : found->second;
  }

  void emit_node(Node node) {
    if (trains_ && node.phase != Phase::update) node.chunk = chunk_;
    for (ValueId& id : node.inputs) id = here(id);
    for (ValueId id : node.outputs) {
      ValueId& base = graph_.value(id).storage_of;
      base = here(base);
    }
    graph_.nodes.push_back(std::move(node));
  }

  // A gradient to which layers of several ranks add becomes a sum of this rank's part.
  void split_sums() {
    for (ValueId id : graph_.with_role(Role::gradient)) {
      if (is_one(ranks_of(owners(id)))) continue;
      const GraphValue sum = graph_.value(id);
      const Stages stages = owners(id);
      const ValueId whole = whole_sums_[static_cast<size_t>(id)];
      ValueId part = kNoValue;  // the last one of this rank
      for (size_t i = 0; i < graph_.values.size(); ++i) {
        const auto link = static_cast<ValueId>(i);
        if (roots_[i] != id) continue;
        GraphValue& value = graph_.value(link);
        const int stage = made_on(link, Phase::backward);
        if (stage < 0 || rank_of(stage) != own_) {
          value = {.name = {}, .spec = value.spec, .producer = value.producer};
          continue;
        }
        if (part == kNoValue) {
          const int producer = value.producer;
          value = sum;
          value.producer = producer;
          assigned_.owners[i] = stages;
        } else {
          value.storage_of = part;
        }
        part = link;
      }
      if (part != kNoValue) shared_.push_back({whole, part, ranks_of(stages)});
    }
  }

  void emit_update() {
    builder_.set_phase(Phase::update);
    builder_.set_layer("pipeline");
    chunk_ = -1;
    for (const SharedSum& sum : shared_) received_[{chunk_, sum.whole}] = exchange(sum);
    send_metrics();
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].phase != Phase::update || !is_here(assigned_.nodes[i])) continue;
      Node node = old_[i];
      if (node.op->update == UpdateKind::norm) {
        std::erase_if(node.inputs, [&](ValueId id) {
          const Stages stages =
              assigned_.owners[static_cast<size_t>(roots_[static_cast<size_t>(id)])];
          return stages.any() && rank_of(first_of(stages)) != own_;
        });
        if (node.inputs.size() < 2) node.inputs.push_back(empty_state());
      }
      emit_node(std::move(node));
    }
  }

  // State of another stage, of which this one stores no element: it adds 0 to the norm.
  ValueId empty_state() {
    for (ValueId id : graph_.with_role(Role::parameter)) {
      if (!is_here(assigned_.owners[static_cast<size_t>(id)])) return id;
    }
    fail(ExitCode::internal, "internal error: stage {} has all parameters and no gradients", own_);
  }

  // The sum over the ranks that share a parameter, added in their order.
  struct SharedSum {
    ValueId whole, part;
    Stages ranks;
  };
  ValueId exchange(const SharedSum& sum) {
    const TensorSpec spec = graph_.value(sum.part).spec;
    std::map<int, ValueId> parts{{own_, sum.part}};
    const auto in_order = [&](int sender, int receiver) {
      const int64_t slot = slot_++;
      if (sender == own_) {
        send(sum.part, receiver, Phase::update, slot);
        end_send(sum.part, Phase::update, slot);
      } else if (receiver == own_) {
        const ValueId begun = receive(spec, sender, Phase::update, slot);
        parts[sender] = end_receive(begun, Phase::update, slot);
      }
    };
    for (int a = 0; a < cut_.ranks(); ++a) {
      for (int b = a + 1; b < cut_.ranks(); ++b) {
        if (!sum.ranks[static_cast<size_t>(a)] || !sum.ranks[static_cast<size_t>(b)]) continue;
        in_order(a, b);
        in_order(b, a);
      }
    }
    ValueId total = kNoValue;
    for (const auto& [rank, part] : parts) {
      total = total == kNoValue ? part : builder_.emit1("add", {total, part});
    }
    graph_.value(total).layout = graph_.value(graph_.storage(sum.part)).layout;
    return total;
  }

  void send_metrics() {
    for (ValueId id : graph_.with_role(Role::metric)) {
      const int from = rank_of(first_of(owners(id)));
      const GraphValue metric = graph_.value(id);
      for (int to = 0; to < cut_.ranks(); ++to) {
        const int64_t slot = slot_++;
        if (to == from) continue;
        if (own_ == from) {
          send(whole_sums_[static_cast<size_t>(id)], to, Phase::update, slot);
          end_send(whole_sums_[static_cast<size_t>(id)], Phase::update, slot);
        } else if (own_ == to) {
          const ValueId begun = receive(metric.spec, from, Phase::update, slot);
          graph_.value(id).name.clear();
          graph_.value(begun).name = metric.name;
          graph_.value(begun).role = Role::partial;
          end_receive(begun, Phase::update, slot);
        }
      }
    }
  }

  // State of other stages is dropped, apart from what checkpoints contain.
  void place_state() {
    for (size_t i = 0; i < assigned_.owners.size(); ++i) {
      GraphValue& value = graph_.values[i];
      const Stages stages = assigned_.owners[i];
      const bool loaded = rules_of(value.role).checkpointed || value.role == Role::constant;
      if (loaded && value.storage_of == kNoValue) {
        if (stages.none() && !trains_) {  // training decides where it is
          value.role = Role::activation;
          value.name.clear();
          continue;
        }
        if (!value.shard) value.shard = Shard{.whole = value.spec};
        value.shard->stage = stages.none() ? 0 : rank_of(first_of(stages));
        value.shard->is_here = stages.none() || is_here(stages);
        value.spec = value.shard->stored();
        continue;
      }
      const int made = made_on(static_cast<ValueId>(i), Phase::forward);
      const bool made_elsewhere = value.role == Role::output && (made < 0 || rank_of(made) != own_);
      if (made_elsewhere || (stages.any() && !is_here(stages))) {
        value.role = Role::activation;
        value.name.clear();
      }
    }
  }

  Graph graph_;
  std::vector<Node> old_;
  const int own_, last_;  // rank, stage
  Stages mine_;           // of this rank
  const StageCut& cut_;
  bool trains_ = false;
  int64_t slot_;
  StageAssignment assigned_;  // of old_ and the values of the whole graph
  GraphBuilder builder_;
  std::vector<Crossing> crossing_;
  std::vector<ValueId> roots_;       // the storage of each value of the whole graph
  std::vector<ValueId> whole_sums_;  // likewise (Graph::whole_sums)
  std::vector<SharedSum> shared_;
  int chunk_ = 0;  // that is emitted; −1: the update
  // By chunk: values of other stages, and sums over ranks.
  std::map<std::pair<int, ValueId>, ValueId> received_;
};

}  // namespace

Graph stage_cut(Graph graph, const StageCut& cut) {
  return StageCutter(std::move(graph), cut).run();
}

}  // namespace dltrain
