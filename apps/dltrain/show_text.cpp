#include "dltrain/show_text.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/utf8.h"

namespace dltrain {
namespace {

using Ids = std::vector<int32_t>;

Ids ids_of(const TensorSpec& sample, const std::byte* at) {
  Ids ids(static_cast<size_t>(sample.shape.elements()));
  std::memcpy(ids.data(), at, sample.bytes());
  return ids;
}

std::string shown(std::span<const int32_t> ids, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return fmt::format("{}", fmt::join(ids, " "));
  return shown_line(tokenizer->decode(ids, /*skip_special=*/false));
}

// Calls use(ids, counts) for each run of places that all count or all do not, of `length` places.
template <typename Use>
void each_run(const Ids& ids, const Ids& targets, size_t length, const Use& use) {
  for (size_t begin = 0; begin < length;) {
    size_t end = begin;
    const bool counts = targets[begin] != kIgnoredLabel;
    while (end < length && (targets[end] != kIgnoredLabel) == counts) ++end;
    use(std::span(ids).subspan(begin, end - begin), counts);
    begin = end;
  }
}

// Returns the number of tokens before the padding. A continued text ends with the last target that
// counts; a source ends before the repeated last token.
size_t without_padding(const Ids& ids, const Ids& targets, bool continued) {
  size_t length = ids.size();
  if (continued) {
    while (length > 1 && targets[length - 1] == kIgnoredLabel) --length;
  } else {
    while (length > 1 && ids[length - 1] == ids[length - 2]) --length;
  }
  return length;
}

}  // namespace

bool holds_text(const std::vector<FieldSpec>& fields) {
  const TensorSpec &input = fields.front().sample, &target = fields.back().sample;
  return input.dtype == DType::i32 && input.shape.rank() == 1 && target.dtype == DType::i32 &&
         target.shape.rank() == 1;
}

std::string describe_texts(const std::vector<FieldSpec>& fields, const Batch& batch,
                           const Tokenizer* tokenizer, bool masked) {
  size_t width = 0;
  for (const FieldSpec& field : fields) width = std::max(width, field.name.size());
  std::string out;
  for (int64_t i = 0; i < batch.samples; ++i) {
    const auto row = [&](size_t field) {
      const TensorSpec& sample = fields[field].sample;
      return ids_of(sample, batch.fields[field] + static_cast<size_t>(i) * sample.bytes());
    };
    const Ids targets = row(fields.size() - 1);
    const auto counted = std::count_if(targets.begin(), targets.end(),
                                       [](int32_t id) { return id != kIgnoredLabel; });
    out += fmt::format("{:>4}  {} of {} targets count\n", i, counted, targets.size());
    const auto line = [&](const std::string& name, const std::string& text) {
      out += fmt::format("      {:<{}}  {}\n", name, width, text);
    };
    for (size_t field = 0; field + 1 < fields.size(); ++field) {
      const Ids ids = row(field);
      std::string text;
      if (fields[field].sample.shape.rank() == 0) {
        text = std::to_string(ids[0]);
      } else if (masked) {
        each_run(ids, targets, ids.size(), [&](std::span<const int32_t> run, bool counts) {
          text += counts ? fmt::format("[{}]", shown(run, tokenizer)) : shown(run, tokenizer);
        });
      } else {
        const bool continued = field + 2 == fields.size() && ids.size() == targets.size();
        const size_t length = without_padding(ids, targets, continued);
        text = shown(std::span(ids).first(length), tokenizer);
        if (length < ids.size()) text += fmt::format("  + {} of padding", ids.size() - length);
      }
      line(fields[field].name, text);
    }
    std::string text;
    each_run(targets, targets, targets.size(), [&](std::span<const int32_t> run, bool counts) {
      text += counts ? shown(run, tokenizer) : "…";
    });
    line(fields.back().name, text);
  }
  return out;
}

}  // namespace dltrain
