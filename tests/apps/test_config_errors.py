"""What a person can get wrong: one clear message, the documented exit code, and nothing of an earlier run lost."""
import csv
import gzip
import json
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import unittest

import support
from support import (DATA, DEVICE, DIVERGED, INTERNAL, MEMORY, OK, RANK, SMALL, SOURCES, STORAGE, USAGE, checkpoints, safetensors, steps)


def digest(folder):
    """Contents of all files below, but of the lock."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file() and path.name != ".lock"}


class Configuration(support.DltrainTest):
    def test_an_unknown_key_is_shown_with_place_line_caret_and_nearest_name(self):
        text = "\n".join(["name: x", "model: {layers: [linear: 4]}", "data: {type: synthetic}",
                          "training: {global_batch_size: 4, max_steps: 2}", "", "",
                          "optimizer: {learning_rat: 1e-3, type: adamw}", ""])
        path = self.write("exp.yaml", text)
        result = self.run_dltrain(path, code=USAGE)
        self.assertEqual(result.err, f"{path}:7:13: error: unknown key 'learning_rat' in optimizer (type adamw); "
                         "did you mean 'learning_rate'?\n"
                         "    7 | optimizer: {learning_rat: 1e-3, type: adamw}\n"
                         "      |             ^~~~~~~~~~~~\n")
        self.assertEqual(result.out, "")

    def test_all_mistakes_of_a_file_are_told_at_once(self):
        text = (SMALL.replace("max_steps: 40", "max_steps: none").replace("seed: 7", "seed: -1")
                .replace("out_features: 24", "out_feature: 24").replace("type: adamw", "type: adamm")
                .replace("save_steps: 10", "save_step: 10"))
        path = self.small(text)
        result = self.refused(USAGE, path)
        for what in ("max_steps", "seed", "'out_feature'", "adamm", "'save_step'"):
            self.assertRegex(result.err, rf"{re.escape(str(path))}:\d+:\d+: error: .*{what}")
        self.assertIn("did you mean 'adam'", result.err)
        self.refused(USAGE, self.small(SMALL.replace("save_steps: 10", "save_steps: 10, save_steps: 20")),
                     says="duplicate key 'save_steps'")

    def test_wrong_types_overrides_and_files_are_refused(self):
        path = self.small()
        for override, says in (("optimizer.learning_rate=fast", "expected a number"), ("training.max_steps=1.5", "expected an integer"),
                               ("foo=1", "unknown key 'foo'"), ("model.layers[9].rate=0", "layers[9]"), ("nothing", "nothing"),
                               ("training.max_steps=0", "at least 1"), ("device=tpu", "tpu"),
                               ("generation.stop=['']", "an empty text would end every sample"),
                               ("name=a/b", "name of a folder"), ("parallelism.data=2", "2 data-parallel ranks")):
            self.refused(USAGE, path, "-s", override, "--output-dir", self.folder / "run", says=says)
        self.refused(USAGE, self.folder / "absent.yaml", says="absent.yaml")
        self.refused(USAGE, self.write("broken.yaml", "model: [1, 2\nname: x"), says="broken.yaml:")
        self.refused(USAGE, self.write("binary.yaml", bytes(range(256))), says="binary.yaml")
        self.refused(USAGE, "frobnicate", says="frobnicate")
        self.refused(USAGE, path, "--frobnicate", says="frobnicate")
        self.refused(USAGE, "train", says="configuration")
        self.assertFalse((self.folder / "run").exists())

    def test_an_override_of_all_splits_replaces_only_a_value_that_they_share(self):
        """Both splits of SMALL have keys of their own, as those of every resolved configuration."""
        path = self.small()
        self.refused(USAGE, path, "-s", "data.samples=50", says=["-s data.samples=50: error: data.samples has no effect",
                                                                "set data.train.samples, data.eval.samples"])
        self.assertEqual(self.run_dltrain(path, "--print-config", "-s", "data.classes=5").out.count("classes: 5\n"), 2)
        run = self.folder / "run"
        text = SMALL.replace("  train: {", "  eval_fraction: 0.2\n  train: {").replace("  eval: {", "  # eval: {")
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, "--max-steps", 2)
        said = self.refused(USAGE, "eval", "--checkpoint", run, "-s", "data.eval.samples=9", says="give data.eval a type and all its keys").err
        self.assertIn("such as data.eval.type=synthetic", said)
        self.assertIn("    samples: 90\n", self.run_dltrain("train", "--resume", run, "--print-config", "-s", "data.samples=90").out)
        self.refused(USAGE, "eval", run, "-s", "data.samples=9", "-s", "data.train.samples=8", says="set data.train.samples")

    def test_evaluation_without_an_eval_split_is_refused(self):
        path = self.small(SMALL.replace("  eval: {", "  # eval: {"))
        for override in ("eval_steps=5", "eval_epochs=1", "samples=3", "predictions=2"):
            key = override.split("=")[0]
            self.refused(USAGE, path, "-s", f"evaluation.{override}", "--output-dir", self.folder / "run",
                         says=f"evaluation.{key} needs an eval split (data.eval or data.eval_fraction)")

    def test_impossible_shapes_name_the_layer_and_both_shapes(self):
        layers = "[{type: linear, out_features: 4}, {type: conv2d, out_channels: 3, kernel_size: 3}]"
        result = self.refused(USAGE, self.small(), "-s", f"model.layers={layers}", "--output-dir", self.folder / "run",
                              says="model.layers[1] (conv2d)")
        self.assertIn("[samples, height, width, channels]", result.err)
        self.assertIn("[16, 4]", result.err)
        self.refused(USAGE, self.small(), "-s", "data.train.shape=[5, 5, 1]", "-s", "data.eval.shape=[5, 5, 1]", "-s",
                     "model.layers=[{type: max_pool2d, kernel_size: 7}, {type: flatten}, {type: linear, out_features: 4}]",
                     says="model.layers[0] (max_pool2d)")
        self.assertFalse((self.folder / "run").exists())

    def test_a_batch_that_ranks_cannot_share_is_refused_once(self):
        path = self.small()
        result = self.refused(USAGE, path, "--nproc-per-node", 3, "--output-dir", self.folder / "run",
                              says="a global batch of 16 cannot be shared evenly by 3 ranks")
        self.assertEqual(result.err.count("error:"), 1, str(result))
        result = self.refused(USAGE, path, "--nproc-per-node", 2, "-s", "parallelism.data=3", "--output-dir", self.folder / "run",
                              says="3 data-parallel ranks asked for, 2 started")
        self.assertEqual(result.err.count("error:"), 1, str(result))
        micro = self.write("micro.yaml", SMALL.replace("global_batch_size: 16", "micro_batch_size: 4"))
        result = self.refused(USAGE, micro, "--nproc-per-node", 2, "--output-dir", self.folder / "run", says="give global_batch_size (here 8")
        self.assertEqual(result.err.count("error:"), 1, str(result))
        self.refused(USAGE, path, "-s", "training.micro_batch_size=5", 
                     says="micro_batch_size 5 does not divide global_batch_size 16; micro_batch_size 4 would fit, or global_batch_size 15 or 20")
        self.refused(USAGE, path, "-s", "training.micro_batch_size=32",
                     says="micro_batch_size 32 does not divide global_batch_size 16; micro_batch_size 16 would fit, or global_batch_size 32\n")
        self.refused(USAGE, "plan", path, "--world", 2, "-s", "training.micro_batch_size=16",
                     says="micro_batch_size 16 does not divide a rank's share of the batch (16 / 2 ranks) 8; micro_batch_size 8 would fit, or global_batch_size 32\n")
        self.refused(USAGE, path, "-s", "training.gradient_accumulation_steps=2", "-s", "training.micro_batch_size=4",
                     says="contradicts")
        self.refused(USAGE, self.write("env.yaml", "name: ${N:-n}\ntraining: {max_steps: ${STEPS:-30}}\n"), says="${NAME} needs quotes here")

    def test_a_batch_that_does_not_divide_is_told_with_all_other_mistakes(self):
        text = (SMALL.replace("global_batch_size: 16", "global_batch_size: 63, micro_batch_size: 4").replace("save_steps: 10", "save_step: 10")
                .replace("seed: 7", "seed: -1"))
        said = self.refused(USAGE, self.small(text)).err
        for what in ("micro_batch_size 4 does not divide global_batch_size 63; micro_batch_size 3 would fit, or global_batch_size 60 or 64", "'save_step'", "seed must be"):
            self.assertIn(what, said)
        # In the section with the mistake too; what depends on the mistake is not judged.
        said = self.refused(USAGE, self.small(text.replace("max_steps: 40", "max_stepz: 40"))).err
        self.assertIn("micro_batch_size 4 does not divide", said)
        self.assertIn("did you mean 'max_steps'?", said)
        self.assertNotIn("needs max_steps", said)

    def test_a_change_of_type_keeps_keys_and_names_those_it_drops(self):
        path = self.small(SMALL.replace("weight_decay: 0.01", "weight_decay: 0.01, betas: [0.9, 0.99]"))
        result = self.run_dltrain(path, "-s", "optimizer.type=sgd", "--print-config")
        self.assertIn("learning_rate: 0.01", result.out)
        warning = "warning: optimizer.type=sgd instead of adamw drops the key betas of optimizer; type sgd has no such key\n"
        self.assertEqual(result.err, warning)
        # Once, also where the configuration is loaded for each check.
        self.assertEqual(self.run_dltrain("check", path, "-s", "optimizer.type=sgd", "--time", 1, code=None).err.count(warning), 1)

    def test_mistakes_in_built_in_models_name_the_key(self):
        path = self.write("gpt.yaml", "name: g\nmodel: {type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 4, max_positions: 8, dropout: 0}\n"
                          "data: {type: synthetic_tokens, vocab_size: 9, length: 8, samples: 20}\n"
                          "optimizer: {type: adamw, learning_rate: 1e-3}\ntraining: {global_batch_size: 2, max_steps: 2}\n")
        for override, says in (("data.length=9", ["gpt.yaml:2:", "layer wpe", "9 tokens are longer than max_positions 8", "data.sequence_length"]),
                               ("model.num_heads=3", ["-s model.num_heads=3: error", "layer h.0.attn", "must be a multiple of num_heads"]),
                               ("model.num_heads=four", ["expected an integer for model.num_heads"]),
                               ("model.dropout=2", ["model.dropout must be at least 0"]),
                               ("model.activation=gelo", ["unknown type 'gelo' in model.activation; did you mean 'gelu'?"])):
            result = self.refused(USAGE, "plan", path, "-s", override, says=says)
            self.assertNotIn("built in", result.err)
            self.assertEqual(result.err.count("error:"), 1, str(result))
        said = self.run_dltrain("plan", path, "-s", "model.type=llama", "-s", "model.num_kv_heads=2", "-s", "model.intermediate_size=8",
                                "-s", "model.head_dim=4").err
        self.assertIn("model.type=llama instead of gpt2 drops the key dropout of model", said)

    def test_a_missing_file_is_told_with_key_place_folders_and_nearest_name(self):
        (self.folder / "configs").mkdir()
        (self.folder / "configs" / "digits.csv").write_text("1,2,0\n3,4,1\n5,6,2\n")
        text = Data.CSV.replace("path: PATH", "path: digts.csv")
        path = self.write("configs/table.yaml", text)
        self.refused(DATA, "configs/table.yaml", cwd=self.folder,
                     says=["configs/table.yaml:4:25: error: data.path: No such file or folder: digts.csv",
                           f"(looked in configs and {os.path.realpath(self.folder)}); did you mean configs/digits.csv?"])
        path.write_text(text.replace("digts", "digits"))
        self.run_dltrain("plan", "configs/table.yaml", cwd=self.folder)
        self.refused(DATA, "configs/table.yaml", "-s", "data.path=digits.csv", cwd=self.folder, says="-s data.path=digits.csv: error")
        (self.folder / "models").mkdir()
        path.write_text(text.replace("{layers: [linear: 3]}", "{from: modls}"))
        self.refused(USAGE, "configs/table.yaml", cwd=self.folder,
                     says=["table.yaml:3:15: error: model.from: No such file or folder: modls (looked in configs and ", "did you mean models?"])
        # The same ending alone is no likeness.
        self.assertNotIn("did you mean", self.refused(USAGE, "configs/no.yaml", cwd=self.folder, says="configs/no.yaml").err)
        self.refused(USAGE, "configs/tabel.yaml", cwd=self.folder, says="did you mean configs/table.yaml?")

    def test_words_of_the_command_line_get_suggestions(self):
        path = self.small()
        for arguments, says in ((["trian", path], "did you mean dltrain train?"), (["evaluate", path], "did you mean dltrain eval?"),
                                ([path, "--max-step", 3], "did you mean --max-steps?"),
                                ([path, "--lr", "1e-3"], "set with -s optimizer.learning_rate=VALUE"),
                                ([path, "--batch-size", 8], "set with -s training.global_batch_size=VALUE"),
                                (["data", "inspct", path], "did you mean inspect?"), (["data"], "needs one of inspect"),
                                (["init", "mpl"], "did you mean mlp?"), ([path, "seed=3"], "a key is set with -s seed=3"),
                                ([path, "--device"], "--device needs a value"),
                                ([path, "--name", "--overwrite"], "--name: expected a value that does not begin with '-', not '--overwrite'\n"),
                                ([path, "--output-dir", "-q"], "--output-dir: expected a value that does not begin with '-', not '-q'\n"),
                                (["eval", path, "--split", "train"], "unknown argument --split\n"),
                                ([path, "-s", "sweep.parameters={model.layers[0].width: [8,16]}"], "a key or text with brackets needs quotes"),
                                (["eval", path, "--device", "gpu"], "--device gpu: error: unknown device 'gpu'"),
                                (["fit", path, "--memory", "200"], "--memory 200: error: '200' is neither"),
                                ([path, "-s", "evaluation.metrics=f1_macro"], "unknown metric 'f1_macro'; did you mean 'f1'?"),
                                ([path, "--seed", "99999999999999999999"], "is not a whole number from 0"),
                                (["generate", "x", "--seed", -1], "-1 is not a whole number from 0"),
                                (["generate", "x", "the cat"], "unknown argument the cat; a prompt is given with --prompt"),
                                (["eval", "--checkpoint", "best"], "Give runs/NAME/checkpoints/best"),
                                (["check"], "name an experiment file"), (["data", "inspect"], "name an experiment file")):
            self.refused(USAGE, *arguments, says=says)

    def test_a_run_folder_in_the_place_of_its_configuration_gets_a_hint(self):
        self.run_dltrain(self.small(), "-q", "--max-steps", 1, cwd=self.folder)
        for command in ("check", "plan", "profile"):
            self.refused(USAGE, command, "runs/small", cwd=self.folder, says="it is a folder; its configuration is runs/small/config.yaml")
        self.refused(USAGE, "eval", "runs/smal", cwd=self.folder, says="there is no runs/smal; did you mean runs/small?")
        self.refused(USAGE, "generate", "runs/smal", cwd=self.folder, says="there is no runs/smal; did you mean runs/small?")
        self.refused(USAGE, "generate", "runs/small", "--tokens", "1", cwd=self.folder, says="is not a language model")

    def test_a_layer_that_is_too_large_ends_with_the_code_of_memory(self):
        for command in ((), ("plan",)):
            self.refused(MEMORY, *command, self.small(), "-s", "model.layers[0].out_features=100000000", *(() if command else ("--output-dir", self.folder / "run")))

    def test_cuda_without_a_gpu_is_refused_and_auto_goes_on_with_the_cpu(self):
        path = self.small()
        devices = self.run_dltrain("list", "devices").out
        if re.search(r"^  cuda:0", devices, re.M):
            self.skipTest("this machine has a GPU")
        self.refused(DEVICE, path, "--device", "cuda", "--output-dir", self.folder / "run", says="cuda")
        result = self.run_dltrain(path, "--device", "auto", "--output-dir", self.folder / "run")
        # `version` reports that there is no GPU; runs do not.
        self.assertNotIn("CPU", result.err)
        self.assertRegex(self.run_dltrain("version").out, r"(?m)^cuda: (this program was built without|built with CUDA)")


class Data(support.DltrainTest):
    CSV = """
name: table
model: {layers: [linear: 3]}
data: {type: csv, path: PATH, target: last}
optimizer: {type: sgd, learning_rate: 0.1}
training: {global_batch_size: 2, max_steps: 2}
"""

    def refuse_table(self, name, content, says, extra=()):
        path = self.folder / name
        if content is not None:
            self.write(name, content)
        configuration = self.write("table.yaml", self.CSV.replace("PATH", str(path)))
        result = self.refused(DATA, configuration, "--output-dir", self.folder / "run", *extra, says=[str(path), *says])
        self.assertFalse((self.folder / "run").exists())
        return result

    def test_tables_that_cannot_be_used_are_refused_with_their_place(self):
        good = "1,2,0\n3,4,1\n5,6,2\n"
        self.refuse_table("absent.csv", None, ["No such file"])
        self.refuse_table("nan.csv", good + "7,nan,1\n", ["4", "nan"])
        self.refuse_table("inf.csv", good + "7,1e999,1\n", ["4"])
        self.refuse_table("text.csv", good + "7,seven,1\n", ["4", "seven"])
        self.refuse_table("short.csv", good + "7,1\n", ["4"])
        self.refuse_table("label.csv", good + "7,8,3\n", ["label 3", "3 outputs"])
        self.refuse_table("negative.csv", good + "7,8,-1\n", ["-1"])
        self.refuse_table("fraction.csv", good + "7,8,0.5\n", ["0.5"])
        self.refuse_table("empty.csv", "", [])
        whole = gzip.compress((good * 5000).encode())
        self.refuse_table("cut.csv.gz", whole[: len(whole) // 2], [])
        self.refuse_table("damaged.csv.gz", whole[:-6] + bytes(6), [])

    def test_tensor_files_that_cannot_be_used_are_refused(self):
        batches = (SOURCES / "tests/golden/mlp/batches.safetensors").read_bytes()
        golden = SOURCES / "tests/golden/mlp/relu-sgd.yaml"
        for name, content in (("cut", batches[:-100]), ("header", b"\xff" * 8 + batches[8:]), ("empty", b""), ("absent", None)):
            path = self.folder / f"{name}.safetensors"
            if content is not None:
                path.write_bytes(content)
            self.refused(DATA, golden, "-s", f"data.train.path={path}", "--output-dir", self.folder / "run", says=str(path))
        for name, start, says in (("x.npy", b"\x93NUMPY\x01\0", "is an array of NumPy (.npy)"), ("x.npz", b"PK\x03\x04", "is a zip archive")):
            path = self.folder / name
            path.write_bytes(start + bytes(100))
            self.refused(DATA, golden, "-s", f"data.train.path={path}", "--output-dir", self.folder / "run",
                         says=[str(path), says, "a safetensors file is needed"])
        table = self.write("table.csv", "radius,class\n1,yes\n2,no\n")
        self.refused(DATA, golden, "-s", f"data.train.path={table}", "--output-dir", self.folder / "run",
                     says="not a safetensors file: it begins with the text 'radius,class'")
        result = self.refused(DATA, golden, "-s", "data.train.inputs=z", "--output-dir", self.folder / "run")
        self.assertIn("z", result.err)


class Arrays(support.DltrainTest):
    """.npy files in data.inputs and data.targets are paths as all others."""
    def array(self, name, kind, shape, values):
        header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        data = struct.pack(f"<{len(values)}{ {'f4': 'f', 'i8': 'q'}[kind]}", *values)
        return self.write(name, b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data)

    def arrays(self, name, rows):
        self.array(f"{name}/x.npy", "f4", (rows, 3), [(i % 7) / 7 for i in range(3 * rows)])
        return self.array(f"{name}/y.npy", "i8", (rows,), [i % 2 for i in range(rows)]).parent

    def test_arrays_are_found_beside_the_configuration_and_stay_found(self):
        work = self.arrays("work", 40)
        exp = self.write("work/exp.yaml", "name: t\nmodel: {layers: [{linear: 2}]}\ndata: {type: tensors, inputs: x.npy, targets: y.npy, "
                         "eval_fraction: 0.2}\noptimizer: {type: sgd, learning_rate: 0.1}\ntraining: {global_batch_size: 4, max_steps: 4}\n")
        run = self.folder / "run"
        self.run_dltrain(exp, "-q", "--output-dir", run, cwd=self.folder)
        self.assertIn(f"{work}/x.npy", (run / "config.yaml").read_text())
        for folder in (self.folder, "/"):
            self.run_dltrain("eval", run, cwd=folder)
            self.run_dltrain("-q", "--resume", run, "--output-dir", run, "--max-steps", 5, cwd=folder)
        # A moved folder of data is the same data.
        moved = self.folder / "moved"
        work.rename(moved)
        data = ("-s", f"data.train.inputs={moved}/x.npy", "-s", f"data.train.targets={moved}/y.npy")
        self.run_dltrain("-q", "--resume", run, "--output-dir", run, "--max-steps", 6, *data)
        self.refused(DATA, moved / "exp.yaml", "-s", "data.inputs=z.npy", "--output-dir", run, "--overwrite",
                     says=["No such file or folder: z.npy", "-s data.inputs=z.npy"])
        (moved / "x.npy").rename(moved / "xx.npy")
        self.refused(DATA, moved / "exp.yaml", "--output-dir", run, "--overwrite",
                     says=[f"{moved}/exp.yaml:3", "inputs: No such file or folder: x.npy (looked in", f"did you mean {moved}/xx.npy?"])

    def test_predict_needs_no_targets_of_any_shape(self):
        draw = [(i * 37 % 11) / 11 for i in range(40 * 6)]
        text = """
name: t
model: {layers: [LAYERS]}
data: {type: tensors, path: DATA, inputs: x, targets: y}
loss: {type: LOSS}
optimizer: {type: sgd, learning_rate: 0.1}
training: {global_batch_size: 4, max_steps: 2}
"""
        for loss, layers, targets, columns in (("mse", "{linear: 3}", ("F32", [40, 3], draw[:120]), 3),
                                               ("mse", "{linear: 1}", ("F32", [40], draw[:40]), 1),
                                               ("binary_cross_entropy", "{linear: 1}", ("I64", [40], [0, 1] * 20), 1),
                                               ("cross_entropy", "{linear: 2}", ("F32", [40, 2], [1, 0] * 40), 2)):
            name = f"{loss}-{columns}"
            inputs = {"x": ("F32", [40, 6], draw)}
            data = support.save_safetensors(self.folder / f"{name}.safetensors", {**inputs, "y": targets})
            new = support.save_safetensors(self.folder / f"{name}-new.safetensors", inputs)
            config = self.write(f"{name}.yaml", text.replace("LAYERS", layers).replace("DATA", str(data)).replace("LOSS", loss))
            run = self.folder / name
            self.run_dltrain(config, "-q", "--output-dir", run)
            rows = []
            for file in (data, new):
                self.run_dltrain("predict", run, file, "-o", self.folder / "out.jsonl")
                rows.append([json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()])
            with self.subTest(name):
                self.assertEqual(len(rows[1]), 40)
                self.assertEqual([{key: value for key, value in row.items() if key not in ("target", "source")} for row in rows[0]],
                                 [{key: value for key, value in row.items() if key != "source"} for row in rows[1]])

    def test_eval_and_predict_take_a_new_array(self):
        self.arrays("work", 40)
        new = self.arrays("new", 6)
        text = "name: t\nmodel: {layers: [{linear: 2}]}\ndata: {type: tensors, inputs: INPUTS, targets: y.npy, eval_fraction: 0.2}\n" \
            "optimizer: {type: sgd, learning_rate: 0.1}\ntraining: {global_batch_size: 4, max_steps: 4}\n"
        run, out = self.folder / "run", self.folder / "out.csv"
        self.run_dltrain(self.write("work/exp.yaml", text.replace("INPUTS", "x.npy")), "-q", "--output-dir", run)
        targets = ("-s", f"data.targets={new}/y.npy")
        self.assertIn("6 samples", self.run_dltrain("eval", run, new / "x.npy", *targets).out)
        self.run_dltrain("predict", run, new / "x.npy", *targets, "-o", out)
        self.assertEqual(len(out.read_text().splitlines()), 7)
        self.refused(USAGE, "eval", run, new / "x.npy", says=["x.npy has inputs only", "-s data.targets=FILE.npy"])
        with_targets = [(row["class"], row["probability"]) for row in csv.DictReader(out.open())]
        self.run_dltrain("predict", run, new / "x.npy", "-o", out)
        without = list(csv.DictReader(out.open()))
        self.assertNotIn("target", without[0])
        self.assertEqual([(row["class"], row["probability"]) for row in without], with_targets)
        self.refused(USAGE, "eval", run, new / "x.npy", "-s", "data.targets=none", says="has no targets")
        self.refused(DATA, "predict", run, new / "z.npy", "-o", out, says="there is no")
        self.refused(USAGE, "predict", run, self.write("other.csv", "1,2,3\n"), "-o", out, says="other data")


class Advice(support.DltrainTest):
    def test_keys_without_effect_are_told_at_the_start(self):
        path = self.small()
        for i, (extra, says) in enumerate((
                (("-s", "lr_scheduler.warmup_steps=50"), "warmup_steps 50 is more than the run's 4 steps: the learning rate reaches 0.08"),
                (("-s", "lr_scheduler={type: step, step_size: 30}"), "the first fall of the learning rate is after 30 steps"),
                (("-s", "optimizer={type: lars, learning_rate: 0.1}"), "this is SGD; always_adapt: true scales all"),
                (("-s", "optimizer={type: lamb, learning_rate: 0.1, weight_decay: 0}"), "this is Adam; always_adapt: true scales all"))):
            short = ("--max-steps", 4, *extra)
            self.assertIn(says, self.run_dltrain(path, *short, "--output-dir", self.folder / str(i)).err)
            self.assertIn(says, self.run_dltrain("plan", path, *short).out)
        for extra, says in ((("-s", "training.global_batch_size=128"), "training.global_batch_size 128 is more than the 100 training samples"),
                            (("--max-steps", 4506), "training.max_steps 4506 with batches of 16 means 721 epochs of 100 samples")):
            self.assertIn("warning: " + says, self.run_dltrain("plan", path, *extra).out)
        said = self.run_dltrain("plan", path, "--max-steps", 40, "-s",
                                "optimizer={type: lamb, learning_rate: 0.1, weight_decay: 0, always_adapt: true}").out
        self.assertNotIn("warning", said)
        self.assertRegex(said, r"step: [0-9.]+ [kM]?FLOP,")
        self.assertRegex(self.run_dltrain("plan", path, "-s", "model.layers=[linear: 4]", "-s", "training.global_batch_size=1").out,
                         r"step: [0-9]+ FLOP,")


class Weights(support.DltrainTest):
    def test_weights_of_another_model_are_refused_by_name_and_shape(self):
        weights = SOURCES / "tests/golden/mlp/weights.safetensors"
        path = self.small()
        result = self.refused(STORAGE, path, "-s", f"model.init_from={weights}", "--output-dir", self.folder / "run", says=str(weights))
        self.assertIn("layers.0.weight", result.err)
        self.assertIn("[32, 20]", result.err)
        self.assertIn("[24, 12]", result.err)
        golden = SOURCES / "tests/golden/mlp/relu-sgd.yaml"
        layers = "[{type: linear, out_features: 32}, {type: linear, out_features: 32}]"
        result = self.refused(STORAGE, golden, "-s", f"model.layers={layers}", "--output-dir", self.folder / "run", says="strict: false")
        self.assertIn("lacks layers.1.weight", result.err)
        self.refused(STORAGE, golden, "-s", f"model.init_from={self.folder / 'absent'}", "--output-dir", self.folder / "run", says="absent")

    def test_weights_come_from_runs_checkpoints_and_files(self):
        path = self.small()
        run = self.folder / "run"
        self.run_dltrain(path, "-q", "--output-dir", run, "--max-steps", 20)
        model = safetensors(run / "checkpoints" / "step-000020" / "model.safetensors")
        for i, place in enumerate(("", "checkpoints", "checkpoints/latest", "checkpoints/best", "checkpoints/latest/model.safetensors")):
            again = self.folder / f"again{i}"
            said = self.run_dltrain(path, "--output-dir", again, "--max-steps", 1, "-s", "optimizer.learning_rate=0",
                                    "-s", f"model.init_from={run / place}").err
            self.assertIn("4 tensors loaded", said)
            if "best" not in place:
                self.assertEqual(safetensors(again / "checkpoints" / "latest" / "model.safetensors"), model)
        (self.folder / "nothing").mkdir()
        self.refused(STORAGE, path, "-s", f"model.init_from={self.folder / 'nothing'}", "--output-dir", self.folder / "b", says="nothing")
        # A prefix that nothing has: that is no transfer but a mistake.
        renames = ("-s", "model.rename={'^layers': trunk}", "-s", "model.strict=false", "-s", f"model.init_from={run}")
        self.refused(STORAGE, path, *renames, "--output-dir", self.folder / "c",
                     says=["none of its tensors is a parameter of the model", "trunk.0.weight", "the model has layers.0.weight"])
        self.assertFalse((self.folder / "c" / "metrics.jsonl").exists())

    def test_gaps_are_allowed_and_listed_when_not_strict(self):
        golden = SOURCES / "tests/golden/mlp/relu-sgd.yaml"
        layers = "[{type: linear, out_features: 32}, {type: relu}, {type: linear, out_features: 10}]"
        result = self.refused(STORAGE, golden, "-s", f"model.layers={layers}", "--output-dir", self.folder / "run")
        renames = "{'layers\\.2': layers.9, 'layers\\.4': layers.2}"
        result = self.run_dltrain(golden, "-s", f"model.layers={layers}", "-s", "model.strict=false", "-s", f"model.rename={renames}",
                                  "--output-dir", self.folder / "run")
        self.assertIn("not in the model: layers.9.weight", result.err)
        wide = layers.replace("out_features: 10", "out_features: 12")
        said = self.run_dltrain(golden, "-s", f"model.layers={wide}", "-s", "model.strict=false", "-s", f"model.rename={renames}",
                                "--output-dir", self.folder / "wide").err
        self.assertIn("layers.2.weight has shape [10, 32] in the file and [12, 32] in the model: initialised again", said)
        self.assertNotIn("not in the file", said)

    def test_a_loss_that_is_not_finite_ends_with_code_4_and_names_the_op(self):
        path = self.small(SMALL.replace("type: adamw, learning_rate: 1.0e-2, weight_decay: 0.01", "type: sgd, learning_rate: 1.0e+30")
                          .replace(", max_grad_norm: 1.0", "").replace("warmup_steps: 5", "warmup_steps: 0"))
        run = self.folder / "run"
        result = self.refused(DIVERGED, path, "--output-dir", run, "--result", self.folder / "result.json", says="first seen in")
        self.assertRegex(result.err, r"first seen in .*(matmul|layers\.|softmax)")
        self.assertEqual(result.err.count("is not finite"), 1, str(result))
        for file in (run / "summary.json", self.folder / "result.json"):
            summary = json.loads(file.read_text())
            self.assertEqual(summary["exit_code"], DIVERGED)
            self.assertIn("not finite", summary["message"])
        # One of several ranks reports the error, and the launcher does not repeat it.
        result = self.refused(DIVERGED, path, "--output-dir", self.folder / "ranks", "--nproc-per-node", 2, says="(on rank 0)")
        self.assertEqual(result.err.count("is not finite"), 1, str(result))
        self.assertIn("(on rank 0)", json.loads((self.folder / "ranks/summary.json").read_text())["message"])
        result = self.run_dltrain(path, "--output-dir", run, "--overwrite", "-s", "training.on_non_finite=skip")
        self.assertIn("skipped", result.err)


class RunFolder(support.DltrainTest):
    def setUp(self):
        super().setUp()
        self.configuration = self.small()
        self.run_folder = self.folder / "run"

    def first_run(self, *arguments):
        self.run_dltrain(self.configuration, "-q", "--output-dir", self.run_folder, *arguments)

    def test_a_folder_that_holds_a_run_is_refused_and_kept(self):
        self.first_run()
        before = digest(self.run_folder)
        arguments = (self.configuration, "--output-dir", self.run_folder)
        self.refused(USAGE, *arguments, says="--resume auto")
        self.refused(USAGE, *arguments, "--nproc-per-node", 2, says="already contains a run")
        # A mistake that is found late does not cost the run that was to be overwritten or gone on with.
        for code, extra in ((STORAGE, ("-s", "model.init_from=/nowhere.safetensors")), (USAGE, ("-s", "data.train.shape=[0]")),
                            (DATA, ("-s", "data.train.classes=9"))):
            self.refused(code, *arguments, "--overwrite", *extra)
            if code != STORAGE:
                self.refused(code, *arguments, "--resume", "auto", *extra)
        # A run that goes on has its weights in the checkpoint: the first ones may be gone.
        self.assertIn("the run is complete (40 steps)", self.run_dltrain(*arguments, "--resume", "auto", "-s",
                                                                "model.init_from=/nowhere.safetensors").err)
        self.assertEqual(digest(self.run_folder), before)
        self.run_dltrain(*arguments, "-q", "--overwrite", "--max-steps", 3)
        self.assertEqual(len(steps(self.run_folder)), 3)
        self.assertEqual(checkpoints(self.run_folder), ["step-000003"])

    def test_a_folder_without_a_list_of_files_is_not_overwritten(self):
        self.write("run/config.yaml", "name: foreign\n")
        self.write("run/checkpoints/step-000001/state.json", "{}")
        self.refused(USAGE, self.configuration, "--output-dir", self.run_folder, "--overwrite",
                     says="has no list of the files that dltrain has written (.dltrain in a run, checksums.json in a model that it exported)")

    def test_another_configuration_does_not_go_on_with_a_run(self):
        self.first_run()
        before = digest(self.run_folder)
        for extra, says, code in (
                (("--seed", "8"), "seed 7", USAGE), (("-s", "training.global_batch_size=8"), "training.global_batch_size: 16 -> 8", USAGE),
                (("-s", "data.train.samples=99"), "samples: 100 -> 99", USAGE),
                (("-s", "model.layers[0].out_features=25"), "model.layers[0].out_features: 24 -> 25", USAGE),
                (("--allow-changes", "-s", "model.layers[0].out_features=25"), "other names or shapes than those of this model", USAGE),
                (("-s", "optimizer={type: sgd, learning_rate: 0.1, momentum: 0.9}"), "was saved with the optimizer adamw", USAGE),
                (("-s", "training.ema={}"), "was saved without training.ema", USAGE),
                (("-s", "training.freeze=layers.0.*"), "the state of an optimizer with other settings", USAGE)):
            result = self.refused(code, self.configuration, "--output-dir", self.run_folder, "--resume", "auto", *extra, says=says)
            self.assertEqual(digest(self.run_folder), before, str(result))

    def test_a_second_process_on_a_run_folder_is_refused_while_the_first_goes_on(self):
        process = self.start(self.configuration, "--output-dir", self.run_folder, "--max-steps", 1_000_000, "-s",
                             "logging.logging_steps=1000", "-s", "checkpoint.save_steps=1000000")
        self.wait_for(lambda: (self.run_folder / "metrics.jsonl").exists(), "the first run")
        for extra in ((), ("--resume", "auto"), ("--overwrite",)):
            self.refused(USAGE, self.configuration, "--output-dir", self.run_folder, *extra, says=f"in use by process {process.pid}")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process).code, support.STOPPED)

    def damage(self, file, at=-5):
        content = bytearray(file.read_bytes())
        content[at] ^= 0x10
        file.write_bytes(content)

    def test_a_damaged_checkpoint_is_passed_over_with_a_warning(self):
        self.first_run()
        self.run_dltrain(self.configuration, "-q", "--output-dir", self.folder / "whole")
        for i, name in enumerate(("model.safetensors", "optimizer.safetensors", "state.json")):
            newest = self.run_folder / "checkpoints" / f"step-{40 - 10 * i:06}"
            self.damage(newest / name)
            self.refused(STORAGE, self.configuration, "--output-dir", self.folder / "x", "--resume", newest, says=str(newest))
            self.refused(STORAGE, "eval", self.configuration, "--checkpoint", newest, says=name)
            if i == 2:  # the last of the three that are kept
                self.refused(STORAGE, self.configuration, "--output-dir", self.run_folder, "--resume", "auto", says="is valid")
                self.damage(newest / name)
                (newest / name).unlink()
                self.refused(STORAGE, self.configuration, "--output-dir", self.run_folder, "--resume", "auto", says="is valid")
                return
            result = self.run_dltrain(self.configuration, "--output-dir", self.run_folder, "--resume", "auto")
            self.assertIn("warning: skipped", result.err)
            self.assertIn(f"resumed from {self.run_folder}/checkpoints/step-{30 - 10 * i:06}", result.err)
            self.assert_same_state(self.run_folder, self.folder / "whole")
            for later in checkpoints(self.run_folder):
                if int(later[5:]) > 30 - 10 * i:
                    self.damage(self.run_folder / "checkpoints" / later / name)

    def test_an_unwritable_place_for_the_run_is_refused(self):
        blocker = self.write("file", "x")
        self.refused(STORAGE, self.configuration, "--output-dir", blocker, says="is not a folder")
        self.refused(STORAGE, self.configuration, "--output-dir", blocker / "run", says=str(blocker))
        self.refused(STORAGE, self.configuration, "--output-dir", "/proc/dltrain-run", says="/proc/dltrain-run")
        self.refused(STORAGE, self.configuration, "-q", "--output-dir", self.run_folder, "--result", blocker / "result.json",
                     says=str(blocker))

    def test_a_checkpoint_that_finds_no_space_keeps_the_one_before(self):
        """The limit on the size of a file stands for a full disk: both fail in write()."""
        big = self.small(SMALL.replace("out_features: 24", "out_features: 4000").replace("type: cosine", "type: constant"))
        self.run_dltrain(big, "-q", "--output-dir", self.run_folder, "--max-steps", 10)
        before = digest(self.run_folder / "checkpoints" / "step-000010")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        result = self.refused(STORAGE, big, "--output-dir", self.run_folder, "--resume", "auto", says="step-000020", preexec_fn=limit)
        self.assertEqual(digest(self.run_folder / "checkpoints" / "step-000010"), before)
        self.assertEqual(sorted(os.listdir(self.run_folder / "checkpoints")), ["best", "latest", "step-000010"], str(result))
        self.run_dltrain(big, "-q", "--output-dir", self.run_folder, "--resume", "auto")
        self.run_dltrain(big, "-q", "--output-dir", self.folder / "whole")
        self.assert_same_state(self.run_folder, self.folder / "whole")

    def test_a_full_disk_keeps_the_checkpoint_before(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
        if mount.returncode != 0:
            self.skipTest("no right to mount a small tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)])
        big = self.small(SMALL.replace("out_features: 24", "out_features: 2000"))  # 0.4 MB a checkpoint
        run = disk / "run"
        result = self.refused(STORAGE, big, "--output-dir", run, says="No space left")
        left = checkpoints(run)
        self.assertTrue(left)
        self.run_dltrain("eval", big, "--checkpoint", run / "checkpoints" / "latest")
        self.run_dltrain(big, "-q", "--output-dir", run, "--resume", "auto", "-s", "checkpoint.save_total_limit=1", "--max-steps",
                         int(left[-1][5:]))

    def test_an_older_checkpoint_named_discards_what_came_after_it_with_overwrite_alone(self):
        self.configuration = self.small(SMALL.replace("type: cosine", "type: constant"))
        self.first_run()
        before = digest(self.run_folder / "checkpoints" / "step-000040")
        older = self.run_folder / "checkpoints" / "step-000020"
        resume = (self.configuration, "--output-dir", self.run_folder, "--resume", older, "--max-steps", 21)
        kept = digest(self.run_folder)
        for extra in ((), ("--dry-run",), ("--nproc-per-node", 2)):
            self.refused(USAGE, *resume, *extra, says=["up to step 40", "--overwrite", "--name", "--output-dir"])
            self.assertEqual(digest(self.run_folder), kept)
        self.run_dltrain(*resume, "-q", "--overwrite")
        self.assertEqual(checkpoints(self.run_folder), ["step-000020", "step-000021"])
        self.assertEqual([line["step"] for line in steps(self.run_folder)], list(range(1, 22)))
        self.run_dltrain(self.configuration, "-q", "--output-dir", self.run_folder, "--resume", "auto")
        after = digest(self.run_folder / "checkpoints" / "step-000040")
        self.assertEqual(before["model.safetensors"], after["model.safetensors"])

    def test_a_checkpoint_of_another_folder_does_not_mix_with_the_run_that_is_there(self):
        self.first_run()
        other = self.folder / "other"
        self.run_dltrain(self.configuration, "-q", "--output-dir", other, "--max-steps", 5)
        before = digest(self.run_folder)
        self.refused(USAGE, self.configuration, "--output-dir", self.run_folder, "--resume", other, says="already contains a run")
        self.refused(STORAGE, self.configuration, "--output-dir", self.folder / "new", "--resume", self.folder / "absent", says="absent")
        self.assertEqual(digest(self.run_folder), before)


class Ranks(support.DltrainTest):
    def test_a_killed_rank_ends_the_others_and_is_named(self):
        configuration = self.small()
        run = self.folder / "run"
        process = self.start(configuration, "--output-dir", run, "--max-steps", 10_000_000, "-s", "logging.logging_steps=1000",
                             "-s", "checkpoint.save_steps=50000", "--nproc-per-node", 2)
        self.wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, "the first step")
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.assertEqual(len(children), 2)
        os.kill(int(children[1]), signal.SIGKILL)
        result = self.end(process)
        self.assertEqual(result.code, RANK, str(result))
        self.assertIn(f"rank 1 (process {children[1]}) was killed by signal 9", result.err)
        for child in children:
            self.assertFalse(pathlib.Path(f"/proc/{child}").exists())


if __name__ == "__main__":
    support.main()
