#include "data/text_files.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include <glob.h>

#include "base/error.h"
#include "base/log.h"
#include "data/byte_source.h"
#include "data/memory_dataset.h"
#include "data/ordered_work.h"
#include "text/special_tokens.h"

namespace dltrain {

std::vector<std::string> expand_paths(const std::vector<std::string>& patterns, const char* key) {
  std::vector<std::string> out;
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of("*?[") == std::string::npos) {
      std::error_code ignored;
      if (std::filesystem::is_directory(pattern, ignored)) {
        throw Error(ExitCode::data,
                    fmt::format("is a folder; {} takes a file, a list of files, or a pattern such "
                                "as '{}'",
                                key, (std::filesystem::path(pattern) / "*").string()),
                    pattern);
      }
      out.push_back(pattern);
      continue;
    }
    glob_t found{};
    const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (code != 0) throw Error(ExitCode::data, "no file matches this pattern", pattern);
  }
  return out;
}

TextFile::TextFile(std::string name) : name_(std::move(name)), file_(name_, ExitCode::data) {
  text_ = {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  if (text_.starts_with("\x1f\x8b")) {
    const ByteSource read = open_bytes(name_);
    std::vector<char> piece(1 << 20);
    while (const size_t n = read(piece)) {
      inflated_.append(piece.data(), n);
      check_fits_memory(inflated_.size() * 2, name_);
    }
    text_ = inflated_;
  }
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
}

std::string TextFile::location_of(size_t offset) const {
  const std::string_view before = text_.substr(0, offset);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1: 0
  return fmt::format("{}:{}:{}", name_, lines + 1, offset - line_begin + 1);
}

void warn_of_name(const std::string& location, std::string_view name) {
  log_warning(
      "{}: {} is the name of a special token, which is read as ordinary text; "
      "data.tokenizer.parse_special: true reads such names as tokens",
      location, name);
}

void tokenize(const TextFile& file, const Tokenizer& tokenizer, const TokenizeOptions& options,
              const std::function<void(std::span<const int32_t>)>& use) {
  struct Piece {
    std::string_view text;
    std::vector<int32_t> ids;
    std::optional<NamedTokens::Found> name;  // of a special token, as ordinary text
  };
  bool warned = options.special == SpecialText::as_tokens;
  const NamedTokens names = warned ? NamedTokens() : special_names(tokenizer);
  const std::string_view text = file.text();
  std::string_view rest = text;
  const auto next_piece = [&] {
    size_t size = rest.size();
    // If no cut is found, the piece is enlarged, at most to the whole rest.
    for (size_t limit = options.piece; limit < rest.size(); limit *= 2) {
      const size_t cut = tokenizer.cut(rest, limit);
      if (cut == 0) continue;
      size = cut;
      break;
    }
    const std::string_view piece = rest.substr(0, size);
    rest.remove_prefix(size);
    return piece;
  };
  std::vector<std::unique_ptr<TextEncoder>> encoders(static_cast<size_t>(options.threads));
  ordered_work<Piece>(
      options.threads,
      [&](Piece& piece) {
        piece.text = next_piece();
        return !piece.text.empty();
      },
      [&](Piece& piece, int thread) {
        auto& encoder = encoders[static_cast<size_t>(thread)];
        if (!encoder) encoder = tokenizer.encoder(options.special);
        piece.ids.clear();
        piece.name = names.find(piece.text, 0);
        const auto offset = static_cast<size_t>(piece.text.data() - text.data());
        try {
          if (offset == 0) {
            encoder->encode(piece.text, piece.ids);
          } else {
            tokenizer.encode_rest(*encoder, piece.text, piece.ids);
          }
        } catch (const EncodeError& error) {
          throw Error(ExitCode::data, error.reason(), file.location_of(offset + error.offset()));
        } catch (const std::bad_alloc&) {
          throw Error(ExitCode::memory, "out of memory for its tokens; split it into several files",
                      file.name());
        }
      },
      [&](const Piece& piece) {
        if (piece.name && !warned) {
          const auto at = static_cast<size_t>(piece.text.data() - text.data()) + piece.name->begin;
          warn_of_name(file.location_of(at), name_of_token(tokenizer, piece.name->id));
          warned = true;
        }
        use(piece.ids);
      });
}

}  // namespace dltrain
