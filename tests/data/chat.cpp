// Chats as text and as samples. The texts are those that the chat templates of Qwen 2, Llama 3 and
// TinyLlama give in transformers.
#include "data/chat.h"

#include <nlohmann/json.hpp>

#include "read_data.h"
#include "temporary_folder.h"
#include "text/simple_tokenizers.h"

using namespace dltrain;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

using ChatIds = std::vector<int32_t>;

const std::vector<ChatTurn>& turns() {
  static const std::vector<ChatTurn> all{{ChatRole::system, "Be brief."},
                                         {ChatRole::user, " Hi"},
                                         {ChatRole::assistant, "Hello!"},
                                         {ChatRole::user, "Bye"}};
  return all;
}

std::vector<ChatTurn> read_turns(const char* text) {
  return chat_turns(nlohmann::json::parse(text), "messages", "a.jsonl:1");
}

// A chat with this key and special tokens for chatml, ids from 256.
std::string chat_keys(const std::string& path, const std::string& rest) {
  return "type: jsonl, messages: messages, path: '" + path +
         "', tokenizer: {type: byte, special_tokens: ['<|endoftext|>', '<|im_start|>', "
         "'<|im_end|>']}, " +
         rest;
}

}  // namespace

TEST_CASE("chats are written as by the templates of the formats") {
  const auto chatml = byte_tokenizer("t", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  const ChatFormat found({}, *chatml);
  CHECK(found.prompt(turns(), "") ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(found.end() == "<|im_end|>");
  const auto llama3 = byte_tokenizer("t", {"<|begin_of_text|>", "<|start_header_id|>",
                                           "<|end_header_id|>", "<|eot_id|>", "<|endoftext|>"});
  CHECK(ChatFormat({}, *llama3).prompt(turns(), "") ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const auto plain = byte_tokenizer("t", {"</s>"});
  ChatConfig config;
  config.name = ChatFormatName::zephyr;
  CHECK(ChatFormat(config, *plain).prompt(turns(), "") ==
        "<|system|>\nBe brief.</s>\n<|user|>\n Hi</s>\n<|assistant|>\nHello!</s>\n"
        "<|user|>\nBye</s>\n<|assistant|>\n");
  // A blank before an answer belongs to its first token.
  config.assistant = "Bot: {content}</s>\n";
  CHECK_THAT(ChatFormat(config, *plain).prompt(turns(), ""),
             EndsWith("\nBot: Hello!</s>\n<|user|>\nBye</s>\nBot:"));
  CHECK_THAT(ChatFormat(config, *plain).jinja(),
             EndsWith(R"({% if add_generation_prompt %}{{ "Bot:" }}{% endif %})"));
  config.default_system = "Rules";
  config.system = "[{content}]\n";
  CHECK_THAT(ChatFormat(config, *plain).prompt({turns()[1]}, ""),
             Catch::Matchers::StartsWith("[Rules]\n<|user|>"));
  CHECK_THAT(ChatFormat(config, *plain).jinja(),
             Catch::Matchers::StartsWith(R"({% set texts = {"system":["[","]\n"],)") &&
                 Contains(R"(if messages[0]["role"] == "system" else "[Rules]\n")"));
}

TEST_CASE("a chat format needs its tokens") {
  const auto plain = byte_tokenizer("t", {"</s>"});
  CHECK_THAT(refusal_of([&] { ChatFormat({}, *plain); }, ExitCode::usage), Contains("plain"));
  ChatConfig config;
  config.name = ChatFormatName::chatml;
  CHECK_THAT(refusal_of([&] { ChatFormat(config, *plain); }, ExitCode::usage),
             Contains("needs the token <|im_start|>"));
  config.name = ChatFormatName::plain;
  const auto none = byte_tokenizer("t", {});
  CHECK_THAT(refusal_of([&] { ChatFormat(config, *none); }, ExitCode::usage),
             Contains("end of text"));
  config.assistant = "{content}{bos}";
  CHECK_THAT(refusal_of([&] { ChatFormat(config, *plain); }, ExitCode::usage),
             Contains("no begin of text for {bos}"));
  config.assistant.reset();
  config.system = "";
  CHECK_THAT(refusal_of([&] { ChatFormat(config, *plain).prompt(turns(), "a.jsonl:3"); }),
             Contains("no text for a turn of the system"));
}

TEST_CASE("turns are read in the ways that people write them") {
  const auto share =
      read_turns(R"([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}])");
  REQUIRE(share.size() == 2);
  CHECK(share[0].role == ChatRole::user);
  CHECK(share[1].role == ChatRole::assistant);
  CHECK(share[1].content == "b");
  const auto parts = read_turns(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  CHECK(parts[0].content == "ab");
  for (const auto& [text, message] :
       {std::pair(R"("hello")", "must be a list of turns"),
        {"[]", "must be a list of turns"},
        {"[1]", "not an object"},
        {R"([{"content": "a"}])", "has no 'role'"},
        {R"([{"role": "user"}])", "has no 'content'"},
        {R"([{"role": "tool", "content": "a"}])", "'tool'"},
        {R"([{"role": "user", "content": null}])", "not a text"},
        {R"([{"role": "user", "content": {"type": "text"}}])", "not a text"},
        {R"([{"role": "user", "content": [{"type": "image"}]}])", "not a text"}}) {
    INFO(text);
    CHECK_THAT(refusal_of([&] { read_turns(text); }), Contains(message));
  }
}

TEST_CASE("the loss counts the answers of chats with their end") {
  TemporaryFolder folder;
  const std::string path = folder.write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}, )"
      R"({"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]})");
  constexpr int32_t kStart = 257, kStop = 258;
  const auto data =
      read_data(chat_keys(path,
                          "chat_format: {user: '<|im_start|>{content}<|im_end|>', assistant: "
                          "\"{content}<|im_end|>\\n\"}, sequence_length: 16"))
          .open()
          .train;
  REQUIRE(data->size() == 1);
  CHECK(ids_of(*data, 0, 0) == ChatIds{kStart, 'a', kStop, 'b', 'c', kStop, '\n', kStart, 'd',
                                       kStop, 'e', kStop, 256, 256, 256, 256});
  CHECK(ids_of(*data, 1, 0) == ChatIds{-100, -100, 'b', 'c', kStop, -100, -100, -100, -100, 'e',
                                       kStop, -100, -100, -100, -100, -100});
  // A chat that is cut keeps what fits.
  const auto cut =
      read_data(chat_keys(path,
                          "chat_format: {user: '<|im_start|>{content}<|im_end|>', assistant: "
                          "\"{content}<|im_end|>\\n\"}, sequence_length: 4"))
          .open()
          .train;
  CHECK(ids_of(*cut, 1, 0) == ChatIds{-100, -100, 'b', 'c'});
  CHECK_THAT(data_refusal(chat_keys(path, "sequence_length: 4")), Contains("no room"));
}

TEST_CASE("ranges of answers never go back") {
  // The whole text has other tokens than its parts, as of a tokenizer that weighs all at once.
  class Fickle final : public TextEncoder {
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      const int32_t first = text.size() == 6 ? 9 : 1;
      for (size_t i = 0; i < text.size(); ++i) ids.push_back(i == 0 ? first : 1);
    }
  } encoder;
  const ChatFormat::Rendered chat{.text = "abcdefgh", .answers = {{2, 4}, {6, 8}}};
  const std::vector<std::pair<size_t, size_t>> ranges =
      answer_tokens(chat, {1, 1, 1, 1, 1, 1, 1, 1}, encoder);
  CHECK(ranges == std::vector<std::pair<size_t, size_t>>{{2, 4}, {4, 8}});
}

TEST_CASE("chats that cannot be used are refused with their place") {
  TemporaryFolder folder;
  const std::string path =
      folder.write("a.jsonl", "\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  const std::string text = data_refusal(chat_keys(path, "sequence_length: 64"));
  CHECK_THAT(text, Contains("a.jsonl:2") && Contains("no turn of the assistant"));
  CHECK_THAT(data_refusal("type: jsonl, messages: chat, sequence_length: 8, path: '" + path +
                          "', tokenizer: {type: byte, special_tokens: ['<|im_start|>', "
                          "'<|im_end|>', '<|endoftext|>']}"),
             Contains("has no key 'chat'"));
  for (const auto& [rest, message] :
       {std::pair("chat_format: {name: plain, user: 'x'}", "user must have {content} once"),
        {"chat_format: {name: plain, assistant: 'A: {content}'}", "ends an answer"},
        {"chat_format: {name: plain, assistant: '{bos}A: {content}'}", "ends an answer"},
        {"chat_format: {user: '{content}'}", "needs user and assistant"},
        {"chat_format: other", "chatml"},
        {"document_mask: true", "document_mask needs documents"}}) {
    INFO(rest);
    CHECK_THAT(
        refusal_of([&] { read_data(chat_keys(path, std::string("sequence_length: 8, ") + rest)); },
                   ExitCode::usage),
        Contains(message));
  }
}
