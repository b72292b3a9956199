"""Low-rank adapters (model.lora) against peft's runs recorded by scripts/record_golden_lora.py, and peft's files."""
import json
import shutil
import struct

import support
from support import MEMORY, SOURCES, STORAGE, USAGE, safetensors, save_safetensors, steps

GOLDEN = SOURCES / "tests/golden/lora"
LANGUAGE = SOURCES / "tests/golden/language"
# Relative. peft's own runs in f32 and f64 are at most 6e-7 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5
DATA = f"{{type: tensors, path: {LANGUAGE}/batches.safetensors, inputs: input, targets: target, shuffle: false}}"
MASKED = (f"{{type: tensors, path: {LANGUAGE}/batches.safetensors, inputs: {{input: masked_input, attention_mask: attention_mask}}, "
          "targets: masked_target, shuffle: false}")


def floats(tensor):
    dtype, shape, content = tensor
    assert dtype == "F32", dtype
    return struct.unpack(f"<{len(content) // 4}f", content)


class Lora(support.DltrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = json.loads((GOLDEN / "losses.json").read_text())

    def base(self, name):
        """A folder of Hugging Face with the base."""
        folder = self.folder / f"base-{name}"
        if not folder.exists():
            folder.mkdir()
            shutil.copy(LANGUAGE / f"{name}.json", folder / "config.json")
            shutil.copy(LANGUAGE / f"{name}.safetensors", folder / "model.safetensors")
        return folder

    def configuration(self, name, lora, more="", training="global_batch_size: 4, max_steps: 20, max_grad_norm: 0.5"):
        keys = {"bert": ", dropout: 0, attention_dropout: 0, attention_mask: true"}.get(name, "")
        return self.write(f"{name}.yaml", f"""
name: lora
model: {{from: {self.base(name)}{keys}, lora: {lora}}}
data: {{train: {MASKED if name == "bert" else DATA}{more}}}
optimizer: {{type: adamw, learning_rate: 0.01, weight_decay: 0.1}}
training: {{{training}}}
logging: {{logging_steps: 1}}
""")

    def train(self, case, run, *arguments):
        configuration = self.configuration(self.golden["cases"][case]["model"], f"{{from: {GOLDEN / case}}}")
        self.run_dltrain(configuration, "-q", "--output-dir", self.folder / run, *arguments)
        return steps(self.folder / run)

    def check(self, case, lines, tolerance=TOLERANCE):
        self.assertEqual(len(lines), self.golden["steps"])
        for i, line in enumerate(lines):
            for series in ("loss", "grad_norm"):
                expected = self.golden["cases"][case]["f64"][series][i]
                self.assertLessEqual(abs(line[series] - expected), tolerance * expected, f"{case} {series}, step {i + 1}")

    def test_adapters_have_the_trajectory_and_the_weights_of_peft(self):
        for case in self.golden["cases"]:
            self.check(case, self.train(case, case))
            out = self.folder / f"peft-{case}"
            self.run_dltrain("export", self.folder / case, out)
            expected, found = safetensors(GOLDEN / case / "trained.safetensors"), safetensors(out / "adapter_model.safetensors")
            self.assertEqual({name: value[1] for name, value in expected.items()}, {name: value[1] for name, value in found.items()})
            for name, tensor in expected.items():
                for a, b in zip(floats(tensor), floats(found[name])):
                    self.assertAlmostEqual(a, b, delta=2e-5, msg=f"{case} {name}")

    def test_adapters_on_ranks_and_micro_batches_have_the_trajectory_of_peft(self):
        for case in self.golden["cases"]:
            self.check(case, self.train(case, f"{case}-micro", "-s", "training.micro_batch_size=1"))
            self.check(case, self.train(case, f"{case}-ranks", "--nproc-per-node", "2", "-s", "parallelism.zero_stage=1"))

    def test_the_first_step_is_that_of_the_base(self):
        for name in ("gpt2", "bert"):
            for compute in ("f32", "bf16"):
                configuration = self.configuration(name, "{rank: 4}")
                keys = ["-q", "--max-steps", "1", "-s", f"precision.compute={compute}"]
                plain, run = self.folder / f"{name}-{compute}", self.folder / f"{name}-{compute}-lora"
                self.run_dltrain(configuration, *keys, "--output-dir", run)
                self.run_dltrain(configuration, *keys, "--output-dir", plain, "-s", "model.lora=null")
                self.assertEqual(steps(run)[0]["loss"], steps(plain)[0]["loss"], f"{name} {compute}")

    def test_a_new_head_is_not_frozen_at_random_values(self):
        mlp = SOURCES / "tests/golden/mlp"
        configuration = self.write("head.yaml", f"""
name: head
model:
  layers: [{{linear: 32}}, {{gelu: {{approximate: tanh}}}}, {{linear: 32}}, {{gelu: {{approximate: tanh}}}}, {{linear: 10}}, relu, {{linear: 10}}]
  init_from: {mlp}/weights.safetensors
  strict: false
  lora: 2
data: {{type: tensors, path: {mlp}/batches.safetensors, inputs: x, targets: y}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 8, max_steps: 2}}
""")
        self.refused(USAGE, configuration, "--output-dir", self.folder / "head", says='train them too: model.lora.also_train: ["layers.6.*"]')
        self.run_dltrain(configuration, "--output-dir", self.folder / "head", "-q", "-s", 'model.lora={rank: 2, also_train: ["layers.6.*"]}')

    def evaluated(self, *arguments):
        result = self.folder / "result.json"
        self.run_dltrain("eval", *arguments, "--result", result)
        return json.loads(result.read_text())["eval_loss"]

    def test_merged_and_peft_folders_compute_what_the_run_computes(self):
        for name, lora in (("gpt2", "{rank: 4, match: [c_attn, mlp.c_proj]}"), ("llama", "{rank: 2, variant: rslora}"),
                           ("qwen2", "{rank: 2, variant: dora, match: ['*_proj', '!k_proj']}"),
                           ("bert", "{rank: 2, also_train: [transform.*]}"),
                           ("gpt2", "{rank: 2, variant: dora, also_train: [h.0.attn.c_attn.*]}")):
            evaluation = f", eval: {MASKED if name == 'bert' else DATA}"
            configuration = self.configuration(name, lora, evaluation)
            run, merged, adapters = (self.folder / f"{name}-{len(lora)}-{part}" for part in ("run", "merged", "adapters"))
            self.run_dltrain(configuration, "-q", "--output-dir", run)
            expected = self.evaluated("--checkpoint", run)
            self.run_dltrain("export", run, merged, "--merge")
            self.run_dltrain("export", run, adapters)
            # peft drops an adapter of a module that is saved whole.
            whole = json.loads((adapters / "adapter_config.json").read_text())["modules_to_save"] or []
            self.assertFalse([key for key in safetensors(adapters / "adapter_model.safetensors") for module in whole if f"{module}.lora_" in key])
            shapes = {key: value[1] for key, value in safetensors(self.base(name) / "model.safetensors").items()}
            prefix = "transformer." if name == "gpt2" else ""
            self.assertEqual({prefix + key: value for key, value in shapes.items()},
                             {key: value[1] for key, value in safetensors(merged / "model.safetensors").items()})
            once = ["-q", "--max-steps", "1", "-s", "optimizer.learning_rate=0", "-s", "optimizer.weight_decay=0"]
            for folder, changes in ((merged, ["-s", f"model.from={merged}", "-s", "model.lora=null"]),
                                    (adapters, ["-s", f"model.lora={{from: {adapters}}}"])):
                again = self.folder / f"again-{folder.name}"
                self.run_dltrain(configuration, *once, *changes, "--output-dir", again)
                self.assertAlmostEqual(self.evaluated("--checkpoint", again), expected, delta=1e-5 * expected, msg=str(folder))

    def test_what_peft_would_load_otherwise_is_exported_merged_alone(self):
        for name, pattern, words in (("gpt2", "wte.*", "is the weight of the head"), ("bert", "'*word_embeddings.*'", "is the weight of the head"),
                                     ("mixtral", "'*mlp.gate.*'", "part of a mixture"), ("mixtral", "'*experts.*'", "part of a mixture"),
                                     ("bert", "cls.predictions.*", "in part"), ("llama", "'*_proj.*'", "learn whole"), ("qwen2", "'*q_proj.bias'", "in part")):
            run = self.folder / "learns"
            self.run_dltrain(self.configuration(name, f"{{rank: 2, also_train: [{pattern}]}}"), "-q", "--max-steps", "1", "--overwrite", "--output-dir", run)
            said = self.refused(USAGE, "export", run, self.folder / "out", says=words)
            self.assertIn("--merge", said.err)
            self.run_dltrain("export", run, self.folder / "out", "--merge", "--overwrite")
            shutil.rmtree(self.folder / "out")
        self.run_dltrain(self.configuration("mixtral", "2"), "-q", "--max-steps", "1", "--overwrite", "--output-dir", run)
        self.run_dltrain("export", run, self.folder / "out")

    def peft_folder(self, case, tensors, **keys):
        """A recorded folder with more tensors and other keys of adapter_config.json."""
        folder = self.folder / "peft"
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps({**json.loads((GOLDEN / case / "adapter_config.json").read_text()), **keys}))
        found = {**safetensors(GOLDEN / case / "adapter_model.safetensors"), **{f"base_model.model.{name}": t for name, t in tensors.items()}}
        save_safetensors(folder / "adapter_model.safetensors", {name: (t[0], t[1], floats(t)) for name, t in found.items()})
        return folder

    def test_folders_that_peft_writes_in_other_forms_are_read(self):
        base = safetensors(self.base("llama") / "model.safetensors")
        for tensors, keys in (({"lm_head.base_layer.weight": base["lm_head.weight"]}, {"target_parameters": []}),
                              ({name: t for name, t in base.items() if "norm" in name}, {"modules_to_save": ["norm"]})):
            folder = self.peft_folder("llama_rslora", tensors, **keys)
            run = self.folder / "read"
            self.run_dltrain(self.configuration("llama", f"{{from: {folder}}}"), "-q", "--max-steps", "1", "--overwrite", "--output-dir", run)
            self.assertAlmostEqual(steps(run)[0]["loss"], self.golden["cases"]["llama_rslora"]["f64"]["loss"][0], delta=1e-5)
        wte = safetensors(self.base("gpt2") / "model.safetensors")["wte.weight"]
        folder = self.peft_folder("gpt2", {"transformer.wte.weight": wte}, modules_to_save=["wte"])
        self.refused(USAGE, self.configuration("gpt2", f"{{from: {folder}}}"), "--output-dir", self.folder / "tied", says="weight of two layers")

    def test_a_run_is_resumed_to_the_bit_and_generates(self):
        configuration = self.configuration("gpt2", "{rank: 4, dropout: 0.1}")
        whole, parts = self.folder / "whole", self.folder / "parts"
        self.run_dltrain(configuration, "-q", "--output-dir", whole)
        self.run_dltrain(configuration, "-q", "--output-dir", parts, "--max-steps", "7")
        self.run_dltrain(configuration, "-q", "--output-dir", parts, "--resume", "auto")
        self.assertEqual([line["loss"] for line in steps(whole)], [line["loss"] for line in steps(parts)])
        said = self.run_dltrain("generate", whole, "--tokens", "3,4,5", "--max-tokens", "4").out
        self.assertTrue(said.strip())

    def test_a_base_in_codes_is_not_in_checkpoints_and_everything_uses_it_again(self):
        for name, lora in (("gpt2", "{rank: 4, dropout: 0.1, base: nf4}"), ("llama", "{rank: 4, base: int8}")):
            configuration = self.configuration(name, lora, f", eval: {DATA}")
            whole, parts = self.folder / f"{name}-whole", self.folder / f"{name}-parts"
            self.run_dltrain(configuration, "-q", "--output-dir", whole)
            self.run_dltrain(configuration, "-q", "--output-dir", parts, "--max-steps", "7")
            self.run_dltrain(configuration, "-q", "--output-dir", parts, "--resume", "auto")
            self.assertEqual([line["loss"] for line in steps(whole)], [line["loss"] for line in steps(parts)])
            checkpoint = whole / "checkpoints/latest"
            saved = safetensors(checkpoint / "model.safetensors")
            self.assertTrue(saved and all(".lora_" in key for key in saved), saved.keys())
            self.assertTrue(json.loads((checkpoint / "state.json").read_text())["base"])
            expected = self.evaluated("--checkpoint", whole)
            merged, adapters = self.folder / f"{name}-merged", self.folder / f"{name}-adapters"
            said = self.run_dltrain("export", whole, merged, "--merge")
            self.assertIn("contain its rounding", said.out + said.err)
            self.run_dltrain("export", whole, adapters)
            once = ["-q", "--max-steps", "1", "-s", "optimizer.learning_rate=0", "-s", "optimizer.weight_decay=0"]
            base = lora[lora.index("base"):-1]
            for folder, changes in ((merged, ["-s", f"model.from={merged}", "-s", "model.lora=null"]),
                                    (adapters, ["-s", f"model.lora={{from: {adapters}, {base}}}"])):
                again = self.folder / f"again-{folder.name}"
                self.run_dltrain(configuration, *once, *changes, "--output-dir", again)
                self.assertAlmostEqual(self.evaluated("--checkpoint", again), expected, delta=1e-5 * expected, msg=str(folder))
            tokens = ["--tokens", "3,4,5", "--max-tokens", "6", "--temperature", "0"]
            self.assertEqual(self.run_dltrain("generate", whole, *tokens).out,
                             self.run_dltrain("generate", self.folder / f"again-{merged.name}", *tokens).out)
            self.assertTrue(self.run_dltrain("average", whole, parts, "-o", self.folder / f"{name}-mean").out)
            self.assertAlmostEqual(self.evaluated("--checkpoint", self.folder / f"{name}-mean"), expected, delta=1e-6 * expected)
            # What needs a whole model says so.
            said = self.run_dltrain(whole / "config.yaml", "-q", "-s", f"model.init_from={whole}", "-s", "model.lora=null", "--output-dir",
                                    self.folder / "from", code=STORAGE)
            self.assertIn("may have adapters alone", said.err)
            said = self.run_dltrain(configuration, "--dry-run", "-s", f"loss={{type: distillation, teacher: {whole}}}", code=USAGE)
            self.assertIn("has adapters alone", said.err + said.out)

    def test_a_base_that_has_changed_or_gone_is_refused(self):
        configuration = self.configuration("gpt2", "{rank: 4, save: adapters}", f", eval: {DATA}")
        run, weights = self.folder / "kept", self.base("gpt2") / "model.safetensors"
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", "5")
        expected = self.evaluated("--checkpoint", run)
        elsewhere = self.folder / "elsewhere"
        shutil.copytree(self.base("gpt2"), elsewhere)
        content = bytearray(weights.read_bytes())
        content[-3] ^= 1
        weights.write_bytes(content)
        again = [configuration, "-q", "--output-dir", run, "--resume", "auto"]
        for arguments in (again, ["eval", "--checkpoint", run], ["generate", run, "--tokens", "3,4"],
                          ["export", run, self.folder / "out", "--merge"]):
            self.assertIn("trained on other weights", self.run_dltrain(*arguments, code=STORAGE).err)
        self.assertEqual(self.evaluated("--checkpoint", run, "-s", f"model.init_from={elsewhere}"), expected)
        shutil.rmtree(self.folder / "base-gpt2")
        for arguments in (["eval", "--checkpoint", run], ["generate", run, "--tokens", "3,4"]):
            self.assertIn(str(self.folder / "base-gpt2"), self.run_dltrain(*arguments, code=STORAGE).err)
        self.run_dltrain("export", run, self.folder / "adapters-alone")
        self.run_dltrain("export", run, self.folder / "merged", "--merge", "-s", f"model.init_from={elsewhere}")

    def test_adapters_are_a_remedy_where_a_trained_model_does_not_fit(self):
        wide = self.write("wide.yaml", f"""
model: {{type: gpt2, num_layers: 2, hidden_size: 512, num_heads: 4, max_positions: 64, vocab_size: 61, init_from: {self.base("gpt2")}}}
data: {{train: {DATA}}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 4, max_steps: 1}}
memory: {{budget: 64MiB}}
""")
        said = self.run_dltrain("plan", wide, code=MEMORY)
        self.assertIn("model.lora=16 → ", said.out + said.err)
        said = self.run_dltrain("plan", wide, "-s", "model.lora=16", code=None)
        self.assertIn("lora: 8 adapters of rank 16; 262144 parameters learn", said.out)
        self.assertNotIn("model.lora=16 →", said.out + said.err)
        said = self.run_dltrain("plan", wide, "-s", "model.init_from=null", code=MEMORY)
        self.assertNotIn("model.lora", said.out + said.err)

    def test_mistakes_are_named(self):
        for lora, words in (("{rank: 4, match: [c_atn]}", "'c_atn' matches no linear layer"),
                            ("{rank: 4, match: [wte]}", "'wte' matches no linear layer"),
                            ("{r: 4}", "did you mean 'rank'"),
                            ("{rank: 4, base: bf16}", "needs precision.compute: bf16"),
                            ("{rank: 4, also_train: [hat.*]}", "'hat.*' matches no parameter"),
                            (f"{{from: {self.folder}}}", "has no adapter_config.json"),
                            (f"{{from: {'f' * 300}}}", "has no adapter_config.json")):
            result = self.run_dltrain(self.configuration("gpt2", lora), "--dry-run", code=USAGE)
            self.assertIn(words, result.err)
        folder = self.folder / "ia3"
        shutil.copytree(GOLDEN / "gpt2", folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        for changes, words in (({"peft_type": "IA3"}, "peft_type"), ({"rank_pattern": {"c_attn": 2}}, "rank_pattern"),
                               ({"bias": "all"}, "bias"),
                               ({"init_lora_weights": "pissa_niter_4"}, "changes the weights of the model"), ({"target_modules": ".*c_attn"}, "target_modules")):
            (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
            result = self.run_dltrain(self.configuration("gpt2", f"{{from: {folder}}}"), "--dry-run", code=USAGE)
            self.assertIn(words, result.err)
        # A folder of adapters is no model.
        self.refused(USAGE, "plan", self.configuration("gpt2", "{rank: 4}"), "-s", f"model.from={folder}", says="it has adapters of peft")
        self.refused(STORAGE, "generate", folder, "--prompt", "a", says="has adapters of peft alone")


if __name__ == "__main__":
    support.main()
