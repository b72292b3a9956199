#include "data/chat.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace {

constexpr std::string_view kContent = "{content}";

struct ChatTexts {
  std::string_view name, doc, begin, system, user, assistant;
  // A token by which tokenizers for this format are known; all names <|…|> in the texts are then
  // tokens. Empty: they are ordinary text.
  std::string_view token = {};
  bool trims = false;  // white space around contents
};
// In the order of ChatFormatName.
constexpr std::array<ChatTexts, 4> kChatTexts{{
    {"chatml", "<|im_start|>user … <|im_end|> (Qwen and others)", "",
     "<|im_start|>system\n{content}<|im_end|>\n", "<|im_start|>user\n{content}<|im_end|>\n",
     "<|im_start|>assistant\n{content}<|im_end|>\n", "<|im_start|>"},
    {"llama3", "<|start_header_id|>user<|end_header_id|> …", "{bos}",
     "<|start_header_id|>system<|end_header_id|>\n\n{content}<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n{content}<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n{content}<|eot_id|>", "<|start_header_id|>",
     true},
    {"zephyr", "<|user|> … and an end of text (TinyLlama)", "", "<|system|>\n{content}{eos}\n",
     "<|user|>\n{content}{eos}\n", "<|assistant|>\n{content}{eos}\n"},
    {"plain", "User: …, Assistant: … and an end of text, for tokenizers without such tokens", "",
     "{content}\n\n", "User: {content}\n\n", "Assistant: {content}{eos}\n\n"},
}};

constexpr const char* kSpace = " \t\r\n";

// Texts are encoded as a whole, so in most vocabularies a blank before an answer is a part of its
// first token. It therefore belongs to the answer.
std::string without_blanks(const std::string& text) {
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

const ChatTexts& format_texts(ChatFormatName name) {
  return kChatTexts.at(static_cast<size_t>(name));
}

// Returns the text with {bos} and {eos} replaced.
std::string with_names(std::string text, const Tokenizer& tokenizer) {
  const SpecialTokens& special = tokenizer.special();
  for (const auto& [key, id] :
       {std::pair("{bos}", special.begin_of_text), {"{eos}", special.end_of_text}}) {
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
      if (!id && std::string_view(key) == "{eos}") {
        fail(ExitCode::usage, "the chat format needs an end of text, which the tokenizer lacks");
      }
      const std::string name(id ? name_of_token(tokenizer, *id) : std::string_view());
      text.replace(at, 5, name);
      at += name.size();
    }
  }
  return text;
}

void check_names(const std::string& text, const NamedTokens& known) {
  for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 2)) {
    const size_t end = text.find("|>", at);
    if (end == std::string::npos) return;
    const std::string name = text.substr(at, end + 2 - at);
    const auto found = known.find(text, at);
    if (!found || found->begin != at) {
      fail(ExitCode::usage,
           "the chat format needs the token {}, which the tokenizer lacks; take the format plain, "
           "or texts of your own",
           name);
    }
  }
}

ChatFormatName found_format(const Tokenizer& tokenizer) {
  const NamedTokens known = special_names(tokenizer);
  for (size_t i = 0; i < kChatTexts.size(); ++i) {
    const std::string_view token = kChatTexts[i].token;
    if (!token.empty() && known.find(token, 0)) return static_cast<ChatFormatName>(i);
  }
  fail(ExitCode::usage,
       "the tokenizer has no tokens of a known chat format; give one (chat_format): plain, zephyr, "
       "or texts of your own");
}

std::string text_of_content(const nlohmann::json& turn, const char* key,
                            const std::string& location) {
  const auto found = turn.find(key);
  if (found == turn.end()) {
    throw Error(ExitCode::data, fmt::format("a turn has no '{}'", key), location);
  }
  if (found->is_string()) return found->get<std::string>();
  std::string out;
  bool texts = found->is_array();
  for (size_t i = 0; texts && i < found->size(); ++i) {
    const nlohmann::json& part = (*found)[i];
    texts = part.is_object() && part.value("type", nlohmann::json()) == "text" &&
            part.contains("text") && part["text"].is_string();
    if (texts) out += part["text"].get<std::string>();
  }
  if (!texts)
    throw Error(ExitCode::data, fmt::format("'{}' of a turn is not a text", key), location);
  return out;
}

ChatRole role_of(const std::string& name, const std::string& location) {
  if (name == "system" || name == "developer") return ChatRole::system;
  if (name == "user" || name == "human") return ChatRole::user;
  if (name == "assistant" || name == "gpt" || name == "model") return ChatRole::assistant;
  throw Error(ExitCode::data,
              fmt::format("the role '{}' of a turn is none of system, user, assistant", name),
              location);
}

}  // namespace

std::vector<ChatTurn> chat_turns(const nlohmann::json& value, const std::string& key,
                                 const std::string& location) {
  if (!value.is_array() || value.empty()) {
    throw Error(ExitCode::data, fmt::format("the key '{}' must be a list of turns", key), location);
  }
  std::vector<ChatTurn> turns;
  for (const auto& turn : value) {
    if (!turn.is_object()) {
      throw Error(ExitCode::data, fmt::format("a turn of '{}' is not an object", key), location);
    }
    const bool share = !turn.contains("role") && turn.contains("from");
    const std::string role = text_of_content(turn, share ? "from" : "role", location);
    turns.push_back(
        {role_of(role, location), text_of_content(turn, share ? "value" : "content", location)});
  }
  return turns;
}

void ChatConfig::describe(Fields& f) {
  std::vector<Choice<ChatFormatName>> formats;
  for (const ChatTexts& row : kChatTexts) {
    formats.push_back({std::string(row.name), chat_format_named(row.name), std::string(row.doc)});
  }
  f.choice(
      "name", name, formats,
      {.doc = "A known format; if absent, chatml or llama3 if the tokenizer has their tokens"});
  f.text("begin", begin, {.doc = "Text before all turns; may have {bos} and {eos}"});
  f.text("system", system,
         {.doc = "Text of a turn of the system, with {content}; empty: such turns are refused"});
  f.text("user", user, {.doc = "Text of a turn of the user, with {content}"});
  f.text(
      "assistant", assistant,
      {.doc =
           "Text of a turn of the assistant; the loss counts {content}, blanks before it and what "
           "follows it, without white space at the end"});
  f.text("default_system", default_system,
         {.doc = "Content of the system's turn for chats that have none"});
}

void ChatConfig::validate(Diagnostics& diagnostics) const {
  for (const auto& [key, text] :
       {std::pair("system", &system), {"user", &user}, {"assistant", &assistant}}) {
    if (!*text || (key == std::string_view("system") && (*text)->empty())) continue;
    const size_t at = (*text)->find(kContent);
    if (at == std::string::npos || (*text)->find(kContent, at + 1) != std::string::npos) {
      diagnostics.add(*this, key, fmt::format("{} must have {} once", key, kContent));
    }
  }
  const size_t content = assistant ? assistant->find(kContent) : std::string::npos;
  if (content != std::string::npos &&
      assistant->find_first_not_of(kSpace, content + kContent.size()) == std::string::npos) {
    diagnostics.add(*this, "assistant",
                    "assistant must have text after {content} that ends an answer, such as {eos}");
  }
  if (!name && (begin || system || user || assistant) && (!user || !assistant)) {
    diagnostics.add(location, "a format without name needs user and assistant");
  }
}

ChatFormatName chat_format_named(std::string_view name) {
  const auto found = std::ranges::find(kChatTexts, name, &ChatTexts::name);
  check_internal(found != kChatTexts.end(), "no chat format {}", name);
  return static_cast<ChatFormatName>(found - kChatTexts.begin());
}

std::vector<std::string_view> chat_format_names() {
  std::vector<std::string_view> out;
  for (const ChatTexts& texts : kChatTexts) out.push_back(texts.name);
  return out;
}

std::vector<std::string> ChatConfig::texts() const {
  ChatTexts usual;
  if (name) usual = format_texts(*name);
  std::vector<std::string> out;
  for (const auto& [given, text] : {std::pair(&begin, usual.begin),
                                    {&system, usual.system},
                                    {&user, usual.user},
                                    {&assistant, usual.assistant}}) {
    std::string whole = given->value_or(std::string(text));
    for (const std::string_view key :
         {kContent, std::string_view("{bos}"), std::string_view("{eos}")}) {
      if (const size_t at = whole.find(key); at != std::string::npos) whole.erase(at, key.size());
    }
    out.push_back(whole);
  }
  out.push_back(default_system.value_or(""));
  return out;
}

ChatFormat::ChatFormat(const ChatConfig& config, const Tokenizer& tokenizer)
    : default_system_(config.default_system) {
  const bool own = !config.name && config.user;
  ChatTexts texts;
  if (!own) texts = format_texts(config.name ? *config.name : found_format(tokenizer));
  const NamedTokens known = special_names(tokenizer);
  const auto text = [&](const std::optional<std::string>& given, std::string_view usual) {
    std::string out = with_names(given.value_or(std::string(usual)), tokenizer);
    if (!given && !texts.token.empty()) check_names(out, known);
    return out;
  };
  const auto around = [&](const std::string& turn) {
    const size_t at = turn.find(kContent);
    if (at == std::string::npos) return Around{};
    return Around{turn.substr(0, at), turn.substr(at + kContent.size())};
  };
  trims_ = texts.trims;
  begin_ = text(config.begin, texts.begin);
  const std::string system = text(config.system, texts.system);
  has_system_ = !system.empty();
  system_ = around(system);
  user_ = around(text(config.user, texts.user));
  assistant_ = around(text(config.assistant, texts.assistant));
  end_ = assistant_.after.substr(0, assistant_.after.find_last_not_of(kSpace) + 1);
  if (end_.empty()) {
    fail(ExitCode::usage,
         "the chat format has no text after {{content}} that ends an answer: the tokenizer has no "
         "begin of text for {{bos}}");
  }
}

const ChatFormat::Around& ChatFormat::around(ChatRole role, const std::string& location) const {
  if (role == ChatRole::system && !has_system_) {
    throw Error(ExitCode::data, "the chat format has no text for a turn of the system", location);
  }
  return role == ChatRole::system ? system_ : role == ChatRole::user ? user_ : assistant_;
}

ChatFormat::Rendered ChatFormat::render(const std::vector<ChatTurn>& turns,
                                        const std::string& location) const {
  Rendered out{.text = begin_, .answers = {}};
  const auto add = [&](ChatRole role, const std::string& content) {
    const Around& texts = around(role, location);
    const size_t start = out.text.size() + without_blanks(texts.before).size();
    out.text += texts.before;
    out.text += trims_ ? trimmed(content) : content;
    if (role == ChatRole::assistant) {
      out.answers.emplace_back(start, out.text.size() + end_.size());
    }
    out.text += texts.after;
  };
  if (default_system_ && turns.front().role != ChatRole::system) {
    add(ChatRole::system, *default_system_);
  }
  for (const ChatTurn& turn : turns) add(turn.role, turn.content);
  return out;
}

std::string ChatFormat::prompt(const std::vector<ChatTurn>& turns,
                               const std::string& location) const {
  return render(turns, location).text + without_blanks(assistant_.before);
}

std::string ChatFormat::jinja() const {
  // A text of JSON has the same meaning in Jinja.
  const auto text = [](const nlohmann::json& value) { return json_text(value); };
  nlohmann::ordered_json texts;
  if (has_system_) texts["system"] = {system_.before, system_.after};
  texts["user"] = {user_.before, user_.after};
  texts["assistant"] = {assistant_.before, assistant_.after};
  std::string begin = text(begin_);
  if (default_system_) {
    const std::string first = render({{ChatRole::system, *default_system_}}, "").text;
    begin += fmt::format(R"( if messages[0]["role"] == "system" else {})", text(first));
  }
  return fmt::format(
      R"({{% set texts = {} %}}{{{{ {} }}}}{{% for message in messages %}}{{% set around = )"
      R"(texts[message["role"]] %}}{{{{ around[0] + message["content"]{} + around[1] }}}})"
      R"({{% endfor %}}{{% if add_generation_prompt %}}{{{{ {} }}}}{{% endif %}})",
      json_text(texts), begin, trims_ ? " | trim" : "", text(without_blanks(assistant_.before)));
}

std::vector<std::pair<size_t, size_t>> answer_tokens(const ChatFormat::Rendered& chat,
                                                     const std::vector<int32_t>& ids,
                                                     TextEncoder& encoder) {
  std::vector<int32_t> part;
  size_t reached = 0;  // a longer part may be encoded otherwise from the start on
  // Returns how many tokens the first bytes of the text have in common with it.
  const auto tokens_before = [&](size_t bytes) {
    part.clear();
    encoder.encode(std::string_view(chat.text).substr(0, bytes), part);
    const auto [end, other] = std::ranges::mismatch(part, ids);
    return reached = std::max(reached, static_cast<size_t>(end - part.begin()));
  };
  std::vector<std::pair<size_t, size_t>> out;
  for (const auto& [begin, end] : chat.answers) {
    const size_t first = tokens_before(begin), last = tokens_before(end);
    out.emplace_back(first, last);
  }
  return out;
}

}  // namespace dltrain
