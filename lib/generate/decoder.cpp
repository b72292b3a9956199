#include "generate/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "compile/id_bounds.h"

namespace dltrain {
namespace {

// Prompts are processed in pieces of these sizes, the greatest that fits first; the last piece is
// padded.
constexpr int64_t kPieces[] = {256, 64, 16};

DecodeRequest with_sizes(const DecodeRequest& request, int64_t samples, int64_t tokens,
                         int64_t slots, int64_t capacity) {
  DecodeRequest r = request;
  r.samples = samples;
  r.tokens = tokens;
  r.slots = slots;
  r.capacity = capacity;
  r.independent_rows = tokens == 1;
  return r;
}

int64_t cut_capacity(const DecoderOptions& options, const DecoderInfo& info) {
  return std::min(options.capacity, info.max_positions.value_or(options.capacity));
}

// The layout of the state that the decoder owns. Every graph of tokens has the same state;
// `source`: the graph of sources, or null.
StateLayout owned_state(const Graph& tokens, const Graph* source, const DecoderOptions& options) {
  const auto is_own = [&](const GraphValue& value) {
    return !options.state || options.state(value.name) == nullptr;
  };
  StateLayout out;
  out.add(tokens, true, is_own);
  if (source != nullptr) out.add(*source, true, is_own);
  return out;
}

ProgramOptions program_options(const DecoderOptions& options) {
  return {.engine = options.engine, .device = options.device};
}

// Returns null for models without sources.
std::unique_ptr<SourceGraph> source_graph(const DecoderOptions& options, int64_t capacity) {
  if (!options.request.source) return nullptr;
  return std::make_unique<SourceGraph>(
      build_source_graph(with_sizes(options.request, 1, 1, options.slots, capacity)));
}

int64_t least_bound(const Graph& graph, ValueId ids, int64_t most) {
  for (const IdBound& bound : id_bounds(graph, {ids})) most = std::min(most, bound.bound);
  return most;
}

// The size of the first piece of so many tokens.
int64_t piece_size(int64_t tokens) {
  for (int64_t piece : kPieces) {
    if (piece <= tokens) return piece;
  }
  return kPieces[std::size(kPieces) - 1];
}

}  // namespace

DecoderInfo decoder_info(const DecodeRequest& request) {
  // With several tokens the axes have different extents.
  const DecodeGraph graph = build_decode_graph(with_sizes(request, 1, 3, 1, 64));
  DecoderInfo info{.max_positions = graph.max_positions,
                   .vocabulary = graph.vocabulary,
                   .ids = graph.vocabulary,
                   .keeps_tokens = graph.keeps_tokens};
  info.ids = least_bound(graph.graph, graph.tokens, info.vocabulary);
  if (request.source) {
    const SourceGraph source = build_source_graph(with_sizes(request, 1, 1, 1, 64));
    info.source_length = request.source->length;
    info.source_ids = least_bound(source.graph, source.source, INT32_MAX);
  }
  return info;
}

size_t decoder_bytes(const DecoderOptions& options, int64_t longest) {
  const int64_t capacity = cut_capacity(options, decoder_info(options.request));
  const auto work = [&](int64_t samples, int64_t tokens) {
    return Program(build_decode_graph(
                       with_sizes(options.request, samples, tokens, options.slots, capacity))
                       .graph,
                   program_options(options))
        .work_bytes();
  };
  const Graph step =
      build_decode_graph(with_sizes(options.request, options.slots, 1, options.slots, capacity))
          .graph;
  const auto source = source_graph(options, capacity);
  size_t bytes = owned_state(step, source ? &source->graph : nullptr, options).bytes() +
                 work(options.slots, 1);
  if (source) bytes += Program(source->graph, program_options(options)).work_bytes();
  for (int64_t piece : kPieces) {
    if (piece <= piece_size(longest)) bytes += work(1, piece);
  }
  return bytes;
}

template <typename GraphType>
struct Decoder::Loaded : LoadedProgram {
  Loaded(const DecoderOptions& options, GraphType of)
      : LoadedProgram(of.graph, program_options(options)),
        graph(std::move(of)),
        work(*options.device, program().work_bytes()) {}

  GraphType graph;
  Buffer work;
};

Decoder::Decoder(const DecoderOptions& options)
    : options_(options),
      info_(decoder_info(options.request)),
      capacity_(cut_capacity(options, info_)),
      stream_(options.device->make_stream()) {
  step_ = make_part(options_.slots, 1);
  if (auto graph = source_graph(options_, capacity_)) {
    source_ = std::make_unique<Source>(options_, std::move(*graph));
    source_lengths_.resize(static_cast<size_t>(options_.slots));
  }
  layout_ = owned_state(step_->graph.graph, source_ ? &source_->graph.graph : nullptr, options_);
  state_ = Buffer(*options_.device, layout_.bytes());
  place_state(*options_.device, *stream_, state_.data());
  step_->load(state_addresses(), step_->work.data());
  if (source_) source_->load(state_addresses(), source_->work.data());
}

Decoder::~Decoder() {
  try {
    stream_->synchronize();
  } catch (const Error&) {  // the device has failed, which was reported before
  }
}

size_t Decoder::bytes() const {
  size_t sum = state_.bytes() + step_->work.bytes() + (source_ ? source_->work.bytes() : 0);
  for (const auto& [tokens, part] : prompts_) sum += part->work.bytes();
  return sum;
}

std::unique_ptr<Decoder::Part> Decoder::make_part(int64_t samples, int64_t tokens) {
  return std::make_unique<Part>(
      options_,
      build_decode_graph(with_sizes(options_.request, samples, tokens, options_.slots, capacity_)));
}

const std::vector<ParameterInfo>& Decoder::weights() const {
  return step_->graph.parameters;
}

StateAddress Decoder::state_addresses() const {
  return [this](const GraphValue& value) {
    if (std::byte* own = find_state(value.name)) return own;
    std::byte* elsewhere = options_.state ? options_.state(value.name) : nullptr;
    check_internal(elsewhere != nullptr, "the decoder has no {}", value.name);
    return elsewhere;
  };
}

void Decoder::write_state(std::string_view name, std::span<const std::byte> bytes) {
  if (layout_.find(name) != nullptr) return StateStore::write_state(name, bytes);
  const StateTensor* copy = layout_.find(name, Role::low_precision);
  if (copy != nullptr) refresh_copy(*copy, 0, bytes);
}

void Decoder::run(Part& part, std::span<const int32_t> tokens, std::span<const int32_t> positions,
                  std::span<const int32_t> counts, std::span<const int32_t> slots) {
  const auto fill = [&](ValueId value, std::span<const int32_t> from) {
    part.write(value, from, *stream_);
  };
  fill(part.graph.tokens, tokens);
  fill(part.graph.positions, positions);
  fill(part.graph.counts, counts);
  fill(part.graph.slots, slots);
  std::vector<int32_t> lengths;  // lives until the stream has copied it
  if (part.graph.source_lengths != kNoValue) {
    for (int32_t slot : slots) lengths.push_back(source_lengths_[static_cast<size_t>(slot)]);
    fill(part.graph.source_lengths, lengths);
  }
  part.frame().run(Phase::forward, MicroStep::only, *stream_);
  const TensorSpec& spec = part.graph.graph.value(part.graph.output).spec;
  logits_.resize(static_cast<size_t>(spec.shape.elements()));
  std::vector<double> wide(spec.dtype == DType::f64 ? logits_.size() : 0);
  void* to = wide.empty() ? static_cast<void*>(logits_.data()) : wide.data();
  part.read(part.graph.output, to, *stream_);
  stream_->synchronize();
  std::copy(wide.begin(), wide.end(), logits_.begin());
}

// Returns the program for a piece of at most so many tokens.
Decoder::Part& Decoder::prompt_part(size_t tokens) {
  const int64_t size = piece_size(static_cast<int64_t>(tokens));
  auto& part = prompts_[size];
  if (!part) {
    part = make_part(1, size);
    part->load(state_addresses(), part->work.data());
  }
  return *part;
}

void Decoder::read_source(int64_t slot, std::span<const int32_t> tokens, int32_t padding) {
  check_internal(source_ && slot < options_.slots &&
                     static_cast<int64_t>(tokens.size()) <= *info_.source_length,
                 "a source of {} tokens in slot {}", tokens.size(), slot);
  std::vector<int32_t> padded(tokens.begin(), tokens.end());
  padded.resize(static_cast<size_t>(*info_.source_length), padding);
  const auto length = static_cast<int32_t>(tokens.size()), in = static_cast<int32_t>(slot), one = 1;
  const auto fill = [&](ValueId value, std::span<const int32_t> from) {
    source_->write(value, from, *stream_);
  };
  fill(source_->graph.source, padded);
  if (source_->graph.source_lengths != kNoValue) {
    fill(source_->graph.source_lengths, {&length, 1});
  }
  fill(source_->graph.counts, {&one, 1});
  fill(source_->graph.slots, {&in, 1});
  source_->frame().run(Phase::forward, MicroStep::only, *stream_);
  stream_->synchronize();
  source_lengths_[static_cast<size_t>(slot)] = length;
}

std::span<const float> Decoder::prefill(int64_t slot, std::span<const int32_t> tokens,
                                        int64_t position) {
  check_internal(
      !tokens.empty() && slot < options_.slots &&
          (!info_.keeps_tokens || position + static_cast<int64_t>(tokens.size()) <= capacity_),
      "{} tokens from {} on in slot {}", tokens.size(), position, slot);
  while (!tokens.empty()) {
    Part& part = prompt_part(tokens.size());
    const auto size = static_cast<size_t>(part.graph.graph.value(part.graph.tokens).spec.shape[1]);
    const size_t count = std::min(size, tokens.size());
    std::vector<int32_t> padded(tokens.begin(),
                                tokens.begin() + static_cast<std::ptrdiff_t>(count));
    padded.resize(size, 0);
    const int32_t first = static_cast<int32_t>(position), there = static_cast<int32_t>(count),
                  in = static_cast<int32_t>(slot);
    run(part, padded, {&first, 1}, {&there, 1}, {&in, 1});
    tokens = tokens.subspan(count);
    position += static_cast<int64_t>(count);
  }
  return logits_;
}

std::span<const float> Decoder::step(std::span<const Next> next) {
  check_internal(static_cast<int64_t>(next.size()) == options_.slots, "{} tokens for {} slots",
                 next.size(), options_.slots);
  std::vector<int32_t> tokens, positions, counts, slots;
  for (const Next& n : next) {
    slots.push_back(static_cast<int32_t>(slots.size()));
    tokens.push_back(std::max(n.token, 0));
    positions.push_back(n.position);
    counts.push_back(n.token >= 0 ? 1 : 0);
  }
  run(*step_, tokens, positions, counts, slots);
  return logits_;
}

}  // namespace dltrain
