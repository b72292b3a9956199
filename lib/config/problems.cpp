#include "config/problems.h"

#include <algorithm>

namespace dltrain {

void Problems::add(const Place& written, std::string message) {
  const Place& place = written.editable();
  ++reported_;
  if (full()) {
    ++dropped_;
    return;
  }
  for (const Problem& known : problems_) {
    const bool same_place = known.place.known() && known.place.source == place.source &&
                            known.place.offset == place.offset;
    if (same_place && (known.is_cause || known.message == message)) return;
    // An architecture may pass one value to many layers.
    if (same_place && !place.argument.empty()) return;
    // Problems of a definition that is used at several places are reported once.
    if (same_place && known.place.used_at != place.used_at) return;
  }
  problems_.push_back({place, std::move(message)});
}

void Problems::add_cause(const Place& place, std::string message) {
  const size_t before = problems_.size();
  add(place, std::move(message));
  if (problems_.size() > before) problems_.back().is_cause = true;
}

void Problems::append(const Problems& other) {
  for (const Problem& problem : other.problems_) add(problem.place, problem.message);
  for (const std::string& warning : other.warnings_) warn(warning);
}

void Problems::add_new_places(const Problems& other) {
  for (const std::string& warning : other.warnings_) {
    if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) warn(warning);
  }
  reported_ += other.reported_;
  dropped_ += other.dropped_;
  const size_t before = problems_.size();
  for (const Problem& found : other.problems_) {
    const auto at_place = [&](const Problem& known) {
      return known.place.source == found.place.source && known.place.offset == found.place.offset;
    };
    const auto end = problems_.begin() + static_cast<long>(before);
    if (std::none_of(problems_.begin(), end, at_place)) problems_.push_back(found);
  }
}

std::string Problems::describe() const {
  // Sources are sorted by their first problem, the problems of a source by position.
  std::vector<const Source*> sources;
  for (const Problem& problem : problems_) {
    if (std::find(sources.begin(), sources.end(), problem.place.source.get()) == sources.end()) {
      sources.push_back(problem.place.source.get());
    }
  }
  std::vector<const Problem*> sorted;
  for (const Problem& problem : problems_) sorted.push_back(&problem);
  const auto rank = [&](const Problem* problem) {
    const auto at = std::find(sources.begin(), sources.end(), problem->place.source.get());
    return std::pair(at - sources.begin(), problem->place.offset);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Problem* a, const Problem* b) { return rank(a) < rank(b); });
  std::string out;
  for (size_t i = 0; i < sorted.size() && i < kMaxShown; ++i) {
    if (i > 0) out += '\n';
    out += describe_place(sorted[i]->place, sorted[i]->message);
  }
  const size_t hidden = sorted.size() - std::min(sorted.size(), kMaxShown) + dropped_;
  if (hidden > 0) out += fmt::format("\n… and {} more", hidden);
  return out;
}

void Problems::throw_if_any(ExitCode code) const {
  if (!empty()) throw ConfigError(*this, code);
}

}  // namespace dltrain
