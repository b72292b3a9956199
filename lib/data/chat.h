// Chats: lists of turns of a user and an assistant, which a chat format renders to one text.
//
// A record holds a list of {"role": system | user | assistant, "content": text}, or of ShareGPT's
// {"from": system | human | gpt, "value": text}. A content may also be a list of
// {"type": "text", "text": text}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/fields.h"
#include "text/tokenizer.h"

namespace dltrain {

enum class ChatRole : uint8_t { system, user, assistant };

struct ChatTurn {
  ChatRole role = ChatRole::user;
  std::string content;
};

// Throws Error(data) at `location` for another value of the key, and for an empty list.
std::vector<ChatTurn> chat_turns(const nlohmann::json& value, const std::string& key,
                                 const std::string& location);

enum class ChatFormatName : uint8_t { chatml, llama3, zephyr, plain };
// Throws Error(internal) for a name that is not in the list.
ChatFormatName chat_format_named(std::string_view name);
std::vector<std::string_view> chat_format_names();

// The key `data.chat_format`. Texts contain {content}, and {bos} and {eos} for the names of the
// tokenizer's begin and end of a text; those that are given replace those of `name`.
struct ChatConfig : ConfigObject {
  static constexpr std::string_view kBareKey = "name";  // `chat_format: chatml`
  std::optional<ChatFormatName> name;                   // absent: found by the tokenizer's tokens
  std::optional<std::string> begin, system, user, assistant, default_system;
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
  // Returns the texts around contents, as far as they do not depend on the tokenizer.
  std::vector<std::string> texts() const;
};

class ChatFormat {
 public:
  // Throws Error(usage) if no format is given and none is found, and for a format with the name of
  // a token that the tokenizer lacks.
  ChatFormat(const ChatConfig& config, const Tokenizer& tokenizer);

  struct Rendered {
    std::string text;
    // Byte ranges of the answers: contents of the assistant with blanks before and what ends them.
    std::vector<std::pair<size_t, size_t>> answers;
  };
  // Throws Error(data) at `location` for a turn of the system where the format has none.
  Rendered render(const std::vector<ChatTurn>& turns, const std::string& location) const;
  // Returns the turns and what begins an answer, without blanks at its end, which the model writes.
  std::string prompt(const std::vector<ChatTurn>& turns, const std::string& location) const;
  // Returns whether the model writes blanks before an answer.
  bool has_blanks_before() const { return assistant_.before.ends_with(' '); }
  // Returns the text that ends an answer.
  const std::string& end() const { return end_; }
  // Returns the format as a chat template of transformers. It knows the roles system, user and
  // assistant.
  std::string jinja() const;

 private:
  struct Around {
    std::string before, after;
  };
  const Around& around(ChatRole role, const std::string& location) const;

  std::string begin_, end_;
  Around system_, user_, assistant_;
  bool has_system_ = true, trims_ = false;
  std::optional<std::string> default_system_;
};

// Returns the token ranges of the answers: `ids` is the text as tokens. A token that begins before
// an answer and ends in it belongs to it.
std::vector<std::pair<size_t, size_t>> answer_tokens(const ChatFormat::Rendered& chat,
                                                     const std::vector<int32_t>& ids,
                                                     TextEncoder& encoder);

}  // namespace dltrain
