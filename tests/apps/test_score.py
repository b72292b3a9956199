"""dltrain score: log-likelihoods of continuations, as transformers' logits give them."""
import json
import math
import struct
import subprocess
import sys

from support import DATA, PROGRAM, SOURCES, USAGE, DltrainTest, main, safetensors

GOLDEN = SOURCES / "tests" / "golden" / "huggingface"
LETTERS = "".join(chr(ord("A") + i) for i in range(26)) + "abcde"  # the 31 tokens of the golden models
CONFIG = """
model: {{layers: [{{embedding: {{embedding_dim: 4}}}}, {{linear: auto}}]}}
data: {{type: text, path: {path}, tokenizer: {{type: char, alphabet: {letters}}}, sequence_length: 8}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
"""


class ScoreTest(DltrainTest):
    def setUp(self):
        super().setUp()
        config = self.write("exp.yaml", CONFIG.format(path=self.write("text.txt", LETTERS), letters=LETTERS))
        self.trained = self.folder / "run"
        self.run_dltrain(config, "--output-dir", self.trained, "-q")

    def score(self, model, pairs, *arguments):
        lines = self.write("pairs.jsonl", "".join(json.dumps({"context": a, "continuation": b}) + "\n" for a, b in pairs))
        out = self.run_dltrain("score", model, lines, "--tokenizer", self.trained, *arguments).out
        return [json.loads(line) for line in out.splitlines()]

    def test_scores_are_those_of_transformers(self):
        for name in ("gpt2", "llama", "qwen3_moe"):
            tensors = safetensors(GOLDEN / name / "logits.safetensors")
            ids = struct.unpack("<24i", tensors["input"][2])
            logits = struct.unpack(f"<{24 * 31}f", tensors["logits"][2])
            pairs, expected = [], []
            for row in range(2):
                text = "".join(LETTERS[i] for i in ids[12 * row:12 * row + 12])
                for cut in (1, 5, 11):
                    total, greedy = 0.0, True
                    for place in range(cut, 12):
                        at = logits[31 * (12 * row + place - 1):][:31]
                        total += at[ids[12 * row + place]] - math.log(sum(map(math.exp, at)))
                        greedy = greedy and max(at) == at[ids[12 * row + place]]
                    pairs.append((text[:cut], text[cut:]))
                    expected.append((total, greedy))
            for batch in (1, 4):
                for line, pair, (total, greedy) in zip(self.score(GOLDEN / name, pairs, "--batch-size", batch), pairs, expected, strict=True):
                    self.assertAlmostEqual(line["log_likelihood"], total, delta=1e-4, msg=f"{name} {pair}")
                    self.assertEqual((line["greedy"], line["tokens"], line["bytes"]), (greedy, len(pair[1]), len(pair[1])))

    def test_a_context_that_is_too_long_loses_its_first_tokens(self):
        whole = LETTERS[:20]  # gpt2 has 16 positions
        long, cut = self.score(GOLDEN / "gpt2", [(whole, "ab"), (whole[5:], "ab")])
        self.assertEqual(long, cut)
        most = self.score(GOLDEN / "gpt2", [("A", LETTERS[:16])])[0]
        self.assertEqual(most["tokens"], 16)

    def test_blanks_at_the_end_of_a_context_belong_to_the_continuation(self):
        config = (self.folder / "exp.yaml").read_text().replace(f"{{type: char, alphabet: {LETTERS}}}", "byte")
        run = self.folder / "bytes"
        self.run_dltrain(self.write("bytes.yaml", config), "--output-dir", run, "-q")
        one, other = self.score(run, [("A ", "B"), ("A", " B")], "--tokenizer", run)
        self.assertEqual(one, other)
        self.assertEqual(one["bytes"], 2)

    def test_a_completion_is_trained_on_as_it_is_scored(self):
        pairs = [(f"line {i} of the text,", f"{' ' * (i % 2)}{i * i} squared") for i in range(300)]
        text = self.write("text.txt", "".join(a + b + "\n" for a, b in pairs))
        records = self.write("pairs.jsonl", "".join(json.dumps({"p": a, "c": b}) + "\n" for a, b in pairs[8:10]))
        spm, run, out = self.folder / "spm", self.folder / "paired", self.folder / "out.jsonl"
        self.run_dltrain("data", "tokenizer", text, "--vocab-size", 300, "-o", spm)
        config = (self.folder / "exp.yaml").read_text().splitlines()
        config[2] = f"data: {{type: jsonl, path: {records}, prompt: p, completion: c, tokenizer: {{type: file, path: {spm}}}, sequence_length: 40}}"
        self.run_dltrain(self.write("pairs.yaml", "\n".join(config)), "--output-dir", run, "-q")
        self.run_dltrain("predict", run, records, "-o", out)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        for sample, scored in enumerate(self.score(run, pairs[8:10], "--tokenizer", run)):
            # Only the completion and its end have rows, each token with its space.
            targets = [row["target"] for row in rows if row["sample"] == sample]
            self.assertEqual("".join(targets), pairs[8 + sample][1] + "</s>")
            self.assertEqual(len(targets), scored["tokens"] + 1)

    def test_the_adapter_answers_lm_evaluation_harness(self):
        # Stands in for the package: what the adapter takes from it.
        self.write("lm_eval/__init__.py", "")
        self.write("lm_eval/api/__init__.py", "")
        self.write("lm_eval/api/model.py", "class LM:\n    pass\n")
        self.write("lm_eval/api/registry.py", "def register_model(name):\n    return lambda kind: kind\n")
        script = self.write("ask.py", """
import collections, json, sys
from lm_eval_dltrain import Dltrain
Request = collections.namedtuple("Request", "args")
model = Dltrain(sys.argv[2], program=sys.argv[1], tokenizer=sys.argv[3], batch_size=2)
scores = model.loglikelihood([Request(("ABC", "DE")), Request(("AB ".strip(), "C"))])
until = [Request((prompt, {"until": until, "max_gen_toks": 3})) for prompt, until in (("A", ["Q"]), ("B", "R"), ("C", ["Q"]))]
print(json.dumps([scores, model.generate_until(until)]))
""")
        path = f"{self.folder}:{SOURCES / 'examples'}"
        out = subprocess.run([sys.executable, script, PROGRAM, GOLDEN / "gpt2", self.trained], env={"PYTHONPATH": path}, check=True, stdout=subprocess.PIPE)
        scores, texts = json.loads(out.stdout)
        direct = self.score(GOLDEN / "gpt2", [("ABC", "DE"), ("AB", "C")])
        self.assertEqual(scores, [[line["log_likelihood"], line["greedy"]] for line in direct])
        for prompt, text in zip("ABC", texts, strict=True):
            made = self.run_dltrain("generate", GOLDEN / "gpt2", "--tokenizer", self.trained, "--prompt", prompt, "--temperature", 0,
                                    "--max-tokens", 3, "--stop", "R" if prompt == "B" else "Q", "--json", "-q").out
            self.assertEqual(text, json.loads(made)["text"])

    def test_mistakes(self):
        def refused(text, code=DATA, says=(), *more):
            self.refused(code, "score", self.trained, self.write("bad.jsonl", text), *more, says=says)

        refused("", says="has no lines")
        refused('{"context": "A"}\n', says=['bad.jsonl:1', '"context" and "continuation"'])
        refused('{"context": "A", "continuation": ""}\n', says="the continuation is empty")
        refused('{"context": "A", "continuation": "?"}\n', says="'?'")
        refused('{"context": "", "continuation": "A"}\n', DATA, ["bad.jsonl:1", "no token that begins a text"])
        refused('not json\n', says="bad.jsonl:1")
        long = json.dumps({"context": "A", "continuation": LETTERS[:17]}) + "\n"
        self.refused(DATA, "score", GOLDEN / "gpt2", self.write("long.jsonl", long), "--tokenizer", self.trained, says="17 tokens")
        self.refused(USAGE, "score", GOLDEN / "gpt2", self.write("a.jsonl", '{"context": "A", "continuation": "B"}\n'), says="has no tokenizer")


main()
