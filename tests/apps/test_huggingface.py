"""Folders of Hugging Face models, without transformers: model.from, import, export, and what is wrong with folders.
The folders are those of scripts/record_golden_huggingface.py; logits are compared in tests/run/huggingface.cpp."""
import json
import re
import shutil
import struct

import support
from support import DATA, DIVERGED, OK, SOURCES, STORAGE, USAGE, safetensors, steps

GOLDEN = SOURCES / "tests" / "golden" / "huggingface"
# Keys that transformers writes and the export omits: they change no result, or have the default of transformers.
SILENT = {"transformers_version", "dtype", "initializer_range", "use_cache", "layer_types", "pretraining_tp", "is_decoder",
          "add_cross_attention", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
          "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
          "max_window_layers", "bos_token_id", "eos_token_id", "pad_token_id", "rope_parameters", "sliding_window",
          "tie_word_embeddings"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def weights(folder):
    """The tensors of all files of a folder."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        out.update(safetensors(path))
    return out


class HuggingFace(support.DltrainTest):
    def configuration(self, folder, keys="", name="gpt2", more="", data=None):
        inputs = "{input: input, attention_mask: attention_mask}" if name.startswith("bert") else "input"
        split = f"{{type: tensors, path: {GOLDEN / name / 'logits.safetensors'}, inputs: {inputs}, targets: target}}"
        return self.write(f"{name}.yaml", f"""
model: {{from: {folder}{keys}}}
data: {data or f"{{train: {split}, eval: {split}}}"}
optimizer: {{type: adamw, learning_rate: 1.0e-3}}
training: {{global_batch_size: 2, max_steps: 2{more}}}
logging: {{logging_steps: 1}}
""")

    def copy(self, name="gpt2"):
        folder = self.folder / f"copy-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / name, folder)
        return folder

    def change_config(self, folder, **keys):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config.update(keys)
        path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))

    def evaluated(self, run, *arguments):
        result = self.folder / "result.json"
        self.run_dltrain("eval", "--checkpoint", run, "--result", result, *arguments)
        return json.loads(result.read_text())["eval_loss"]

    def test_every_family_goes_out_and_comes_back(self):
        for golden in sorted(GOLDEN.iterdir()):
            name = golden.name
            run, out = self.folder / f"run-{name}", self.folder / f"out-{name}"
            self.run_dltrain(self.configuration(golden, "", name), "-q", "--output-dir", run)
            said = self.run_dltrain("export", run, out, "--max-shard-size", "9KB").out
            self.assertIn("no tokenizer", said)
            # Names, shapes and configuration are those of transformers, whatever form the original had.
            original, exported = weights(golden), weights(out)
            prefix = "transformer." if name == "gpt2_base" else ""
            self.assertEqual({prefix + key: value[1] for key, value in original.items()},
                             {key: value[1] for key, value in exported.items()})
            config, again = (json.loads((f / "config.json").read_text()) for f in (golden, out))
            for key in set(config) - SILENT:
                if key == "architectures" and name == "gpt2_base":
                    continue
                expected = config[key]
                if key in ("n_inner", "classifier_dropout") and expected is None:
                    continue
                if key == "intermediate_size" and name == "qwen3_moe":  # of layers without experts, of which there are none
                    continue
                self.assertEqual(again[key], expected, f"{name}: {key}")
            index = json.loads((out / "model.safetensors.index.json").read_text())
            self.assertEqual(set(index["weight_map"]), set(exported))
            self.assertTrue(all(size < 9000 + 4000 for size in (f.stat().st_size for f in out.glob("model-*"))))
            # The exported model is the trained one.
            loss = self.evaluated(run)
            back = self.folder / f"back-{name}"
            self.run_dltrain(self.configuration(out, "", name), "-q", "--output-dir", back, "-s", "optimizer.learning_rate=0")
            self.assertAlmostEqual(self.evaluated(back), loss, delta=1e-6 * loss)

    def test_the_weights_of_an_evaluated_folder_cannot_be_others(self):
        text = self.write("text.txt", "to be or not to be " * 200)
        self.refused(USAGE, "eval", GOLDEN / "llama", text, "-s", f"model.from={GOLDEN / 'qwen2'}", says="names other weights than those of")

    def test_import_makes_a_folder_to_start_from(self):
        out = self.folder / "start"
        self.run_dltrain("import", GOLDEN / "llama", out)
        before, after = weights(GOLDEN / "llama"), weights(out)
        self.assertEqual(before, after)
        self.assertEqual(len(list(out.glob("*.safetensors"))), 1)
        text = self.write("text.txt", "".join(chr(97 + i * i % 20) for i in range(4000)))
        self.run_dltrain("train", out / "config.yaml", "-q", "--output-dir", self.folder / "run", "-s", f"data.path={text}", "-s",
                         "data.tokenizer={type: char}", "-s", "data.sequence_length=16", "--max-steps", "2")
        self.assertEqual([line["step"] for line in steps(self.folder / "run")], [1, 2])

    def test_an_imported_folder_can_be_moved(self):
        folder, out = self.copy(), self.folder / "out"
        vocabulary = "".join(f"{word}\n" for word in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "to", "be", "or", "not"])
        (folder / "vocab.txt").write_text(vocabulary)
        self.run_dltrain("import", folder, out)
        self.assertNotIn(str(self.folder), (out / "config.yaml").read_text().split("\n", 1)[1])
        moved = self.folder / "elsewhere"
        out.rename(moved)
        text = self.write("text.txt", "to be or not to be " * 200)
        self.run_dltrain("train", moved / "config.yaml", "-q", "--output-dir", self.folder / "run", "-s", f"data.path={text}",
                         "--max-steps", "1")
        self.assertIn(str(moved), (self.folder / "run" / "config.yaml").read_text())

    def test_an_import_keeps_the_format_of_the_weights(self):
        folder = self.copy()
        tensors = weights(folder)
        for dtype, name in (("bf16", "BF16"), ("f16", "F16")):
            narrow = self.folder / f"narrow-{dtype}"
            self.run_dltrain("import", folder, narrow, "--dtype", dtype)
            out = self.folder / f"out-{dtype}"
            self.assertIn(f"MB of {dtype}", self.run_dltrain("import", narrow, out).out)
            self.assertEqual({value[0] for value in weights(out).values()}, {name})
            self.assertEqual(weights(out), weights(narrow))
            wide = self.folder / f"wide-{dtype}"
            self.run_dltrain("import", narrow, wide, "--dtype", "f32")
            self.assertEqual({value[0] for value in weights(wide).values()}, {"F32"})
            # Among several formats, the one that contains all tensors is read.
            mixed = dict(weights(narrow))
            mixed["transformer.ln_f.bias"] = tensors["transformer.ln_f.bias"]
            write_safetensors(narrow / "model.safetensors", mixed)
            (narrow / "checksums.json").unlink()
            self.run_dltrain("import", narrow, out, "--overwrite")
            self.assertEqual({value[0] for value in weights(out).values()}, {"F32"})

    def test_a_tokenizer_that_is_not_read_is_copied(self):
        folder, out = self.copy(), self.folder / "out"
        (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
        said = self.run_dltrain("import", folder, out).out
        self.assertIn("the tokenizer is copied, but cannot be used here", said)
        self.assertIn("a model of type Unigram", said)
        self.assert_same_file(folder / "tokenizer.json", out / "tokenizer.json")
        self.assertIn("path: TOKENIZER", (out / "config.yaml").read_text())

    def test_a_run_from_a_folder_goes_on_without_it(self):
        folder, run = self.copy(), self.folder / "run"
        configuration = self.configuration(folder)
        self.run_dltrain(configuration, "-q", "--output-dir", run, "-s", "checkpoint.save_steps=1")
        resolved = (run / "config.yaml").read_text()
        self.assertIn("max_positions: 16", resolved)
        self.assertIn("vocab_size: 31", resolved)
        loss = self.evaluated(run)
        shutil.rmtree(folder)
        self.assertEqual(self.evaluated(run), loss)
        out = self.folder / "out"
        self.run_dltrain("export", run / "checkpoints" / "step-000001", out)
        self.assertTrue((out / "model.safetensors").is_file())

    def test_keys_beside_from_change_the_model(self):
        self.run_dltrain(self.configuration(GOLDEN / "gpt2", ", type: null"), "--dry-run")
        labels = f"{{type: tensors, path: {GOLDEN / 'bert_classifier' / 'logits.safetensors'}, inputs: input, targets: target}}"
        configuration = self.configuration(GOLDEN / "bert", ", type: bert_classifier, num_classes: 5, strict: false, dropout: 0",
                                           "bert", data=labels)
        log = self.run_dltrain(configuration, "--output-dir", self.folder / "run").err
        self.assertIn("not in the file: classifier.weight [5, 16]", log)
        self.assertIn("not in the model: cls.predictions.bias [31]", log)

    def test_eval_and_predict_take_a_folder_and_a_text(self):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "to", "be", "or", "not"]
        text = self.write("text.txt", "to be or not to be " * 20)
        result, out = self.folder / "result.json", self.folder / "out.csv"
        for name, keys in (("gpt2", ""), ("bert", ", mlm_probability: 0.15")):
            folder = self.copy(name)
            (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
            self.run_dltrain("eval", folder, text, "--result", result)
            found = json.loads(result.read_text())
            data = f"{{type: text, path: {text}, tokenizer: {{type: wordpiece, path: {folder}}}, sequence_length: 16{keys}}}"
            config = self.configuration(folder, "", name, data=f"{{train: {data}, eval: {data}}}")
            self.run_dltrain("eval", config, "--checkpoint", folder, "--result", result)
            again = json.loads(result.read_text())
            self.assertEqual(again.keys(), found.keys())
            for key, value in again.items():  # the batches differ, and with them the last bits on some processors
                if isinstance(value, float):
                    self.assertAlmostEqual(value, found[key], delta=1e-6 * abs(value))
                else:
                    self.assertEqual(value, found[key])
            self.assertEqual(found["samples"], 7)
            self.assertIn("7 samples of", self.run_dltrain("predict", folder, text, "-o", out).out)
            rows = len(out.read_text().splitlines()) - 1
            if name == "gpt2":
                self.assertEqual(rows, 7 * 16)
            else:  # the masked tokens
                self.assertTrue(0 < rows < 7 * 16 / 3, rows)
            self.assertIn("14 samples", self.run_dltrain("eval", folder, text, "-s", "data.sequence_length=8").out)
            self.refused(USAGE, "eval", folder, says="give a file of text or a folder of images after it")
            self.refused(USAGE, "eval", folder, text, "-s", "layers=1", says="unknown key 'layers'")
        bare = self.copy("llama")
        self.refused(USAGE, "eval", bare, text, says="missing key 'tokenizer'")
        self.refused(USAGE, "eval", bare, text, "-s", "model.num_layers=x", says="num_layers")
        bert = self.copy("bert")
        said = self.refused(USAGE, "generate", bert, "--tokens", 1, says=f"{bert}: error: layer ").err
        self.assertIn("cannot generate text", said)
        self.assertNotIn("model.from", said)

    def test_berts_padding_may_be_any_token(self):
        def words(folder):
            dtype, shape, content = weights(folder)["bert.embeddings.word_embeddings.weight"]
            return [content[64 * row:64 * row + 64] for row in range(31)]

        used = set(struct.unpack("<24i", safetensors(GOLDEN / "bert" / "logits.safetensors")["input"][2]))
        padding, trained = max(used), {}
        for pad in (padding, None):
            folder, run, out = self.copy("bert"), self.folder / f"run{pad}", self.folder / f"out{pad}"
            self.change_config(folder, pad_token_id=pad)
            self.run_dltrain(self.configuration(folder, "", "bert"), "-q", "--output-dir", run, "-s", "optimizer.weight_decay=0")
            self.run_dltrain("export", run, out)
            self.assertEqual(json.loads((out / "config.json").read_text())["pad_token_id"], pad)
            trained[pad] = words(out)
        # The head, which shares the vectors, moves all of them; the input all but that of padding.
        self.assertNotEqual(trained[padding][padding], trained[None][padding])
        folder = self.copy("bert")
        self.change_config(folder, pad_token_id=66)
        self.refused(USAGE, self.configuration(folder, "", "bert"), "--dry-run", says="pad_token_id: expected an integer from 0 to 30, got 66")
        self.change_config(folder, pad_token_id=30)
        self.run_dltrain("import", folder, self.folder / "imported")

    def test_bert_takes_masks_and_token_types_of_the_data(self):
        batch = safetensors(GOLDEN / "bert" / "logits.safetensors")
        values = {name: list(struct.unpack("<24i", batch[name][2])) for name in ("input", "attention_mask", "target")}

        def loss(folder, types=None, mask=True):
            tensors = {name: ("I32", [2, 12], content) for name, content in values.items()}
            inputs = {"input": "input"}
            if mask:
                inputs["attention_mask"] = "attention_mask"
            if types is not None:
                tensors["token_type_ids"] = ("I32", [2, 12], types)
                inputs["token_type_ids"] = "token_type_ids"
            data = support.save_safetensors(self.folder / "batch.safetensors", tensors)
            split = f"{{type: tensors, path: {data}, inputs: {json.dumps(inputs)}, targets: target}}"
            config = self.configuration(folder, "", "bert", data=f"{{train: {split}, eval: {split}}}")
            result = self.folder / "result.json"
            self.run_dltrain("eval", config, "--checkpoint", folder, "--result", result)
            return json.loads(result.read_text())["eval_loss"]

        first = [0] * 24
        self.assertEqual(loss(GOLDEN / "bert", first), loss(GOLDEN / "bert"))
        self.assertNotEqual(loss(GOLDEN / "bert", mask=False), loss(GOLDEN / "bert"))
        mixed = [i % 3 // 2 for i in range(24)]
        self.assertNotEqual(loss(GOLDEN / "bert", mixed), loss(GOLDEN / "bert"))
        # The same types by the other numbers, with the rows of their table exchanged.
        swapped = self.copy("bert")
        tensors = weights(swapped)
        name = "bert.embeddings.token_type_embeddings.weight"
        dtype, shape, content = tensors[name]
        tensors[name] = (dtype, shape, content[64:] + content[:64])
        write_safetensors(swapped / "model.safetensors", tensors)
        self.assertEqual(loss(swapped, [1 - t for t in mixed]), loss(GOLDEN / "bert", mixed))
        with self.assertRaisesRegex(AssertionError, "id 2 of token_type_ids does not fit"):
            loss(GOLDEN / "bert", [2] * 24)

    def test_a_dropout_beside_from_is_that_of_all_places_that_follow_it(self):
        folder = self.copy()
        self.change_config(folder, resid_pdrop=0.1, embd_pdrop=0.2, attn_pdrop=0.3)

        def rates(keys):
            out = self.folder / "run"
            shutil.rmtree(out, ignore_errors=True)
            self.run_dltrain(self.configuration(folder, keys), "-q", "--output-dir", out)
            text = (out / "config.yaml").read_text()
            return sorted(set(re.findall(r"(?<!_)(?:rate|dropout): ([0-9.]+)", text)))

        self.assertEqual(rates(""), ["0.1", "0.2", "0.3"])
        self.assertEqual(rates(", dropout: 0"), ["0.0"])
        self.assertEqual(rates(", dropout: 0, attention_dropout: 0.5"), ["0.0", "0.5"])
        self.assertEqual(rates(", embedding_dropout: 0.5"), ["0.1", "0.3", "0.5"])

    def test_imported_folders_of_bert_have_a_configuration_that_trains(self):
        out = self.folder / "masked"
        self.run_dltrain("import", GOLDEN / "bert", out)
        self.assertIn("mlm_probability: 0.15", (out / "config.yaml").read_text())
        out = self.folder / "classifier"
        self.run_dltrain("import", GOLDEN / "bert_classifier", out)
        self.run_dltrain(out / "config.yaml", "--output-dir", self.folder / "run", "-s", "data.eval_fraction=null", "-s",
                         "training.global_batch_size=2", "-s", "evaluation.eval_epochs=null", "-s",
                         f"data.path={GOLDEN / 'bert_classifier' / 'logits.safetensors'}")
        bare = self.copy("bert")
        self.change_config(bare, architectures=["BertModel"])
        tensors = weights(bare)
        write_safetensors(bare / "model.safetensors", {key.removeprefix("bert."): value for key, value in tensors.items()
                                                       if not key.startswith("cls.")})
        said = self.run_dltrain("import", bare, self.folder / "bare").out
        self.assertIn("new, for the folder has no head: cls.predictions.transform.dense.weight", said)
        made = weights(self.folder / "bare")
        self.assertEqual(made.keys(), weights(GOLDEN / "bert").keys())
        for key in made:
            if not key.startswith("cls."):
                self.assertEqual(made[key], tensors[key])

    def test_values_that_are_no_numbers_are_told(self):
        folder = self.copy()
        tensors = weights(folder)
        name = sorted(key for key in tensors if key.endswith("ln_f.weight"))[0]
        dtype, shape, content = tensors[name]
        tensors[name] = dtype, shape, struct.pack("<f", float("nan")) + content[4:]
        write_safetensors(folder / "model.safetensors", tensors)
        said = self.run_dltrain("import", folder, self.folder / "out").err
        self.assertIn("ln_f.weight has values that are not finite", said)
        log = self.run_dltrain(self.configuration(folder), "--output-dir", self.folder / "run", code=DIVERGED).err
        self.assertIn("has values that are not finite: ln_f.weight", log)

    def test_averaged_weights_are_what_is_exported(self):
        run, out = self.folder / "run", self.folder / "out"
        self.run_dltrain(self.configuration(GOLDEN / "gpt2", more=", ema: {decay: 0.5}"), "-q", "--output-dir", run)
        self.assertIn("averaged weights", self.run_dltrain("export", run, out).out)
        averages = safetensors(run / "checkpoints" / "latest" / "ema.safetensors")
        self.assertEqual({"transformer." + key: value for key, value in averages.items()}, weights(out))

    def test_formats_of_the_weights(self):
        run = self.folder / "run"
        self.run_dltrain(self.configuration(GOLDEN / "gpt2"), "-q", "--output-dir", run)
        for dtype, name, config in (("f32", "F32", "float32"), ("bf16", "BF16", "bfloat16"), ("f16", "F16", "float16")):
            out = self.folder / dtype
            self.run_dltrain("export", run, out, "--dtype", dtype)
            self.assertEqual({value[0] for value in weights(out).values()}, {name})
            self.assertEqual(json.loads((out / "config.json").read_text())["torch_dtype"], config)

    def test_a_model_without_biases_gets_zeros(self):
        run, out = self.folder / "run", self.folder / "out"
        configuration = self.write("char.yaml", """
model: {type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 2, max_positions: 16, bias: false, activation: gelu}
data: {type: text, path: text.txt, tokenizer: char, sequence_length: 16, eval_fraction: 0.2}
optimizer: {type: adamw, learning_rate: 0.01}
training: {global_batch_size: 4, max_steps: 3}
""")
        self.write("text.txt", "To be, or not to be: that is the question. " * 40)
        self.run_dltrain(configuration, "-q", "--output-dir", run, "-s", f"data.path={self.folder / 'text.txt'}")
        self.assertIn("with the tokenizer", self.run_dltrain("export", run, out).out)
        tensors = weights(out)
        self.assertEqual(set(tensors["transformer.h.0.attn.c_attn.bias"][2]), {0})
        self.assertEqual(tensors["transformer.h.0.attn.c_attn.bias"][1], [48])
        tokenizer = json.loads((out / "tokenizer.json").read_text())
        self.assertEqual(sorted(tokenizer["model"]["vocab"]), sorted(set("To be, or not to be: that is the question. ")))
        self.assertEqual(json.loads((out / "tokenizer_config.json").read_text())["model_max_length"], 16)
        # Back again: biases are there now.
        data = f"{{type: text, path: {self.folder / 'text.txt'}, tokenizer: {{type: file, path: {run}}}, sequence_length: 16}}"
        again = self.configuration(out, ", activation: gelu", data=data)
        self.run_dltrain(again, "-q", "--output-dir", self.folder / "again", "-s", "training.global_batch_size=4")

    def test_folders_that_are_wrong(self):
        def wrong(code, says, name="gpt2", **keys):
            folder = self.copy(name)
            self.change_config(folder, **keys)
            self.refused(code, self.configuration(folder, "", name), "--dry-run", says=says)

        wrong(USAGE, ["gpt2.yaml:2:", "config.json: n_head: expected an integer", '"four"'], n_head="four")
        wrong(USAGE, "n_layer: expected an integer from 1 to 10000, got -2", n_layer=-2)
        wrong(USAGE, "layer_norm_epsilon: expected a number", layer_norm_epsilon="tiny")
        wrong(USAGE, "the activation 'gelu_10' is not supported", activation_function="gelu_10")
        wrong(USAGE, "scale_attn_by_inverse_layer_idx: true is not supported", scale_attn_by_inverse_layer_idx=True)
        wrong(USAGE, "add_cross_attention: true is not supported", add_cross_attention=True)
        wrong(USAGE, "quantization_config", quantization_config={"bits": 4})
        wrong(USAGE, "the model_type 'gpt3' is not supported; known: gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, bert", model_type="gpt3")
        wrong(USAGE, "has no model_type", model_type="absent")
        wrong(USAGE, "the type 'yarn' is not supported", "llama", rope_parameters={"rope_type": "yarn", "rope_theta": 1e4})
        wrong(USAGE, "has no rope_parameters.original_max_position_embeddings", "llama",
              rope_parameters={"rope_type": "llama3", "factor": 4.0})
        wrong(USAGE, "rope_parameters.beta_fast: 3 is not a known key", "llama", rope_parameters={"rope_theta": 1e4, "beta_fast": 3})
        wrong(USAGE, "1 of 2 layers have a sliding window", "qwen2", max_window_layers=1, layer_types="absent")
        wrong(USAGE, "has no hidden_size", "llama", hidden_size="absent")
        wrong(USAGE, "is_decoder: true is not supported", "bert", is_decoder=True)
        wrong(USAGE, 'position_embedding_type: "relative_key" is not supported', "bert", position_embedding_type="relative_key")
        wrong(USAGE, "'BertForQuestionAnswering' is not supported", "bert", architectures=["BertForQuestionAnswering"])
        wrong(USAGE, "sequences of 12 tokens are longer than max_positions 8", "llama", max_position_embeddings=8)
        folder = self.copy()
        (folder / "config.json").write_text("{")
        self.refused(USAGE, self.configuration(folder), "--dry-run", says="config.json: is not JSON: line 1, column 2: unexpected end of input")
        (folder / "config.json").write_text("[]")
        self.refused(USAGE, self.configuration(folder), "--dry-run", says="is not a JSON object")
        (folder / "config.json").unlink()
        self.refused(USAGE, self.configuration(folder), "--dry-run", says="has no config.json")
        self.refused(USAGE, self.configuration("[a, b]"), "--dry-run", says="expected a folder")
        self.refused(USAGE, self.configuration("f" * 300), "--dry-run", says=["gpt2.yaml:2:", "No such file or folder"])
        self.refused(USAGE, self.configuration(GOLDEN / "gpt2", ", init_from: x.safetensors"), "--dry-run",
                     says="model has both from and init_from")

    def refused_weights(self, folder, says, name="gpt2"):
        self.refused(STORAGE, self.configuration(folder, "", name), "--output-dir", self.folder / "run", says=says)

    def test_weights_that_do_not_fit(self):
        folder = self.copy()
        path, tensors = folder / "model.safetensors", weights(GOLDEN / "gpt2")

        def with_tensors(change):
            changed = dict(tensors)
            change(changed)
            write_safetensors(path, changed)

        with_tensors(lambda t: t.pop("transformer.ln_f.bias"))
        self.refused_weights(folder, "it lacks ln_f.bias [16]")
        with_tensors(lambda t: t.update({"adapter.weight": ("F32", [2], bytes(8))}))
        self.refused_weights(folder, "it has the unknown adapter.weight [2]")
        with_tensors(lambda t: t.update({"transformer.ln_f.bias": ("F32", [2], bytes(8))}))
        self.refused_weights(folder, "transformer.ln_f.bias has shape [2], the model expects [16]")
        with_tensors(lambda t: t.update({"transformer.ln_f.bias": ("I32", [16], bytes(64))}))
        self.refused_weights(folder, "expected a floating dtype")
        with_tensors(lambda t: t.update({"ln_f.bias": ("F32", [16], bytes(64))}))
        self.refused_weights(folder, "two tensors are named ln_f.bias")
        # Surplus tensors of old files are ignored.
        with_tensors(lambda t: t.update({"transformer.h.0.attn.bias": ("F32", [1, 1, 2, 2], bytes(16)),
                                         "transformer.h.0.attn.masked_bias": ("F32", [1], bytes(4)),
                                         "lm_head.weight": t["transformer.wte.weight"]}))
        self.run_dltrain(self.configuration(folder), "-q", "--output-dir", self.folder / "run")
        path.write_bytes((GOLDEN / "gpt2" / "model.safetensors").read_bytes()[:-8])
        self.refused(STORAGE, "import", folder, self.folder / "out", says="truncated")
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 548105171\n")
        self.refused(STORAGE, "import", folder, self.folder / "out", says="is a Git LFS pointer, not the file itself; run git lfs pull")
        with_tensors(lambda t: t.pop("transformer.ln_f.bias"))
        said = self.refused(STORAGE, "import", folder, self.folder / "out", says="it lacks ln_f.bias [16]").err
        self.assertNotIn("strict", said)
        path.unlink()
        self.refused(STORAGE, "import", folder, self.folder / "out", says="has neither model.safetensors nor")
        (folder / "pytorch_model.bin").write_bytes(b"PK")
        self.refused(STORAGE, "import", folder, self.folder / "out", says="pytorch_model.bin is not read")
        self.assertFalse((self.folder / "out").exists())

    def test_indices_that_are_wrong(self):
        folder = self.copy("llama")
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())

        def wrong(says, change=None, text=None):
            changed = json.loads(json.dumps(index))
            if change:
                change(changed["weight_map"])
            path.write_text(text or json.dumps(changed))
            self.refused_weights(folder, says, "llama")

        first = index["weight_map"]["model.embed_tokens.weight"]
        other = next(f for f in index["weight_map"].values() if f != first)
        wrong("names the file absent.safetensors, which is not there", lambda m: m.update({"a": "absent.safetensors"}))
        wrong("no name of a safetensors file in this folder", lambda m: m.update({"a": "../llama/x.safetensors"}))
        wrong("no name of a safetensors file in this folder", lambda m: m.update({"a": 3}))
        wrong("which has none of this name", lambda m: m.update({"a": first}))
        wrong("which has none of this name", lambda m: m.update({"model.embed_tokens.weight": other}))
        wrong("does not list the tensor 'model.embed_tokens.weight'", lambda m: m.pop("model.embed_tokens.weight"))
        wrong("lists the tensor 'b' twice", text='{"weight_map": {"b": "c.safetensors", "b": "d.safetensors"}}')
        wrong("has no weight_map", text='{"weight_map": {}}')
        wrong("is not a JSON object", text="{")

    def test_output_folders(self):
        run, out = self.folder / "run", self.folder / "out"
        self.run_dltrain(self.configuration(GOLDEN / "gpt2"), "-q", "--output-dir", run)
        self.run_dltrain("export", run, out)
        self.refused(USAGE, "export", run, out, says="already exists; use --overwrite")
        (out / "old.txt").write_text("x")
        self.refused(USAGE, "export", run, out, "--overwrite", says=f"{out}/old.txt was not written by dltrain")
        (out / "old.txt").unlink()
        self.run_dltrain("export", run, str(out) + "/", "--overwrite", "--dtype", "bf16")
        self.refused(USAGE, "export", run, self.folder, "--overwrite", says="is not the folder of a model")
        self.refused(STORAGE, "export", self.folder / "nothing", self.folder / "new", says="nothing")
        self.refused(USAGE, "export", run, self.folder / "new", "--dtype", "f64")
        self.assertFalse((self.folder / "new").exists())

    def test_damage_of_an_exported_folder_is_told_by_all_that_read_its_weights(self):
        run, out = self.folder / "run", self.folder / "out"
        self.run_dltrain(self.configuration(GOLDEN / "gpt2"), "-q", "--output-dir", run)
        self.run_dltrain("export", run, out)
        imported = self.folder / "imported"
        self.run_dltrain("import", out, imported)
        prompt = ("--tokens", "1,2,3", "--max-tokens", 2)
        for folder in (out, imported):
            commands = (("eval", self.configuration(folder), "--checkpoint", folder), ("generate", folder, *prompt),
                        ("import", folder, self.folder / "again"),
                        (self.configuration(folder), "-q", "--output-dir", self.folder / "from", "--overwrite"),
                        *((run / "config.yaml", "-q", "--output-dir", self.folder / "init", "--overwrite", "-s", f"model.init_from={source}")
                          for source in (folder, folder / "model.safetensors")))
            file = folder / "model.safetensors"
            whole = file.read_bytes()
            for damaged in (False, True):
                file.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:] if damaged else whole)
                for command in commands:
                    result = self.run_dltrain(*command, code=None)
                    self.assertEqual(result.code, STORAGE if damaged else OK, str(result))
                    if damaged:
                        self.assertIn(f"{file}: damaged: its content does not match checksums.json", result.err)
                shutil.rmtree(self.folder / "again", ignore_errors=True)
            # A folder that others have written has no checksums.
            (folder / "checksums.json").unlink()
            self.run_dltrain("generate", folder, *prompt)

    def test_models_of_no_family_are_refused(self):
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "run", "--max-steps", "1")
        self.refused(USAGE, "export", self.folder / "run", self.folder / "out", says="gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, bert")
        run = self.folder / "near"
        configuration = self.write("near.yaml", """
model:
  layers:
    - {embedding: {embedding_dim: 8}, name: wte}
    - {position_embedding: {max_positions: 16}, name: wpe}
    - {linear: 8, name: c_fc}
    - relu
    - {attention: {num_heads: 2}, name: h}
    - {lm_head: {}, name: lm_head, share: wte}
data: {type: synthetic_tokens, vocab_size: 10, length: 8, samples: 8}
optimizer: {type: sgd, learning_rate: 0.1}
training: {global_batch_size: 4, max_steps: 1}
""")
        result = self.run_dltrain(configuration, "-q", "--output-dir", run, code=None)
        if result.code == 0:
            self.refused(USAGE, "export", run, self.folder / "out", says="match no family")

    def test_wordpiece_has_no_bits_per_byte(self):
        vocabulary = self.write("words/vocab.txt", "[PAD]\n[UNK]\na\nb\n|\n")
        text = self.write("text.txt", "a|b\n" * 100)
        data = f"{{type: text, path: {text}, tokenizer: {{type: wordpiece, path: {vocabulary}}}, sequence_length: 16, eval_fraction: 0.3}}"
        configuration = self.configuration(GOLDEN / "gpt2", data=data)
        self.refused(USAGE, configuration, "-s", "evaluation.metrics=[bits_per_byte]", says="must keep blanks (not WordPiece)")
        run = self.folder / "run"
        self.run_dltrain(configuration, "-q", "--output-dir", run, "-s", "evaluation.eval_steps=2")
        evaluated = (run / "metrics.jsonl").read_text()
        self.assertIn("eval_perplexity", evaluated)
        self.assertNotIn("eval_bits_per_byte", evaluated)

    def test_a_tokenizer_larger_than_the_model_is_refused(self):
        folder = self.copy()
        shutil.copy(SOURCES / "tests" / "golden" / "tokenizers" / "bpe" / "vocab.json", folder)
        shutil.copy(SOURCES / "tests" / "golden" / "tokenizers" / "bpe" / "merges.txt", folder)
        self.refused(DATA, "import", folder, self.folder / "out", says=["the tokenizer has", "the model 31"])
        text = self.write("text.txt", "Hello world, how are you? " * 200)
        data = f"{{type: text, path: {text}, tokenizer: {{type: file, path: {folder}}}, sequence_length: 16}}"
        self.refused(DATA, self.configuration(folder, data=data), "--output-dir", self.folder / "run",
                     says=["the tokenizer of the data (bpe) has", "tokens, but the model has 31; they do not match"])


if __name__ == "__main__":
    support.main()
