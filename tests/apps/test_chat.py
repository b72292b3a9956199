"""Chats: training on the answers of lists of turns, and answers of the model."""
import json

from support import DATA, USAGE, DltrainTest, main, metrics

CHATS = [[("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")],
         [("user", "b"), ("assistant", "nine")],
         [("system", "Shout."), ("user", "b"), ("assistant", "NINE")]]
CONFIG = """
seed: 3
model: {{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 96, vocab_size: 259}}
data:
  type: jsonl
  messages: messages
  sequence_length: 96
  tokenizer: {tokenizer}
  train: {{path: {path}}}
optimizer: {{type: adamw, learning_rate: 5.0e-3}}
training: {{global_batch_size: 6, max_steps: {steps}}}
logging: {{logging_steps: 50}}
"""
CHATML = "{type: byte, special_tokens: ['<|endoftext|>', '<|im_start|>', '<|im_end|>']}"


class ChatTest(DltrainTest):
    def chats(self, name="chats.jsonl", chats=CHATS):
        return self.write(name, "".join(json.dumps({"messages": [{"role": role, "content": text} for role, text in chat]}) + "\n" for chat in chats))

    def train(self, *arguments, tokenizer=CHATML, steps=120, name="run"):
        config = self.write(f"{name}.yaml", CONFIG.format(path=self.chats(), tokenizer=tokenizer, steps=steps))
        run = self.folder / name
        self.run_dltrain(config, "--output-dir", run, "-q", *arguments)
        return run

    def answers(self, run, *arguments):
        out = self.run_dltrain("generate", run, "--temperature", 0, "--max-tokens", 20, "--json", "-q", *arguments).out
        return [json.loads(line)["text"] for line in out.splitlines()]

    def test_a_model_answers_as_in_its_chats(self):
        run = self.train("-s", "generation={sample_steps: 60, prompts: [b], max_tokens: 20, temperature: 0}")
        self.assertEqual(self.answers(run, "-p", "b"), ["nine"])
        asked = self.chats("asked.jsonl", [CHATS[0][:3], CHATS[2][:2]])
        self.assertEqual(self.answers(run, "--prompt-file", asked), ["two", "NINE"])
        self.assertEqual(self.run_dltrain("generate", run, "-p", "b", "--temperature", 0, "-q").out, "nine\n")
        self.assertEqual([json.loads(line)["text"] for line in (run / "samples.jsonl").read_text().splitlines()][-1], "nine")
        # Without the format a prompt is continued.
        raw = "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(self.answers(run, "--chat-format", "none", "-p", raw, "--stop", "<|im_end|>"), ["nine"])
        for prompt in (("-p", "b"), ("--prompt-file", self.chats("one.jsonl", [CHATS[1][:1]]))):
            said = json.loads(self.run_dltrain("generate", run, *prompt, "--max-tokens", 1, "--json", "-q").out)
            self.assertEqual(said["prompt_text"], raw)
        shout = self.train("-s", "data.chat_format={name: chatml, default_system: Shout.}", "-s", "training.max_steps=1", name="shout")
        said = json.loads(self.run_dltrain("generate", shout, "-p", "b", "--max-tokens", 1, "--json", "-q").out)
        self.assertEqual(bytes(id for id in said["prompt_tokens"] if id < 256), b"system\nShout.\nuser\nb\nassistant\n")
        # New chats are evaluated as the training's.
        self.run_dltrain("eval", run, self.chats("new.jsonl", CHATS[1:2]), "--result", self.folder / "result.json")
        result = json.loads((self.folder / "result.json").read_text())
        self.assertLess(result["eval_loss"], 0.1)

    def test_the_loss_is_that_of_prompts_with_completions(self):
        chats = self.train("-s", "data.train.path=" + str(self.chats("one.jsonl", CHATS[1:2])), "-s", "training.global_batch_size=1",
                           "-s", "data.chat_format={user: '{content}', assistant: ' {content}{eos}'}", steps=3, name="one")
        pairs = self.write("pairs.jsonl", '{"p": "b", "c": " nine"}\n')
        config = self.write("pairs.yaml", (self.folder / "one.yaml").read_text().replace("messages: messages", "prompt: p\n  completion: c"))
        self.run_dltrain(config, "--output-dir", self.folder / "other", "-q", "-s", f"data.train.path={pairs}", "-s", "training.global_batch_size=1")
        self.assertEqual([line["loss"] for line in metrics(chats)], [line["loss"] for line in metrics(self.folder / "other")])

    def test_plain_chats_need_no_tokens_of_their_own(self):
        run = self.train("-s", "data.chat_format=plain", tokenizer="{type: char, special_tokens: ['<|endoftext|>']}")
        self.assertEqual(self.answers(run, "-p", "b"), ["nine"])

    def test_an_export_has_the_format_of_the_chats_and_what_ends_an_answer(self):
        def exported(name):
            self.run_dltrain("export", self.folder / name, self.folder / f"{name}-out")
            return [json.loads((self.folder / f"{name}-out" / file).read_text()) for file in ("config.json", "tokenizer_config.json")]

        self.train("-s", "training.max_steps=1")
        config, tokenizer = exported("run")
        self.assertEqual(config["eos_token_id"], [256, 258])
        self.assertIn(r'"user":["<|im_start|>user\n","<|im_end|>\n"]', tokenizer["chat_template"])
        # Those of the folder that a run began with are replaced.
        base = self.folder / "run-out"
        (base / "chat_template.jinja").write_text("old")
        (base / "generation_config.json").write_text('{"eos_token_id": 256, "temperature": 0.6}')
        own = "{user: '[INST] {content} [/INST]', assistant: '{content}<|im_start|>', default_system: Sum., system: '<{content}>'}"
        self.train("-s", f"model={{from: {base}}}", "-s", f"data.chat_format={own}", "-s", "training.max_steps=1",
                   tokenizer=f"{{type: file, path: {base}}}", name="own")
        config, tokenizer = exported("own")
        out = self.folder / "own-out"
        self.assertEqual(config["eos_token_id"], [256, 258, 257])
        self.assertEqual(json.loads((out / "generation_config.json").read_text()), {"eos_token_id": [256, 257], "temperature": 0.6})
        self.assertFalse((out / "chat_template.jinja").exists())
        self.assertIn('"user":["[INST] "," [/INST]"]', tokenizer["chat_template"])
        self.assertIn('{{ "" if messages[0]["role"] == "system" else "<Sum.>" }}', tokenizer["chat_template"])

    def test_mistakes_are_told(self):
        char = "{type: char, special_tokens: ['<|endoftext|>']}"
        config = self.write("exp.yaml", CONFIG.format(path=self.chats(), tokenizer=char, steps=1))
        self.refused(USAGE, config, says=["no tokens of a known chat format", "plain"])
        self.refused(USAGE, config, "-s", "data.chat_format=chatml", says="needs the token <|im_start|>")
        self.refused(USAGE, config, "-s", "data.prompt=a", says="give one of: field, prompt with completion, messages, source with target")
        bad = self.write("bad.jsonl", '{"messages": [{"role": "user", "content": "a"}]}\n')
        self.refused(DATA, config, "-s", "data.chat_format=plain", "-s", f"data.train.path={bad}", says=["bad.jsonl:1", "no turn of the assistant"])


if __name__ == "__main__":
    main()
