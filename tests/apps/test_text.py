"""Text data: training on text and on prepared tokens, the tokenizer of a run, inspect."""
import json
import math
import re
import resource
import shutil

from support import DATA, STORAGE, USAGE, DltrainTest, checkpoints, main, steps

CONFIG = """
name: text
seed: 3
model: {{layers: [{{embedding: {{num_embeddings: {ids}, embedding_dim: 8}}}}, {{linear: {ids}}}]}}
data: {{{data}}}
optimizer: {{type: adamw, learning_rate: 1.0e-2}}
training: {{global_batch_size: 8, max_steps: 12}}
logging: {{logging_steps: 1}}
"""
ENCODER = "model: {type: transformer, num_layers: 1, hidden_size: 8, num_heads: 2}"
TEXT = "".join(f"line {i} of the text, {i * i} squared\n" for i in range(300))


class TextTest(DltrainTest):
    def config(self, data, ids=64, name="exp.yaml"):
        return self.write(name, CONFIG.format(ids=ids, data=data))

    def text(self, more=""):
        path = self.write("text.txt", TEXT)
        return f"type: text, path: {path}, tokenizer: char, sequence_length: 16, eval_fraction: 0.1{more}"

    def test_documents_without_a_separator_and_empty_ones_are_told(self):
        records = self.write("a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in (TEXT, "", "end of it\n" * 9)))
        joined = "the documents follow each other without a separator"
        data = f"type: jsonl, field: text, path: {records}, sequence_length: 16"
        said = self.run_dltrain("data", "inspect", self.config(data + ", tokenizer: char")).err
        self.assertIn(f"{records}: {joined}", said)
        said = self.run_dltrain("data", "inspect", self.config(data + ", tokenizer: {type: char, special_tokens: [<|endoftext|>]}")).err
        self.assertNotIn(joined, said)
        self.assertIn(f"{records}: 1 of 3 texts are empty", said)
        files = [self.write(f"{name}.txt", TEXT) for name in "bc"]
        for paths, told in ((files[:1], False), (files, True)):
            config = self.config(f"type: text, path: [{', '.join(map(str, paths))}], sequence_length: 16, tokenizer: char")
            self.assertEqual(joined in self.run_dltrain("data", "inspect", config).err, told)

    def test_a_run_keeps_the_tokenizer_that_its_weights_mean(self):
        config = self.config(self.text())
        run = self.folder / "run"
        self.run_dltrain(config, "--output-dir", run, "--quiet")
        saved = json.loads((run / "tokenizer.json").read_text())
        self.assertEqual(saved["alphabet"], "".join(sorted(set(TEXT))))
        self.assertLess(steps(run)[-1]["loss"], steps(run)[0]["loss"])
        self.assertEqual(checkpoints(run), ["step-000012"])
        more = ("--output-dir", run, "--resume", "auto", "--max-steps", 14)
        self.refused(USAGE, config, *more, "-s", "data.tokenizer.special_tokens=[<x>]",
                     says="differs from that of this configuration")
        self.run_dltrain(config, *more, "--quiet")
        self.run_dltrain("eval", config, "--checkpoint", run)
        # The run's own file makes the same tokens.
        other = self.folder / "other"
        self.run_dltrain(config, "--output-dir", other, "--quiet", "-s",
                         f"data.tokenizer={{type: file, path: {run}}}")
        self.assertEqual([s["loss"] for s in steps(other)], [s["loss"] for s in steps(run)][:12])

    def test_a_new_text_needs_nothing_but_the_run(self):
        run, out, result = self.folder / "run", self.folder / "out.jsonl", self.folder / "result.json"
        self.run_dltrain(self.config(self.text()), "-q", "--output-dir", run)
        (self.folder / "text.txt").unlink()
        new = self.write("new.txt", "the squared text, line 7 of 49")
        self.run_dltrain("eval", run, new, "--result", result)
        found = json.loads(result.read_text())
        self.assertEqual(found["samples"], 1)
        self.run_dltrain("predict", run, new, "-o", out, "--top-k", 64)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        # A row for each token, by its text.
        self.assertEqual("".join(row["target"] for row in rows), "he squared text,")
        self.assertEqual([row["place"] for row in rows], list(range(16)))
        loss = -sum(math.log({entry["class"]: entry["probability"] for entry in row["top"]}[row["target"]]) for row in rows) / 16
        self.assertAlmostEqual(loss, found["eval_loss"], delta=1e-5)
        self.run_dltrain("predict", run, new, "-o", self.folder / "out.csv")
        self.assertEqual((self.folder / "out.csv").read_text().splitlines()[0], "sample,source,place,target,class,probability")
        records = self.write("new.jsonl", json.dumps({"text": new.read_text()}) + "\n")
        self.run_dltrain("eval", run, records, "--result", result)
        self.assertEqual(json.loads(result.read_text())["eval_loss"], found["eval_loss"])
        self.run_dltrain("eval", run, new, "--result", result, "-s", "data.sequence_length=8")
        self.assertEqual(json.loads(result.read_text())["samples"], 3)
        self.refused(DATA, "eval", run, self.write("other.txt", "THE SQUARED TEXT, WHICH IS OTHER"), says="T")
        self.run_dltrain("eval", run, self.folder / "n*.txt", "--result", result)
        self.assertEqual(json.loads(result.read_text())["eval_loss"], found["eval_loss"])
        self.refused(DATA, "eval", run, self.folder / "x*.txt", says="x*.txt: no file matches this pattern")
        self.refused(DATA, "eval", run, self.folder, says="is a folder; data.path takes a file, a list of files, or a pattern")
        self.refused(USAGE, "eval", run, new, records, says="several files of text are a pattern in quotes")
        for key in ("tokenizer=byte", "tokenizer.path=none", f"path={records}", f"train.path={records}"):
            self.refused(USAGE, "eval", run, new, "-s", f"data.{key}", says=[f"-s data.{key}: error: ", "has no effect"])

    def test_the_tokenizer_that_a_run_keeps_replaces_the_one_that_it_was_given(self):
        given, run = self.folder / "given", self.folder / "run"
        self.run_dltrain(self.config(self.text()), "-q", "--output-dir", given)
        config = self.config(self.text().replace("tokenizer: char", f"tokenizer: {{type: file, path: {given}}}"))
        self.run_dltrain(config, "-q", "--output-dir", run)
        expected = self.run_dltrain("eval", run).out
        shutil.rmtree(given)
        whole = (run / "tokenizer.json").read_text()
        (run / "tokenizer.json").write_text("{}")
        self.refused(STORAGE, "eval", run, says="is damaged or was replaced")
        (run / "tokenizer.json").write_text(whole)
        self.assertEqual(self.run_dltrain("eval", run).out, expected)
        self.run_dltrain("predict", run, "-o", self.folder / "out.csv")
        self.run_dltrain("train", "--resume", run, "-q", "--max-steps", 14)
        self.assertIn("step-000014", self.run_dltrain("eval", run).out)
        self.refused(DATA, config, "--dry-run", says="data.tokenizer.path: No such file or folder")

    def test_prepared_tokens_train_as_their_text_does(self):
        plain = self.config(self.text())
        folder = self.folder / "corpus"
        for given in (("--encoding", "raw"), ("--shorter-side", 9)):
            self.refused(USAGE, "data", "prepare", plain, "-o", folder, *given, says=f"{given[0]} is for images only")
        out = self.run_dltrain("data", "prepare", plain, "-o", folder, "--shard-tokens", 3000).out
        self.assertIn("tokens for training", out)
        names = sorted(path.name for path in folder.iterdir())
        self.assertIn("train_000003.bin", names)
        self.assertIn("eval_000000.bin", names)
        self.assertIn("tokenizer.json", names)
        self.assertEqual([name for name in names if name.startswith(".")], [".dltrain"])
        tokens = self.config(f"type: tokens, sequence_length: 16, train: {{path: '{folder}/train_*.bin'}}, "
                             f"eval: {{path: '{folder}/eval_*.bin'}}", name="tokens.yaml")
        for config, name in ((plain, "a"), (tokens, "b")):
            self.run_dltrain(config, "--output-dir", self.folder / name, "--quiet")
        self.assert_same_state(self.folder / "a", self.folder / "b")
        self.assert_same_file(self.folder / "a" / "tokenizer.json", self.folder / "b" / "tokenizer.json")
        # Prepared tokens are also new data of the run on text.
        said = [self.run_dltrain("eval", self.folder / name, folder / "eval_000000.bin").out.split(":", 1)[1] for name in "ab"]
        self.assertEqual(*said)
        shard = folder / "train_000001.bin"
        shard.write_bytes(shard.read_bytes()[:-1])
        self.refused(DATA, tokens, "--dry-run", says=["train_000001.bin", "its header declares 3000 tokens"])

    def test_new_data_has_any_kind_that_the_tokenizer_reads(self):
        result = self.folder / "result.json"
        special = "tokenizer: {type: byte, special_tokens: [<|endoftext|>]}, sequence_length: 8"
        records = self.write("pairs.jsonl", "".join(json.dumps({"p": f"{i} + 1 = ", "c": str(i + 1)}) + "\n" for i in range(60)))
        pairs = self.config(f"type: jsonl, path: {records}, prompt: p, completion: c, {special.replace(': 8', ': 16')}", ids=257)
        self.run_dltrain(pairs, "-q", "--output-dir", self.folder / "pairs")
        self.refused(USAGE, "data", "prepare", pairs, "-o", self.folder / "never", says="records with prompt and completion")
        self.assertFalse((self.folder / "never").exists())
        text = self.config(f"type: text, path: {self.write('text.txt', TEXT)}, {special}", ids=257, name="text.yaml")
        self.run_dltrain("data", "prepare", text, "-o", self.folder / "corpus")
        # A bare file name has the tokenizer of the current folder.
        tokens = self.config("type: tokens, path: train_000000.bin, sequence_length: 8", ids=257, name="corpus/exp.yaml")
        self.run_dltrain("exp.yaml", "-q", "--output-dir", self.folder / "tokens", cwd=self.folder / "corpus")
        new = self.write("new.txt", "line 7 of the text")
        documents = self.write("new.jsonl", json.dumps({"text": "line 7 of the text"}) + "\n")
        for run in ("pairs", "tokens"):
            more = ("-s", "data.sequence_length=8", "--result", result)
            losses = []
            for data in (new, documents):
                self.run_dltrain("eval", self.folder / run, data, *more)
                losses.append(json.loads(result.read_text())["eval_loss"])
            self.assertEqual(losses[0], losses[1])
            self.run_dltrain("eval", self.folder / run, self.folder / "corpus" / "train_000000.bin", *more)
        self.run_dltrain("eval", self.folder / "pairs", records)
        (self.folder / "alone").mkdir()
        (self.folder / "corpus" / "train_000000.bin").rename(self.folder / "alone" / "ids.bin")
        self.run_dltrain(self.config(f"type: tokens, path: {self.folder}/alone/ids.bin, sequence_length: 8", ids=257), "-q",
                         "--output-dir", self.folder / "alone" / "run")
        self.refused(USAGE, "eval", self.folder / "alone" / "run", new, says="trained without a tokenizer")
        sources = self.config(f"type: jsonl, path: {records}, source: p, target: c, {special}", ids=257).read_text()
        sources = self.write("sources.yaml", re.sub("model: .*", ENCODER, sources))
        self.run_dltrain(sources, "-q", "--output-dir", self.folder / "sources", "--max-steps", 1)
        self.refused(USAGE, "eval", self.folder / "sources", new, says=["sources with targets", "'p' and 'c'"])

    def test_cut_records_and_names_of_special_tokens_are_told(self):
        lines = [{"p": "ab", "c": "c"}, {"p": "abc", "c": "defghijk"}, {"p": "a<|x|>", "c": "b" * 40}, {"p": "<|x|>", "c": "d"}]
        records = self.write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        data = f"type: jsonl, path: {records}, prompt: p, completion: c, sequence_length: 10, tokenizer: " \
               "{type: byte, special_tokens: [<|endoftext|>, <|x|>]}"
        config = self.config(data, ids=258)
        said = self.run_dltrain(config, "--dry-run").err
        self.assertIn(f"2 of 4 records have more than 10 tokens and lose their end (the first: {records}:2, 11 tokens); "
                      "raise data.sequence_length", said)
        self.assertNotIn("special token", said)
        ranks = self.run_dltrain(config, "--nproc-per-node", 2, "-s", "training.global_batch_size=2", "--output-dir", self.folder / "ranks").err
        self.assertEqual(ranks.count("lose their end"), 1, ranks)
        said = self.run_dltrain(config, "--dry-run", "-s", "data.tokenizer.parse_special=false", "-s", "data.sequence_length=50").err
        self.assertNotIn("lose their end", said)
        self.assertEqual(said.count("is the name of a special token"), 1, said)
        self.assertIn(f"{records}:3: <|x|> is the name", said)
        text = self.write("b.txt", "plain text\nand <|x|> twice <|x|>\n")
        said = self.run_dltrain(self.config(f"type: text, path: {text}, sequence_length: 4, tokenizer: "
                                            "{type: byte, special_tokens: [<|x|>]}", ids=257), "--dry-run").err
        self.assertIn(f"{text}:2:5: <|x|> is the name of a special token, which is read as ordinary text; "
                      "data.tokenizer.parse_special: true", said)
        self.assertEqual(said.count("is the name"), 1, said)

    def test_inspect_counts_tokens(self):
        out = self.run_dltrain("data", "inspect", self.config(self.text())).out
        self.assertIn("sequences of 16 tokens", out)
        self.assertIn(f"vocabulary: {len(set(TEXT))} ids", out)
        self.assertIn("' '", out)
        self.assertIn("eval:", out)
        lines = self.write("lines.txt", "a\n" * 200)
        out = self.run_dltrain("data", "inspect", self.config(f"type: text, path: {lines}, tokenizer: char, sequence_length: 16")).out
        self.assertIn("'\\n'", out)
        records = self.write("a.jsonl", '{"p": "é", "c": "b"}\n{"p": "", "c": "abc"}\n')
        pairs = f"type: jsonl, path: {records}, prompt: p, completion: c, tokenizer: {{type: byte, special_tokens: [<|endoftext|>]}}, sequence_length: 10"
        out = self.run_dltrain("data", "inspect", self.config(pairs)).out
        self.assertIn("2 sequences of 10 tokens, 7 tokens and 13 of padding, 6 targets that count", out)
        self.assertRegex(out, r" 195 '<0xC3>' +1 ")
        self.assertRegex(out, r" 256 '<\|endoftext\|>' +1 ")

    def test_the_resolved_configuration_is_read_again(self):
        records = self.write("a.jsonl", "".join(json.dumps({"p": f"{i} + 1", "c": str(i + 1)}) + "\n" for i in range(99)))
        tokenizer = "tokenizer: {type: byte, special_tokens: [<|endoftext|>, <mask>]}, sequence_length: 12"
        rest = f"path: {records}, {tokenizer}, eval_fraction: 0.1"
        for data in (f"type: jsonl, field: p, {rest}", f"type: jsonl, prompt: p, completion: c, {rest}",
                     f"type: jsonl, field: p, mlm_probability: 0.2, {rest}", f"type: text, sampling: streams, {rest}",
                     f"type: text, {rest}"):
            run = self.folder / "run"
            self.run_dltrain(self.config(data, ids=260), "--output-dir", run, "--overwrite", "--quiet", "--max-steps", 1)
            self.run_dltrain("eval", "--checkpoint", run)
            self.run_dltrain(run / "config.yaml", "--dry-run")

    def test_a_model_that_sees_its_targets_is_refused(self):
        model = "model: {type: bert, num_layers: 1, hidden_size: 8, num_heads: 2}"
        special = "{type: byte, special_tokens: [<|endoftext|>, <mask>]}"
        data = self.text().replace("tokenizer: char", f"tokenizer: {special}")
        config = self.write("bert.yaml", re.sub("model: .*", model, CONFIG.format(ids=64, data=data)))
        for command in ("train", "check"):
            self.refused(USAGE, command, config, *(("--dry-run",) if command == "train" else ()),
                         says=["bert.yaml:5", "the target of each token is the next token, and the model can see it",
                               "attends to later tokens", "mlm_probability: 0.15"])
        self.run_dltrain(config, "-q", "--output-dir", self.folder / "run", "-s", "data.mlm_probability=0.15")

    def test_perplexity_is_that_of_the_tokens(self):
        config = self.config(self.text())
        result = self.folder / "result.json"
        for more in ((), ("-s", "loss={type: cross_entropy, label_smoothing: 0.1, z_loss: 0.001}")):
            run = self.folder / f"run{len(more)}"
            self.run_dltrain(config, "-q", "--output-dir", run, "--result", result, *more)
            summary = json.loads(result.read_text())
            self.assertNotIn("eval_f1_macro", summary)
            if more:
                self.assertLess(summary["eval_perplexity"], math.exp(summary["eval_loss"]))
                self.assertGreater(summary["eval_perplexity"], 2)
            else:
                self.assertAlmostEqual(summary["eval_perplexity"], math.exp(summary["eval_loss"]), places=4)
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            found = [line["eval_perplexity"] for line in lines if "eval_perplexity" in line]
            self.assertEqual(found[-1], summary["eval_perplexity"])
        self.run_dltrain(config, "-q", "--overwrite", "--output-dir", run, "-s", "checkpoint.metric=perplexity", "-s",
                         "evaluation.eval_steps=4")

    def test_weights_of_another_tokenizer_are_told(self):
        run, other = self.folder / "run", self.folder / "other"
        config = self.config(self.text())
        self.run_dltrain(config, "-q", "--output-dir", run)
        start = ("-s", f"model.init_from={run / 'checkpoints' / 'step-000012'}")
        same = self.run_dltrain(config, "--output-dir", other, "--overwrite", *start).err
        self.assertNotIn("belong to the tokenizer", same)
        text = self.write("upper.txt", TEXT.upper())
        data = f"type: text, path: {text}, tokenizer: char, sequence_length: 16, eval_fraction: 0.1"
        log = self.run_dltrain(self.config(data, name="upper.yaml"), "--output-dir", other, "--overwrite", *start).err
        self.assertIn("were trained with the tokenizer beside them (char, ", log)
        self.assertRegex(log, r'id \d+ is "." there and "." here')
        self.assertIn(f"path: {run}", log)

    def test_a_learnt_vocabulary_is_trained_with(self):
        text = self.write("text.txt", TEXT)
        folder = self.folder / "spm"
        self.run_dltrain("data", "tokenizer", text, "--vocab-size", 300, "--special-token", "<mask>", "-o", folder)
        data = (f"type: text, path: {text}, tokenizer: {{type: sentencepiece, path: {folder}}}, sequence_length: 16, "
                "eval_fraction: 0.1, mlm_probability: 0.15")
        run = self.folder / "run"
        self.run_dltrain(self.config(data, ids=300), "--output-dir", run, "--quiet")
        self.assert_same_file(run / "tokenizer.model", folder / "tokenizer.model")
        # Of many files one is open at a time.
        for i, line in enumerate(TEXT.splitlines(keepends=True)):
            self.write(f"parts/{i:03}.txt", line)
        self.run_dltrain("data", "tokenizer", "--special-token", "<mask>", self.folder / "parts/*.txt", "--vocab-size", 300, "-o", self.folder / "again",
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        self.assert_same_file(self.folder / "again" / "tokenizer.model", folder / "tokenizer.model")
        never = self.folder / "never"
        for given, says in ((["<x>", "<x>"], "--special-token <x> is given twice"), ([""], "must be a name without blanks and commas"),
                            (["<a> b"], "must be a name"), (["<a>,<b>"], "must be a name"), (["<unk>"], "every vocabulary has <unk>")):
            flags = [part for token in given for part in ("--special-token", token)]
            self.refused(USAGE, "data", "tokenizer", *flags, text, "-o", never, says=says)
        bpe = self.config(f"type: text, path: {text}, tokenizer: {{type: bpe, path: {folder}}}, sequence_length: 16", name="bpe.yaml")
        self.refused(DATA, bpe, "--dry-run", says="has a tokenizer of type sentencepiece, not bpe; `type: file` reads any")
        self.refused(DATA, "data", "tokenizer", text, "--vocab-size", 100000, "-o", never,
                     says="the text is too small for a vocabulary of 100000 tokens")
        broken = self.write("broken.txt", b"good\n\xff\n")
        self.refused(DATA, "data", "tokenizer", broken, "-o", never, says="broken.txt:2: is not UTF-8")
        small = self.write("small.txt", "to be or not\n")
        said = self.refused(DATA, "data", "tokenizer", small, "--vocab-size", 400, "-o", never).err
        self.assertRegex(said, r"small\.txt: the text is too small for a vocabulary of 400 tokens: the maximum is \d+\n$")
        wide = self.write("wide.txt", "".join(chr(0x4E00 + i) for i in range(60)) * 20)
        self.refused(DATA, "data", "tokenizer", wide, "--vocab-size", 264, "-o", never,
                     says=["a vocabulary of 264 tokens is too small for this text", "characters need 3"])
        self.refused(DATA, "data", "tokenizer", self.write("empty.txt", "\n\n"), "-o", never, says="empty.txt: the text is empty")
        self.assertFalse(never.exists())
        learn, model = ("data", "tokenizer", text, "--vocab-size", 290, "-o"), folder / "tokenizer.model"
        before = model.read_bytes()
        self.refused(USAGE, *learn, folder, says=f"{model} already exists; --overwrite replaces it")
        self.assertEqual(model.read_bytes(), before)
        self.run_dltrain(*learn, folder, "--overwrite")
        self.assertNotEqual(model.read_bytes(), before)
        mine = self.write("mine/tokenizer.model", "x")
        self.refused(USAGE, *learn, mine.parent, "--overwrite", says=f"{mine} was not written by dltrain; choose another folder")
        self.assertEqual(list(mine.parent.iterdir()), [mine])

    def test_mistakes_are_told_before_the_first_step(self):
        self.refused(DATA, self.config(self.text(), ids=10), "--dry-run", says="does not fit the model's")
        broken = self.write("broken.txt", b"good\nba\xffd\n" + b"x" * 100)
        self.refused(DATA, self.config(f"type: text, path: {broken}, tokenizer: char, sequence_length: 4"),
                     "--dry-run", says="broken.txt:2:3: is not UTF-8")
        short = self.write("short.txt", "abcdefghij")
        several = self.config(f"type: text, path: [{self.write('a.txt', '')}, {short}], tokenizer: char, sequence_length: 4, eval_fraction: 0.1")
        self.refused(DATA, several, "--dry-run", says=f"{short}: data.eval_fraction 0.1 leaves 1 of 10 tokens")
        lines = self.write("lines.jsonl", '{"text": "abcdefgh"}\n' * 20)
        said = self.run_dltrain(self.config(f"type: text, path: {lines}, tokenizer: char, sequence_length: 4"), "--dry-run").err
        self.assertIn(f"{lines}: looks like JSON Lines", said)
        self.assertIn("type: jsonl reads its texts", said)
        self.refused(USAGE, self.config(self.text(", mask_token_id: 3")), "--dry-run",
                     says=["exp.yaml:5", "mask_token_id needs mlm_probability"])
        records = self.write("a.jsonl", '{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
        self.refused(DATA, self.config(f"type: jsonl, path: {records}, prompt: prompt, completion: completion, "
                                       "tokenizer: {type: byte, special_tokens: '<|endoftext|>'}, "
                                       "sequence_length: 4"),
                     "--dry-run", says="a.jsonl:2: has no key 'completion'")


if __name__ == "__main__":
    main()
