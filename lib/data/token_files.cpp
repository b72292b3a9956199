#include "data/token_files.h"

#include <array>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/config.h"
#include "data/sequence_config.h"
#include "data/text_files.h"

namespace dltrain {
namespace fs = std::filesystem;
namespace {

constexpr size_t kCheckedAtOnce = size_t{256} << 20;
constexpr size_t kInspectedBytes = size_t{1} << 20;  // bytes that tell ids of 4 bytes from ids of 2
constexpr size_t kMinWide = 16;                      // ids; fewer may be zeros by chance
constexpr uint64_t kTokenFilesMaxMetadata = 1 << 20;
constexpr const char* kFormat = "dltrain.tokens";

// The magic and version of headers, and the bytes of an id.
struct Header {
  int32_t magic, version, width;
};
constexpr Header kHeaders[] = {{20240520, 1, 2}, {20240801, 7, 4}};

std::array<int32_t, 3> first_numbers(std::span<const std::byte> bytes) {
  std::array<int32_t, 3> out{};
  if (bytes.size() >= kTokenHeaderBytes) std::memcpy(out.data(), bytes.data(), sizeof out);
  return out;
}

TokenSegment parse_header(const std::string& name, std::span<const std::byte> bytes) {
  const auto refuse = [&](const std::string& message) {
    throw Error(ExitCode::data, message, name);
  };
  if (bytes.size() < kTokenHeaderBytes) refuse("truncated: its header has 1024 bytes");
  const auto [magic, version, count] = first_numbers(bytes);
  for (const Header& header : kHeaders) {
    if (magic != header.magic) continue;
    if (version != header.version) {
      refuse(fmt::format("has version {} of the layout with magic {}; version {} is supported",
                         version, magic, header.version));
    }
    const auto rest = bytes.subspan(kTokenHeaderBytes);
    const auto width = static_cast<size_t>(header.width);
    if (rest.size() % width != 0 || count < 0 ||
        rest.size() / width != static_cast<size_t>(count)) {
      refuse(fmt::format(
          "{}: its header declares {} tokens, but {} bytes hold {}",
          rest.size() / width < static_cast<size_t>(std::max(count, 0)) ? "truncated" : "damaged",
          count, rest.size(), rest.size() / width));
    }
    if (count == 0) refuse("has no tokens");
    return {name, rest, header.width};
  }
  refuse(fmt::format("has no header of token files: its magic is {}, expected {} or {}", magic,
                     kHeaders[0].magic, kHeaders[1].magic));
  return {};
}

// Returns true if the bytes look like ids of 4 bytes below 65536: their upper halves are zero.
bool looks_wide(std::span<const std::byte> bytes) {
  if (bytes.size() % 4 != 0 || bytes.size() < kMinWide * 4) return false;
  bool any = false;
  for (size_t i = 0; i < std::min(bytes.size(), kInspectedBytes); i += 4) {
    if (bytes[i + 2] != std::byte{0} || bytes[i + 3] != std::byte{0}) return false;
    any = any || bytes[i] != std::byte{0} || bytes[i + 1] != std::byte{0};
  }
  return any;
}

struct TokensConfig final : SequenceConfig {
  TokenLayout layout = TokenLayout::automatic;
  std::optional<int64_t> vocab_size;

  void describe(Fields& f) override {
    describe_path(f, "Files of token ids, or glob patterns of them, in this order", "bin");
    f.choice("layout", layout,
             {{"auto", TokenLayout::automatic, "header if there is one, otherwise uint16"},
              {"uint16", TokenLayout::raw16, "16 bits per id without a header (nanoGPT)"},
              {"uint32", TokenLayout::raw32, "32 bits per id without a header"},
              {"header", TokenLayout::header, "a header of 1024 bytes (llm.c, data prepare)"}},
             {.doc = "Layout of the files", .known_as = {"dtype"}});
    f.integer("vocab_size", vocab_size,
              {.doc = "Ids are below this; if absent, that of tokens.json beside the files, or the "
                      "largest id plus one",
               .min = 1,
               .max = static_cast<double>(kMaxVocabulary)});
    f.one_of("tokenizer", tokenizer, tokenizer_table(),
             {.doc = "The tokenizer of the ids; if absent, the one beside the files, if any"});
    SequenceConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    SequenceConfig::validate(diagnostics);
    if (tokenizer && tokenizer->learns()) {
      diagnostics.add(*tokenizer, "", "a tokenizer cannot be built from tokens without text");
    }
  }

 protected:
  // If the size of the vocabulary is unknown, reads all ids to find it. Otherwise checks the ids at
  // once for files of at most 256 MiB in total, and on use for larger files.
  std::shared_ptr<const TokenStream> open_stream(const Paths& paths, const TokenizerPointer&,
                                                 const std::filesystem::path&) const override {
    auto files = std::make_shared<std::vector<MappedFile>>();
    std::vector<TokenSegment> segments;
    size_t bytes = 0;
    const std::vector<std::string> names = expand_paths(paths);
    for (const std::string& file : names) {
      const auto mapped = files->emplace_back(file, ExitCode::data).bytes();
      segments.push_back(parse_token_file(file, mapped, layout));
      bytes += mapped.size();
    }
    const fs::path folder = fs::path(names.front()).parent_path();
    std::error_code ignored;
    TokensMetadata known;
    if (fs::exists(folder / kTokensFile, ignored)) {
      const fs::path path = folder / kTokensFile;
      known = parse_tokens_metadata(path.string(),
                                    read_file(path, kTokenFilesMaxMetadata, ExitCode::data));
    }
    TokenStream::Metadata metadata{.vocab_size = vocab_size.value_or(0),
                                   .tokenizer = tokenizer ? tokenizer->open({}) : nullptr};
    if (!metadata.tokenizer && holds_tokenizer(folder)) metadata.tokenizer = load_tokenizer(folder);
    if (metadata.tokenizer && !known.tokenizer.empty() &&
        metadata.tokenizer->identity() != known.tokenizer) {
      throw Error(
          ExitCode::data,
          fmt::format("was made by another tokenizer (hash {}) than the one given (hash {})",
                      known.tokenizer, metadata.tokenizer->identity()),
          names.front());
    }
    const auto take_size = [&](int64_t size, const std::string& from) {
      if (metadata.vocab_size != 0 || size == 0) return;
      metadata.vocab_size = size;
      metadata.vocabulary_of = from;
    };
    take_size(known.vocab_size, (folder / kTokensFile).string());
    if (const auto& used = metadata.tokenizer) {
      take_size(used->vocab_size(),
                tokenizer ? "data.tokenizer" : (folder / used->files().front().name).string());
    }
    const bool look = metadata.vocab_size != 0 && bytes <= kCheckedAtOnce;
    auto stream = std::make_shared<TokenStream>(std::move(segments), metadata, files);
    if (look) stream->check();
    return stream;
  }
};

}  // namespace

TokenSegment parse_token_file(const std::string& name, std::span<const std::byte> bytes,
                              TokenLayout layout) {
  if (layout == TokenLayout::automatic) {
    layout = TokenLayout::raw16;
    for (const Header& header : kHeaders) {
      if (first_numbers(bytes)[0] == header.magic) layout = TokenLayout::header;
    }
    if (layout == TokenLayout::raw16 && looks_wide(bytes)) {
      throw Error(ExitCode::data,
                  "every second id of 2 bytes is 0: these seem to be ids of 4 bytes; say layout: "
                  "uint32 (or layout: uint16, where the zeros are meant)",
                  name);
    }
  }
  if (layout == TokenLayout::header) return parse_header(name, bytes);
  const int width = layout == TokenLayout::raw16 ? 2 : 4;
  if (bytes.empty()) throw Error(ExitCode::data, "is empty", name);
  if (bytes.size() % static_cast<size_t>(width) != 0) {
    throw Error(ExitCode::data,
                fmt::format("truncated: {} bytes are no whole number of ids of {} bytes",
                            bytes.size(), width),
                name);
  }
  return {name, bytes, width};
}

std::vector<std::byte> token_file_header(int64_t tokens, int width) {
  check_internal(tokens >= 0 && tokens <= INT32_MAX, "{} tokens in a file", tokens);
  const Header& header = kHeaders[width == 2 ? 0 : 1];
  const std::array<int32_t, 3> numbers{header.magic, header.version, static_cast<int32_t>(tokens)};
  std::vector<std::byte> bytes(kTokenHeaderBytes);
  std::memcpy(bytes.data(), numbers.data(), sizeof numbers);
  return bytes;
}

std::string tokens_metadata_to_json(const TokensMetadata& metadata, int64_t train, int64_t eval) {
  const nlohmann::ordered_json json{{"format", kFormat},
                                    {"version", 1},
                                    {"vocab_size", metadata.vocab_size},
                                    {"tokenizer", metadata.tokenizer},
                                    {"train_tokens", train},
                                    {"eval_tokens", eval}};
  return json_text(json) + "\n";
}

TokensMetadata parse_tokens_metadata(const std::string& name, const std::string& content) {
  const auto refuse = [&](const std::string& message) {
    throw Error(ExitCode::data, message, name);
  };
  TokensMetadata metadata;
  try {
    const auto json = parse_json(content);
    if (json.at("format") != kFormat) refuse("does not describe token files");
    if (json.at("version") != 1) refuse("has an unknown version; version 1 is supported");
    const auto& size = json.at("vocab_size");
    if (!size.is_number_integer() || size < 1 || size > kMaxVocabulary) {
      refuse("has no valid vocab_size");
    }
    metadata = {size.get<int64_t>(), json.at("tokenizer").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    refuse("does not describe token files: " + json_error(error.what()));
  }
  return metadata;
}

KindRow<DatasetConfig> tokens_row() {
  return {"tokens", "Sequences of token ids from prepared .bin files, mapped into memory",
          make_kind_of<TokensConfig>};
}

}  // namespace dltrain
