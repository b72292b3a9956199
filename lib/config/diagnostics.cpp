#include "config/diagnostics.h"

#include <algorithm>

namespace dltrain {

void Diagnostics::add(const SourceLocation& written, std::string message) {
  const SourceLocation& location = written.editable();
  ++reported_;
  if (full()) {
    ++dropped_;
    return;
  }
  for (const Diagnostic& known : diagnostics_) {
    const bool same_location = known.location.known() && known.location.is_same_place(location);
    if (same_location && (known.is_cause || known.message == message)) return;
    // An architecture may pass one value to many layers.
    if (same_location && !location.argument.empty()) return;
    // Problems of a definition that is used at several places are reported once.
    if (same_location && known.location.used_at != location.used_at) return;
  }
  diagnostics_.push_back({location, std::move(message)});
}

void Diagnostics::add_cause(const SourceLocation& location, std::string message) {
  const size_t before = diagnostics_.size();
  add(location, std::move(message));
  if (diagnostics_.size() > before) diagnostics_.back().is_cause = true;
}

void Diagnostics::append(const Diagnostics& other) {
  for (const Diagnostic& diagnostic : other.diagnostics_)
    add(diagnostic.location, diagnostic.message);
  for (const std::string& warning : other.warnings_) warn(warning);
}

void Diagnostics::add_at_new_locations(const Diagnostics& other) {
  for (const std::string& warning : other.warnings_) {
    if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) warn(warning);
  }
  reported_ += other.reported_;
  dropped_ += other.dropped_;
  const size_t before = diagnostics_.size();
  for (const Diagnostic& found : other.diagnostics_) {
    const auto at_location = [&](const Diagnostic& known) {
      return known.location.is_same_place(found.location);
    };
    const auto end = diagnostics_.begin() + static_cast<long>(before);
    if (std::none_of(diagnostics_.begin(), end, at_location)) diagnostics_.push_back(found);
  }
}

std::string Diagnostics::describe() const {
  // Sources are sorted by their first problem, the problems of a source by position.
  std::vector<const Source*> sources;
  for (const Diagnostic& diagnostic : diagnostics_) {
    if (std::find(sources.begin(), sources.end(), diagnostic.location.source.get()) ==
        sources.end()) {
      sources.push_back(diagnostic.location.source.get());
    }
  }
  std::vector<const Diagnostic*> sorted;
  for (const Diagnostic& diagnostic : diagnostics_) sorted.push_back(&diagnostic);
  const auto rank = [&](const Diagnostic* diagnostic) {
    const auto at = std::find(sources.begin(), sources.end(), diagnostic->location.source.get());
    return std::pair(at - sources.begin(), diagnostic->location.offset);
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Diagnostic* a, const Diagnostic* b) { return rank(a) < rank(b); });
  std::string out;
  for (size_t i = 0; i < sorted.size() && i < kMaxShown; ++i) {
    if (i > 0) out += '\n';
    out += describe_location(sorted[i]->location, sorted[i]->message);
  }
  const size_t hidden = sorted.size() - std::min(sorted.size(), kMaxShown) + dropped_;
  if (hidden > 0) out += fmt::format("\n… and {} more", hidden);
  return out;
}

void Diagnostics::throw_if_any(ExitCode code) const {
  if (!empty()) throw ConfigError(*this, code);
}

}  // namespace dltrain
