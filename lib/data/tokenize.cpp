#include "data/tokenize.h"

#include <memory>

#include "data/ordered_work.h"

namespace dltrain {

void tokenize(const TextFile& file, const Tokenizer& tokenizer, const TokenizeOptions& options,
              const std::function<void(std::span<const int32_t>)>& use) {
  struct Piece {
    std::string_view text;
    std::vector<int32_t> ids;
  };
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
        try {
          encoder->encode(piece.text, piece.ids);
        } catch (const EncodeError& error) {
          const auto offset = static_cast<size_t>(piece.text.data() - text.data());
          throw Error(ExitCode::data, error.reason(), file.location_of(offset + error.offset()));
        }
      },
      [&](const Piece& piece) { use(piece.ids); });
}

}  // namespace dltrain
