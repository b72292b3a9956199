"""Texts continued by trained models, on the command line and while a model is trained."""
import json
import subprocess

import support
from support import DATA, STORAGE, USAGE, DltrainTest, metrics

TEXT = "".join(f"line {i} of the text, {i * i} squared: äöü\n" for i in range(300))
CONFIG = """
name: text
seed: 3
model: {model}
data: {{type: text, path: {path}, tokenizer: {tokenizer}, sequence_length: 32, eval_fraction: 0.1}}
optimizer: {{type: adamw, learning_rate: 1.0e-2}}
training: {{global_batch_size: 8, max_steps: {steps}}}
logging: {{logging_steps: 10}}
"""
GPT = "{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 40}"
LLAMA = "{type: llama, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 48}"
LSTM = "{layers: [{embedding: {embedding_dim: 16}}, {lstm: 48}, {lm_head: {}}]}"
SAMPLES = "generation={sample_steps: 5, prompts: ['line 1', 'of'], max_tokens: 12, temperature: 0.8, top_k: 20}"


class GenerateTest(DltrainTest):
    def train(self, model=GPT, *arguments, tokenizer="char", steps=40, name="run"):
        text = self.write("text.txt", TEXT)
        config = self.write(f"{name}.yaml", CONFIG.format(model=model, path=text, tokenizer=tokenizer, steps=steps))
        run = self.folder / name
        self.run_dltrain(config, "--output-dir", run, "--quiet", *arguments)
        return run

    def generate(self, *arguments, **options):
        """The objects of --json."""
        return [json.loads(line) for line in self.run_dltrain("generate", *arguments, "--json", "-q", **options).out.splitlines()]

    def test_a_model_says_what_it_has_learnt(self):
        for model in (GPT, LLAMA, LSTM):
            run = self.train(model, steps=120, name="a" + str(len(model)))
            out = self.run_dltrain("generate", run, "--prompt", "line 12 of the t", "--temperature", 0, "--max-tokens", 5, "-q").out
            self.assertEqual(out, "line 12 of the text, \n")
            self.assertEqual(self.run_dltrain("generate", run, "--prompt", "line 12 of the t", "--temperature", 0, "--max-tokens", 3,
                                              "--no-echo", "-q").out, "ext\n")

    def test_a_prompt_has_the_same_texts_alone_and_beside_others(self):
        run = self.train()
        prompts = ["line 1", "of the text, 1", "squared: äö", "9"]
        more = ("--max-tokens", 60, "--num-samples", 3, "--seed", 5, "--temperature", 0.9, "--top-k", 30, "--top-p", 0.95,
                "--repetition-penalty", 1.1)
        arguments = [part for prompt in prompts for part in ("--prompt", prompt)]
        together = self.generate(run, *arguments, *more)
        self.assertEqual([(text["prompt"], text["sample"]) for text in together], [(p, s) for p in range(4) for s in range(3)])
        self.assertEqual(together, self.generate(run, *arguments, *more))
        for batch in (1, 5):
            self.assertEqual(together, self.generate(run, *arguments, *more, "--batch-size", batch))
        alone = self.generate(run, "--prompt", prompts[2], *more)
        self.assertEqual([text["text"] for text in alone], [text["text"] for text in together[6:9]])
        self.assertEqual(len({text["text"] for text in together}), 12)
        self.assertEqual(self.generate(run, "--prompt", prompts[0], "--prompt", prompts[0], *more, "--num-samples", 1)[1]["text"],
                         together[1]["text"])
        other = self.generate(run, *arguments, *more, "--seed", 6)
        self.assertNotEqual([text["text"] for text in other], [text["text"] for text in together])
        threads = self.generate(run, *arguments, *more, env={"OMP_NUM_THREADS": "2"})
        self.assertEqual([text["text"] for text in threads], [text["text"] for text in together])
        # 40 places: every text went beyond them.
        self.assertTrue(all(len(text["tokens"]) == 60 and text["finish"] == "length" for text in together))

    def test_prompts_come_from_files_and_standard_input(self):
        run = self.train(steps=5)
        more = ("--max-tokens", 4, "--temperature", 0)
        lines = self.write("prompts.txt", "line 1\n\nof\n")
        objects = self.write("prompts.jsonl", '{"prompt": "line 1"}\n{"tokens": [3, 4]}\n')
        texts = self.generate(run, "--prompt-file", lines, "--prompt-file", objects, "--tokens", "3,4", *more)
        self.assertEqual([text["prompt_text"] for text in texts[:3]], ["line 1", "of", "line 1"])
        self.assertEqual(texts[3]["tokens"], texts[4]["tokens"])
        process = subprocess.run([support.PROGRAM, "generate", run, "--prompt", "-", *map(str, more), "-q"], input="line 1",
                                 capture_output=True, text=True, check=True)
        self.assertEqual(process.stdout, "line 1" + texts[0]["text"] + "\n")
        out = self.run_dltrain("generate", run, "--prompt-file", lines, *more, "--batch-size", 1).out
        self.assertEqual(out, f"--- prompt 1, text 1 ---\nline 1{texts[0]['text']}\n--- prompt 2, text 1 ---\nof{texts[1]['text']}\n")
        result = self.folder / "result.json"
        self.run_dltrain("generate", run, "--prompt", "of", *more, "--result", result)
        saved = json.loads(result.read_text())
        self.assertEqual((saved["new_tokens"], saved["texts"][0]["text"]), (4, texts[1]["text"]))

    def test_texts_end_where_they_should(self):
        run = self.train(steps=120)
        text = self.generate(run, "--prompt", "line 12 of the t", "--temperature", 0, "--stop", "xt,", "--stop", "q")[0]
        self.assertEqual((text["text"], text["finish"]), ("e", "stop"))
        self.assertEqual(self.generate(run, "--prompt", "of", "--max-tokens", 0)[0]["text"], "")
        ended = self.train(LSTM, tokenizer="{type: char, special_tokens: [<|endoftext|>]}", name="ended", steps=2)
        # An untrained model soon gives the token that ends a text.
        texts = self.generate(ended, "--num-samples", 8, "--max-tokens", 1000)
        self.assertTrue(any(text["finish"] == "end_token" for text in texts))
        self.assertTrue(all(len(text["tokens"]) == 1000 for text in self.generate(ended, "--num-samples", 2, "--max-tokens", 1000,
                                                                                   "--ignore-end")))

    def test_bits_of_precision(self):
        run = self.train(LLAMA, steps=120)
        for precision in ("f32", "bf16", "fp16"):
            text = self.generate(run, "--prompt", "line 12 of the t", "--temperature", 0, "--max-tokens", 5, "--precision", precision)
            self.assertEqual(text[0]["text"], "ext, ")

    def test_prompts_have_the_tokens_of_the_data(self):
        special = "{type: byte, special_tokens: [<|endoftext|>, <|user|>]"
        records = self.write("a.jsonl", '{"q": "<|user|>a", "a": "b"}\n' * 20)
        runs = {"documents": self.train(tokenizer=special + "}", steps=1, name="documents")}
        for name, more in (("pairs", "}"), ("plain", ", parse_special: false}")):
            runs[name] = self.folder / name
            self.run_dltrain(self.folder / "documents.yaml", "-q", "--output-dir", runs[name], "-s",
                             f"data={{type: jsonl, path: {records}, prompt: q, completion: a, sequence_length: 16, tokenizer: {special}{more}}}")
        context = self.write("context.jsonl", '{"context": "<|user|>", "continuation": "<|user|>"}\n')
        for name, count in (("pairs", 1), ("plain", 8), ("documents", 8)):
            said = self.run_dltrain("generate", runs[name], "--prompt", "<|user|>", "--max-tokens", 1, "--json")
            self.assertEqual(len(json.loads(said.out)["prompt_tokens"]), count, name)
            self.assertEqual("prompt 1: <|user|> is the name of a special token" in said.err, count > 1, said)
            scored = self.run_dltrain("score", runs[name], context)
            self.assertEqual(json.loads(scored.out)["tokens"], count, name)
        (self.folder / "special").mkdir()
        other = self.write("special/tokenizer.json", (runs["pairs"] / "tokenizer.json").read_text().replace("<|user|>", "<|xser|>"))
        said = self.run_dltrain("generate", runs["pairs"], "--prompt", "a", "--max-tokens", 1, "--tokenizer", other)
        self.assertIn('another tokenizer than', said.err)
        self.assertIn('id 257 is "<|user|>" there and "<|xser|>" here', said.err)

    def test_mistakes_are_told(self):
        run = self.train(steps=2)
        self.refused(USAGE, "generate", run, "--prompt", "line " * 9, says=["prompt 1 has 45 tokens", "positions for 40"])
        self.refused(USAGE, "generate", run, "--tokens", "1,99999", says="token 99999 is beyond the vocabulary")
        self.refused(USAGE, "generate", run, "--tokens", "1,x", says="not a list of token ids")
        self.refused(USAGE, "generate", run, "--prompt", "", says="prompt 1 has no tokens")
        self.refused(USAGE, "generate", run, says="no prompt is given")
        self.refused(DATA, "generate", run, "--prompt", "a\udcff", says=["prompt 1, byte 1"])
        self.refused(DATA, "generate", run, "--prompt", "line @", says=["prompt 1, byte 5", "'@'"])
        self.refused(DATA, "generate", run, "--prompt-file", self.write("bad.jsonl", '{"text": 1}\n'), says="bad.jsonl:1")
        self.refused(USAGE, "generate", self.folder / "nothing", says="there is no")
        self.refused(USAGE, "generate", self.folder / "run.yaml", "--prompt", "a", says="no model.init_from")
        self.refused(STORAGE, "generate", self.folder, "--prompt", "a", says="contains no checkpoint")
        self.refused(USAGE, "generate", run, "--prompt", "a", "--temperature", -1, says="--temperature")
        self.refused(USAGE, "generate", run, "--prompt", "a", "-s", "generation.max_tokens=3",
                     says="generation.max_tokens is for samples during training and has no effect here; use --max-tokens")
        self.refused(USAGE, "generate", run, "--prompt", "a", "-s", "generation={prompts: [b]}", says="generation is for samples during training")
        self.refused(USAGE, "generate", run, "--prompt", "a", "--top-k", 2**31, says="--top-k")
        self.refused(USAGE, "eval", run, "--precision", "bf16", says="-s precision.KEY=VALUE")
        empty = self.write("empty.txt", "\n")
        self.refused(DATA, "generate", run, "--prompt-file", empty, says=f"{empty}: contains no prompt")
        self.refused(USAGE, "generate", run, "--prompt", "a", "--stop", "", says="--stop: expected a text that is not empty")
        other = self.train(tokenizer="byte", steps=1, name="bytes")
        self.refused(USAGE, "generate", run, "--prompt", "a", "--tokenizer", other, says="do not match")
        bert = self.write("bert.yaml", CONFIG.format(
            model="{layers: [{embedding: {embedding_dim: 8}}, {multi_head_attention: 2}, {lm_head: {}}]}",
            path=self.folder / "text.txt", tokenizer="char, mlm_probability: 0.15, mask_token_id: 1", steps=1))
        self.run_dltrain(bert, "--output-dir", self.folder / "bert", "--quiet")
        self.refused(USAGE, "generate", self.folder / "bert", "--prompt", "a", says="it is not causal")
        self.refused(USAGE, bert, "--output-dir", self.folder / "never", "-s", SAMPLES, says=["generation", "it is not causal"])
        self.refused(USAGE, self.folder / "run.yaml", "--output-dir", self.folder / "never", "-s",
                     "generation={prompts: ['@']}", says=["generation", "prompt 1, byte 0"])
        self.assertFalse((self.folder / "never").exists())

    def test_weights_without_a_run(self):
        run = self.train(steps=30)
        weights = run / "checkpoints" / "latest" / "model.safetensors"
        config = (run / "config.yaml").read_text().replace("init_from: null", f"init_from: {weights}")
        self.assertIn("init_from: ", config)
        path = self.write("weights.yaml", config)
        self.assertEqual(self.generate(path, "--prompt", "line", "--tokenizer", run), self.generate(run, "--prompt", "line"))

    def test_a_folder_of_hugging_face_continues_texts(self):
        run, folder = self.train(steps=30), self.folder / "exported"
        self.run_dltrain("export", run, folder)
        config = self.write("from.yaml", CONFIG.format(model=f"{{from: {folder}}}", path=self.folder / "text.txt", tokenizer="char",
                                                       steps=1))
        expected = self.generate(run, "--prompt", "line", "--seed", 5)
        self.assertEqual(self.generate(config, "--prompt", "line", "--seed", 5, "--tokenizer", run), expected)
        self.assertEqual(self.generate(config, "--prompt", "line", "--seed", 5), expected)
        self.assertEqual(self.generate(folder, "--prompt", "line", "--seed", 5), expected)
        imported = self.folder / "imported"
        self.run_dltrain("import", folder, imported)
        self.assertEqual(self.generate(imported, "--prompt", "line", "--seed", 5), expected)
        self.assertEqual(self.generate(folder, "--prompt", "line", "--seed", 5, "--tokenizer", run, "--precision", "f32",
                                       "-s", "device=cpu"), expected)
        self.refused(USAGE, "generate", folder, "--prompt", "a", "-s", "model.num_layers=x", says="num_layers")

    def test_averages_are_used_where_there_are_some(self):
        run = self.train(GPT, "-s", "training.ema={decay: 0.5}", "-s", SAMPLES, "-s", "generation.temperature=0", steps=20)
        texts = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
        for text in texts[-2:]:
            made = self.generate(run, "--prompt", text["prompt"], "--temperature", 0, "--max-tokens", 12)
            self.assertEqual(made[0]["text"], text["text"])

    def test_samples_while_training_change_nothing(self):
        for model, more in ((GPT, ()), (LSTM, ("-s", "precision.compute=bf16"))):
            name = str(len(model))
            plain = self.train(model, *more, steps=12, name="plain" + name)
            run = self.train(model, *more, "-s", SAMPLES, "-s", "logging.tensorboard=true", steps=12, name="run" + name)
            self.assert_same_state(plain, run)
            self.assertEqual([line["loss"] for line in metrics(plain) if "loss" in line],
                             [line["loss"] for line in metrics(run) if "loss" in line])
            self.assertIn("samples", self.run_dltrain("plan", self.folder / f"run{name}.yaml", "-s", SAMPLES).out)
            texts = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
            self.assertEqual([(text["step"], text["prompt"]) for text in texts],
                             [(step, prompt) for step in (5, 10, 12) for prompt in ("line 1", "of")])
            self.assertTrue(all(text["tokens"] == 12 for text in texts))
            # The last ones are those of the checkpoint.
            made = self.generate(run, "--prompt", "of", "--seed", 3, "--max-tokens", 12, "--temperature", 0.8, "--top-k", 20)
            self.assertEqual(made[0]["text"], texts[-1]["text"])
        # Every context rank has all weights.
        context = self.train(GPT, "-s", SAMPLES, "-s", "data.sequence_length=16", "-s", "logging.tensorboard=true", "-s", "logging.histogram_steps=5",
                             "-s", "parallelism.context=2", "--nproc-per-node", 2, steps=12, name="context")
        alone = self.train(GPT, "-s", SAMPLES, "-s", "data.sequence_length=16", steps=12, name="alone")
        self.assertEqual((context / "samples.jsonl").read_text().count('"of"'), 3)
        drawn = [[json.loads(line)["text"] for line in (run / "samples.jsonl").read_text().splitlines()] for run in (context, alone)]
        self.assertEqual(*drawn)
        resumed = self.folder / "runagain"
        self.train(GPT, "-s", SAMPLES, steps=7, name="runagain")
        self.train(GPT, "-s", SAMPLES, "--resume", "auto", steps=12, name="runagain")
        steps = [json.loads(line)["step"] for line in (resumed / "samples.jsonl").read_text().splitlines()]
        self.assertEqual(steps, [5, 5, 7, 7, 10, 10, 12, 12])


if __name__ == "__main__":
    support.main()
