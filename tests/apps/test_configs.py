"""Every file of configs/ is planned. Recipes need data that a person downloads first; here made-up samples of the
same shape stand in for them."""
import json
import re

import support
from support import DATA, OK, SOURCES, USAGE

# Shape and classes of the data of each recipe.
SAMPLES = {
    "digits-mlp": ("[64]", 10), "digits-sweep": ("[64]", 10), "digits-convnet": ("[8, 8, 1]", 10), "mnist-lenet": ("[28, 28, 1]", 10),
    "fashion-mnist-convnet": ("[28, 28, 1]", 10), "cifar10-resnet18": ("[32, 32, 3]", 10),
    "digits-resnet18": ("[32, 32, 3]", 10),
    "image-folder-resnet50": ("[224, 224, 3]", 1000),
}
# Columns and classes of the tables (1: a number).
TABLES = {"breast-cancer-mlp": (30, 2), "wine-mlp": (13, 3), "diabetes-mlp": (10, 1)}
# The number of characters of the text of each recipe that has one.
CHARACTERS = {"bible-char-gpt": 63, "bible-char-moe": 63, "bible-char-lstm": 63, "shakespeare-char-gpt": 65}
# Recipes for several ranks, on the same texts.
RANKS = ("two-ranks-zero", "two-ranks-tensor", "two-ranks-pipeline", "two-ranks-context", "two-ranks-experts", "four-ranks-mesh", "four-ranks-auto")
CHARACTERS |= {name: 63 for name in RANKS}
# Those that begin with a folder of Hugging Face.
FOLDERS = {"finetune-gpt2"}
# The keys of the pairs of texts of each recipe that has such.
PAIRS = {"number-words": ("digits", "words")}
# The smallest images that an architecture is made for.
IMAGES = {"lenet": "[28, 28, 1]"}

# Families of language models, whose data are tokens.
LANGUAGE = ("gpt2", "llama", "mixtral", "qwen", "bert", "albert", "char_lstm")


def ranks_of_recipe(name):
    return {"two": 2, "four": 4}.get(name.split("-")[0], 1)


class Configs(support.DltrainTest):
    def plan(self, config, *arguments):
        out = self.run_dltrain("plan", config, "-s", "memory.budget=1TB", *arguments).out
        self.assertIn("layers, for one micro-batch", out)
        return out

    def test_every_benchmark_is_planned(self):
        for config in sorted((SOURCES / "configs" / "bench").glob("*.yaml")):
            self.plan(config)

    def test_every_recipe_is_planned(self):
        recipes = sorted((SOURCES / "configs" / "recipes").glob("*.yaml"))
        self.assertEqual({recipe.stem for recipe in recipes}, {*SAMPLES, *TABLES, *CHARACTERS, *FOLDERS, *PAIRS},
                         "SAMPLES, TABLES, CHARACTERS, FOLDERS or PAIRS needs a row for every recipe")
        for recipe in recipes:
            if recipe.stem in FOLDERS:
                text = self.write("text.txt", "".join(chr(97 + i % 26) for i in range(20000)))
                self.plan(recipe, "-s", f"data.path={text}", "-s", "data.tokenizer=char", "-s", "data.sequence_length=16", "-s",
                          f"model.from={SOURCES / 'tests' / 'golden' / 'huggingface' / 'gpt2'}")
                self.assertIn(self.end(self.start("plan", recipe)).code, (OK, USAGE, DATA))
                continue
            if recipe.stem in CHARACTERS:
                text = "".join(chr(60 + i % CHARACTERS[recipe.stem]) for i in range(30000))
                self.plan(recipe, "-s", f"data.path={self.write('text.txt', text)}", "--world", ranks_of_recipe(recipe.stem))
            elif recipe.stem in PAIRS:
                pair = self.write("pairs.jsonl", (json.dumps({key: "abc" for key in PAIRS[recipe.stem]}) + "\n") * 200)
                self.plan(recipe, "-s", f"data.train.path={pair}", "-s", f"data.eval.path={pair}")
            elif recipe.stem in TABLES:
                columns, classes = TABLES[recipe.stem]
                rows = [",".join(map(str, [i % (7 + c) for c in range(columns)] + [i % classes if classes > 1 else i])) for i in range(200)]
                self.plan(recipe, "-s", f"data.path={self.write('table.csv', chr(10).join(rows))}")
            else:
                shape, classes = SAMPLES[recipe.stem]
                synthetic = f"{{type: synthetic, shape: {shape}, classes: {classes}, samples: 2000, eval_fraction: 0.5}}"
                self.plan(recipe, "-s", f"data={synthetic}")
            # As it stands: right but for files that are not there.
            result = self.end(self.start("plan", recipe, "--world", ranks_of_recipe(recipe.stem)))
            self.assertIn(result.code, (OK, DATA), str(result))

    def test_recipes_of_several_ranks_have_the_losses_of_one(self):
        text = self.write("text.txt", "".join(chr(60 + i * i % 63) for i in range(20000)))

        def losses(recipe, ranks, *keys):
            run = self.folder / f"{recipe.stem}-{ranks}"
            self.run_dltrain(recipe, "-q", "--output-dir", run, "--nproc-per-node", ranks, "-s", f"data={{path: {text}, eval_fraction: null}}",
                             "-s", "evaluation=null", "--max-steps", 2, *keys)
            return [line["loss"] for line in support.steps(run)]

        alone = {}  # by what the losses depend on
        for name in RANKS:
            recipe = SOURCES / "configs" / "recipes" / f"{name}.yaml"
            same = tuple(re.findall(r"^(?:extends|data): .*|global_batch_size: \d+", recipe.read_text(), re.M))
            if same not in alone:
                alone[same] = losses(recipe, 1, "-s", "parallelism=null")
            for one, other in zip(alone[same], losses(recipe, ranks_of_recipe(name)), strict=True):
                self.assertLess(abs(other / one - 1), 1e-5, name)
        self.assertLess(len(alone), len(RANKS))

    def plan_language(self, kind):
        data = "{type: synthetic_tokens, vocab_size: 300, length: 16, samples: 8}"
        if kind == "bert_classifier":  # one label a sequence
            path = support.save_safetensors(self.folder / "sequences.safetensors",
                                            {"x": ("I32", [8, 16], [0] * 128), "y": ("I32", [8], [0, 1] * 4)})
            data = f"{{type: tensors, path: {path}, inputs: x, targets: y}}"
        self.plan(self.write(f"{kind}.yaml", f"""
model: {{type: {kind}}}
data: {{train: {data}}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
"""))

    def plan_pairs(self):
        pairs = self.write("pairs.jsonl", '{"a": "abc", "b": "de"}\n' * 4)
        for norm in ("pre", "post"):
            self.plan(self.write(f"{norm}.yaml", f"""
model: {{type: transformer, norm: {norm}}}
data: {{type: jsonl, path: {pairs}, source: a, target: b, sequence_length: 4, tokenizer: {{type: byte, special_tokens: [</s>]}}}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
"""))

    def test_every_architecture_is_planned(self):
        models = sorted((SOURCES / "configs" / "models").glob("*.yaml"))
        self.assertTrue(models)
        for model in models:
            if model.stem == "transformer":
                self.plan_pairs()
                continue
            if model.stem.startswith(LANGUAGE):
                self.plan_language(model.stem)
                continue
            config = self.write(f"{model.stem}.yaml", f"""
model: {{type: {model.stem}, num_classes: 7}}
data: {{train: {{type: synthetic, shape: {IMAGES.get(model.stem, "[64, 64, 3]")}, classes: 7, samples: 8}}}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 4, max_steps: 1}}
""")
            self.plan(config)


if __name__ == "__main__":
    support.main()
