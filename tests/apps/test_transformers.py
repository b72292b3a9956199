"""Exported folders in Hugging Face's transformers: where it is installed, models and tokenizers say the same there."""
import importlib.util
import json
import shutil
import struct
import unittest

import support
from support import SOURCES

INSTALLED = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors"))
GOLDEN = SOURCES / "tests" / "golden"
TEXT = "To be, or not to be: that is the question. Whether 'tis nobler in the mind to suffer 3 slings\n" * 30


@unittest.skipUnless(INSTALLED, "torch and transformers are not installed")
class Transformers(support.DltrainTest):
    def train_and_export(self, name, keys="", *arguments):
        inputs = "{input: input, attention_mask: attention_mask}" if name.startswith("bert") else "input"
        split = f"{{type: tensors, path: {GOLDEN / 'huggingface' / name / 'logits.safetensors'}, inputs: {inputs}, targets: target}}"
        configuration = self.write(f"{name}.yaml", f"""
model: {{from: {GOLDEN / 'huggingface' / name}{keys}}}
data: {{train: {split}, eval: {split}}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 2, max_steps: 3}}
""")
        run, out, result = self.folder / f"run-{name}", self.folder / f"out-{name}", self.folder / "result.json"
        self.run_dltrain(configuration, "-q", "--output-dir", run)
        self.run_dltrain("export", run, out, *arguments)
        self.run_dltrain("eval", "--checkpoint", run, "--result", result)
        return out, json.loads(result.read_text())["eval_loss"]

    def test_exported_models_have_the_same_loss(self):
        import torch
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

        for golden in sorted((GOLDEN / "huggingface").iterdir()):
            name = golden.name
            kind = {"bert": AutoModelForMaskedLM, "bert_classifier": AutoModelForSequenceClassification}.get(name, AutoModelForCausalLM)
            shards = ("--max-shard-size", "10KB") if name == "qwen3" else ()
            out, loss = self.train_and_export(name, "", *shards)
            # Only the eager experts compute in f64.
            keys = {"experts_implementation": "eager"} if name in ("mixtral", "qwen3_moe") else {}
            model, info = kind.from_pretrained(out, output_loading_info=True, attn_implementation="eager", **keys)
            self.assertEqual((list(info["missing_keys"]), list(info["unexpected_keys"])), ([], []), name)
            batch = load_file(golden / "logits.safetensors")
            mask = {"attention_mask": batch["attention_mask"]} if "attention_mask" in batch else {}
            with torch.no_grad():
                logits = model.double().eval()(input_ids=batch["input"].long(), **mask).logits
            expected = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["target"].long().flatten()).item()
            self.assertAlmostEqual(loss, expected, delta=1e-5 * expected, msg=name)

    def test_exported_tokenizers_give_the_same_tokens(self):
        from transformers import AutoTokenizer

        text = self.write("text.txt", TEXT)
        kinds = {"char": "char", "byte": "{type: byte, special_tokens: <|endoftext|>}"}
        for folder in ("bpe", "llama", "wordpiece", "wordpiece_cased"):
            kinds[folder] = f"{{type: file, path: {GOLDEN / 'tokenizers' / folder}}}"
        if importlib.util.find_spec("sentencepiece"):
            kinds["unigram"] = f"{{type: file, path: {GOLDEN / 'tokenizers' / 'unigram'}}}"
            kinds["spm_bpe"] = f"{{type: file, path: {GOLDEN / 'tokenizers' / 'spm_bpe'}}}"
        for name, tokenizer in kinds.items():
            configuration = self.write(f"{name}.yaml", f"""
model: {{type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 2, max_positions: 16}}
data: {{type: text, path: {text}, tokenizer: {tokenizer}, sequence_length: 16}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
""")
            run, out, prepared = (self.folder / f"{kind}-{name}" for kind in ("run", "out", "prepared"))
            self.run_dltrain(configuration, "-q", "--output-dir", run)
            self.run_dltrain("export", run, out)
            self.run_dltrain("data", "prepare", configuration, "-o", prepared)
            content = (prepared / "train_000000.bin").read_bytes()
            (count,) = struct.unpack("<i", content[8:12])
            ids = list(struct.unpack(f"<{count}H", content[1024 : 1024 + 2 * count]))
            loaded = AutoTokenizer.from_pretrained(out)
            self.assertEqual(loaded(TEXT, add_special_tokens=False).input_ids, ids[: len(ids)], name)
            self.assertEqual(loaded.model_max_length, 16, name)

    def test_chats_and_classified_texts_have_the_same_tokens(self):
        from transformers import AutoTokenizer

        def exported(name, model, data):
            configuration = self.write(f"{name}.yaml", f"""
model: {{type: {model}, num_layers: 1, hidden_size: 8, num_heads: 2, max_positions: 96}}
data: {{{data}, sequence_length: 96}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
""")
            run, out = self.folder / f"run-{name}", self.folder / f"out-{name}"
            self.run_dltrain(configuration, "-q", "--output-dir", run)
            self.run_dltrain("export", run, out)
            return run, AutoTokenizer.from_pretrained(out)

        turns = [{"role": "user", "content": "a \"{%"}, {"role": "assistant", "content": " é\\"}, {"role": "user", "content": "b"}]
        chats = self.write("chats.jsonl", json.dumps({"messages": turns}) + "\n")
        for i, form in enumerate(("plain", "llama3", "{name: chatml, default_system: 'Sum. 😀\n'}", "{user: '[INST]{content}%}', assistant: '{content}{eos}'}")):
            names = "['<|begin_of_text|>', '<|end_of_text|>', '<|eot_id|>', '<|start_header_id|>', '<|end_header_id|>', '<|im_start|>', '<|im_end|>']"
            run, tokenizer = exported(f"chat-{i}", "gpt2", f"type: jsonl, path: {chats}, messages: messages, chat_format: {form}, "
                                      f"tokenizer: {{type: byte, special_tokens: {names}}}")
            said = self.run_dltrain("generate", run, "--prompt-file", chats, "--max-tokens", 1, "--json", "-q").out
            ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
            self.assertEqual(json.loads(said)["prompt_tokens"], ids, form)
        texts = self.write("texts.csv", "text,label\nab,x\nba b,y\n")
        # The order of ids is that of the special tokens.
        for special, expected in (("[<pad>, <s>, </s>]", [257, 97, 98, 258]), ("[</s>]", [97, 98, 256])):
            _, tokenizer = exported(f"class{len(special)}", "bert_classifier",
                                    f"type: text_classification, path: {texts}, tokenizer: {{type: byte, special_tokens: {special}}}")
            batch = tokenizer(["ab", "a"], padding=True)
            self.assertEqual(batch.input_ids[0], expected)
            self.assertEqual(batch.input_ids[1][-1], 256)
            self.assertEqual(batch.attention_mask[1][-1], 0)

    def test_files_of_the_first_folder_come_out_again(self):
        from transformers import AutoTokenizer

        folder = self.folder / "folder"
        shutil.copytree(GOLDEN / "huggingface" / "gpt2", folder)
        tokenizer = json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer", "model_max_length": 12})
        (folder / "tokenizer_config.json").write_text(tokenizer)
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nto\nbe\nor\nnot\n")
        text = self.write("text.txt", TEXT)
        configuration = self.write("from.yaml", f"""
model: {{from: {folder}}}
data: {{type: text, path: {text}, tokenizer: {{type: file, path: {folder}}}, sequence_length: 16}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 2, max_steps: 1}}
""")
        run, out = self.folder / "run", self.folder / "out"
        self.run_dltrain(configuration, "-q", "--output-dir", run)
        self.run_dltrain("export", run, out)
        self.assertEqual((out / "tokenizer_config.json").read_text(), tokenizer)
        self.assertEqual(AutoTokenizer.from_pretrained(out)("to be").input_ids, [2, 5, 6, 3])


if __name__ == "__main__":
    support.main()
