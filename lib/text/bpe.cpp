#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/bpe_merges.h"

namespace dltrain {
namespace {

// A direct-mapped cache of the tokens of words. A new word replaces the one in its slot.
class WordCache {
 public:
  static constexpr size_t kMaxWord = 15, kMaxIds = 3;

  struct Word {
    uint64_t low = 0, high = 0;  // its bytes, then zeros; the last byte is the length
    uint32_t count = 0;          // 0: the slot is empty
    std::array<int32_t, kMaxIds> ids{};
  };

  // `piece` has 1 to kMaxWord bytes, and `room` bytes can be read from its begin on.
  Word& find(std::string_view piece, size_t room, uint64_t& low, uint64_t& high) {
    const size_t size = piece.size();
    std::array<uint64_t, 2> bytes{};
    if (room >= 16) {
      std::memcpy(bytes.data(), piece.data(), 16);
      if (size <= 8) {
        bytes[0] &= ~uint64_t{0} >> (8 * (8 - size));
        bytes[1] = 0;
      } else {
        bytes[1] &= ~uint64_t{0} >> (8 * (16 - size));
      }
    } else {
      std::memcpy(bytes.data(), piece.data(), size);
    }
    low = bytes[0];
    high = bytes[1] | static_cast<uint64_t>(size) << 56;
    const uint64_t hash = (low ^ (high * 0x9E3779B97F4A7C15ull)) * 0xD6E8FEB86659FD93ull;
    return words_[hash >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;
  std::vector<Word> words_ = std::vector<Word>(size_t{1} << kBits);
};

// Return the begin of the white space at the end of text[from, end), and the end of the white space
// from `from` on.
size_t strip_end(std::string_view text, size_t from, size_t end) {
  while (end > from) {
    size_t at = character_border(text, end - 1);
    const size_t begin = at;
    if (!is_white_space(next_character(text, at))) break;
    end = begin;
  }
  return end;
}
size_t strip_begin(std::string_view text, size_t from) {
  while (from < text.size()) {
    size_t at = from;
    if (!is_white_space(next_character(text, at))) break;
    from = at;
  }
  return from;
}

// Text that only has characters below U+0300 is in NFC.
bool is_surely_nfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const std::string& name, BpeParts parts) : parts_(std::move(parts)) {
    bytes_ = std::move(parts_.tokens);
    files_ = std::move(parts_.files);
    const auto refuse = [&](const std::string& message) {
      throw Error(ExitCode::data, message, name);
    };
    if (vocab_size() > kMaxTokens) refuse("has ids of 2^21 and more");
    for (const BpeParts::Added& added : parts_.added) add_named(added, refuse);
    while (!bytes_.empty() && bytes_.back().empty()) bytes_.pop_back();
    if (bytes_.empty()) refuse("has no tokens");
    is_special_.resize(bytes_.size());
    for (const BpeParts::Added& added : parts_.added) {
      is_special_[static_cast<size_t>(added.id)] = added.special;
    }
    read_merges(refuse);
    for (const std::string& pattern : parts_.patterns) splitters_.emplace_back(name, pattern);
    cuts_ = std::all_of(splitters_.begin(), splitters_.end(),
                        [](const Splitter& splitter) { return splitter.cuts_at_lines(); }) &&
            std::none_of(parts_.added.begin(), parts_.added.end(), [](const auto& added) {
              return added.strip_left || added.name.find('\n') != std::string::npos;
            });
  }

  std::string_view kind() const override { return "bpe"; }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override;

  // Cuts between a single line break and an ASCII letter, where pieces and normalization end.
  size_t cut(std::string_view text, size_t limit) const override {
    if (!cuts_) return 0;
    for (size_t at = limit; at >= 2; --at) {
      const size_t line_break = text.rfind('\n', at - 1);
      if (line_break == std::string_view::npos || line_break == 0) return 0;
      at = line_break + 1;
      const auto before = static_cast<unsigned char>(text[line_break - 1]);
      const char after = static_cast<char>(text[at] | 0x20);
      // Non-ASCII bytes before it may be white space.
      if (before > ' ' && before < 0x7F && after >= 'a' && after <= 'z') return at;
    }
    return 0;
  }

 private:
  class Encoder;

  template <typename Refuse>
  void add_named(const BpeParts::Added& added, const Refuse& refuse) {
    if (added.name.empty() || added.id < 0 || added.id >= kMaxTokens) {
      refuse(fmt::format("has an added token '{}' of id {}", added.name, added.id));
    }
    const auto id = static_cast<size_t>(added.id);
    if (id >= bytes_.size()) bytes_.resize(id + 1);
    bytes_[id] = added.name;
    if (added.special) record_special_token(special_, added.name, added.id);
  }

  template <typename Refuse>
  void read_merges(const Refuse& refuse) {
    byte_ids_.fill(-1);
    // The keys refer to bytes_, which is final.
    for (size_t id = 0; id < bytes_.size(); ++id) {
      const std::string& token = bytes_[id];
      if (token.empty()) continue;
      const bool first = ids_.emplace(token, static_cast<int32_t>(id)).second;
      if (first && token.size() == 1) {
        byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
      }
    }
    merges_ = MergeTable(parts_.merges.size());
    std::string both;
    uint32_t rank = 0;
    for (const auto& [left, right] : parts_.merges) {
      both.assign(bytes_of(left)).append(bytes_of(right));
      const auto merged = ids_.find(both);
      if (bytes_of(left).empty() || bytes_of(right).empty() || merged == ids_.end()) {
        refuse(fmt::format("merge {} gives no token of the vocabulary", rank));
      }
      merges_.put(left, right, {rank++, merged->second});
    }
  }

  BpeParts parts_;
  std::unordered_map<std::string_view, int32_t> ids_;
  std::array<int32_t, 256> byte_ids_{};
  MergeTable merges_;
  std::vector<Splitter> splitters_;
  bool cuts_ = false;
};

class BpeTokenizer::Encoder final : public TextEncoder {
 public:
  Encoder(const BpeTokenizer& owner, SpecialText special) : owner_(owner), merger_(owner.merges_) {
    std::vector<NamedTokens::Token> named;
    for (const BpeParts::Added& added : owner.parts_.added) {
      if (added.special && special == SpecialText::as_text) continue;
      named.push_back({added.name, added.id});
      if (added.strip_left || added.strip_right) stripping_.push_back(&added);
    }
    named_ = NamedTokens(std::move(named));
    for (const Splitter& splitter : owner.splitters_) walkers_.emplace_back(splitter);
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    check_utf8(text);
    if (owner_.parts_.normalize && !is_surely_nfc(text)) {
      normalize(text);
      text = normalized_;
    }
    begin_ = text.data();
    size_t at = 0;
    while (auto found = named_.find(text, at)) {
      for (const BpeParts::Added* added : stripping_) {
        if (added->id != found->id) continue;
        if (added->strip_left) found->begin = strip_end(text, at, found->begin);
        if (added->strip_right) found->end = strip_begin(text, found->end);
      }
      split(0, text.substr(at, found->begin - at), ids);
      ids.push_back(found->id);
      at = found->end;
    }
    split(0, text.substr(at), ids);
  }

 private:
  void normalize(std::string_view text) {
    utf8proc_uint8_t* result = nullptr;
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
    if (size < 0) throw EncodeError("cannot be normalized to NFC", 0);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
    normalized_.assign(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  }

  void split(size_t level, std::string_view text, std::vector<int32_t>& ids) {
    if (text.empty()) return;
    if (level == walkers_.size()) return encode_piece(text, text.size(), ids);
    Splitter::Walker& walker = walkers_[level];
    const char* end = text.data() + text.size();
    walker.start(text, static_cast<size_t>(text.data() - begin_));
    for (std::string_view piece = walker.next(); !piece.empty(); piece = walker.next()) {
      if (level + 1 == walkers_.size()) {
        encode_piece(piece, static_cast<size_t>(end - piece.data()), ids);
      } else {
        split(level + 1, piece, ids);
      }
    }
  }

  void encode_piece(std::string_view piece, size_t room, std::vector<int32_t>& ids) {
    if (piece.size() > WordCache::kMaxWord) return merge(piece, ids);
    uint64_t low = 0, high = 0;
    WordCache::Word& word = cache_.find(piece, room, low, high);
    if (word.low != low || word.high != high || word.count == 0) {
      const size_t before = ids.size();
      merge(piece, ids);
      const size_t count = ids.size() - before;
      if (count > WordCache::kMaxIds) return;
      word.low = low;
      word.high = high;
      word.count = static_cast<uint32_t>(count);
      std::copy_n(ids.end() - static_cast<std::ptrdiff_t>(count), count, word.ids.begin());
      return;
    }
    ids.insert(ids.end(), word.ids.begin(), word.ids.begin() + word.count);
  }

  void merge(std::string_view piece, std::vector<int32_t>& ids) {
    if (owner_.parts_.whole_words) {
      const auto found = owner_.ids_.find(piece);
      if (found != owner_.ids_.end() && !owner_.is_special(found->second)) {
        ids.push_back(found->second);
        return;
      }
    }
    const size_t before = ids.size();
    for (size_t i = 0; i < piece.size(); ++i) {
      const int32_t id = owner_.byte_ids_[static_cast<unsigned char>(piece[i])];
      if (id < 0) {
        throw EncodeError(fmt::format("the byte 0x{:02x} is not in the tokenizer's vocabulary",
                                      static_cast<unsigned char>(piece[i])),
                          static_cast<size_t>(piece.data() - begin_) + i);
      }
      ids.push_back(id);
    }
    ids.resize(before + merger_.merge(std::span(ids).subspan(before)));
  }

  const BpeTokenizer& owner_;
  Merger merger_;
  NamedTokens named_;
  std::vector<const BpeParts::Added*> stripping_;
  std::vector<Splitter::Walker> walkers_;
  WordCache cache_;
  std::string normalized_;
  const char* begin_ = nullptr;  // of the text that is being encoded
};

std::unique_ptr<TextEncoder> BpeTokenizer::encoder(SpecialText special) const {
  return std::make_unique<Encoder>(*this, special);
}

}  // namespace

std::shared_ptr<Tokenizer> bpe_tokenizer(const std::string& name, BpeParts parts) {
  return std::make_shared<BpeTokenizer>(name, std::move(parts));
}

}  // namespace dltrain
