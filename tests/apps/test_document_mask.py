"""Documents that share a sample of a language model: with document_mask each has the loss and the gradients that it has alone."""
import json
import struct

from launching import LaunchTest
from support import DATA, USAGE, main, metrics, safetensors, steps

END = 0
DOCUMENTS = [[5, 6, 7, 8, 5, 9, 11, 3], [4, 4, 1], [], [2, 12, 13, 14, 2, 12, 13, 1, 1, 10, 3, 2], [9], [3, 3, 8, 7, 6]]
GPT = "{type: gpt2, num_layers: 2, hidden_size: 16, num_heads: 2, max_positions: 48, dropout: 0, vocab_size: 16}"
TABLE = "{layers: [{embedding: {embedding_dim: 16}}, {position_embedding: {max_positions: 48}}, " \
        "{multi_head_attention: {num_heads: 2, causal: true}}, {lm_head: {}}], vocab_size: 16}"
LLAMA = "{type: llama, num_layers: 2, hidden_size: 16, num_heads: 4, num_kv_heads: 2, intermediate_size: 24, vocab_size: 16}"
NEAR = "{layers: [{embedding: {embedding_dim: 16}}, {linear: 48}, " \
       "{attention: {num_heads: 2, causal: true, alibi: true, sliding_window: 4}}, {lm_head: {}}], vocab_size: 16}"
CONFIG = """
name: documents
seed: 3
model: {model}
data: {{type: tokens, path: {path}, sequence_length: {length}, random_offset: false, vocab_size: 16{more}}}
optimizer: {{type: sgd, learning_rate: 1000}}  # the change of a weight is its gradient but for little rounding
training: {{global_batch_size: {batch}, max_steps: {steps}}}
logging: {{logging_steps: 1}}
"""
MASK = f", document_mask: true, end_token_id: {END}"


def numbers(run):
    """The weights of the last checkpoint, as floats by name."""
    tensors = safetensors(run / "checkpoints" / "latest" / "model.safetensors")
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (dtype, _, data) in tensors.items() if dtype == "F32"}


class DocumentMask(LaunchTest):
    def config(self, name, ids, model=GPT, more=MASK, length=None, batch=1, count=1):
        path = self.write(f"{name}.bin", struct.pack(f"<{len(ids)}H", *ids))
        return self.write(f"{name}.yaml", CONFIG.format(model=model, path=path, length=length or len(ids) - 1, more=more, batch=batch, steps=count))

    def train(self, name, *arguments, code=0, ranks=1, **keys):
        run = self.folder / name
        self.run_dltrain(self.config(name, **keys), "-q", "--output-dir", run, "--nproc-per-node", ranks, *arguments, code=code)
        return run

    def test_packed_documents_have_their_own_losses_and_gradients(self):
        stream = [token for document in DOCUMENTS for token in [*document, END]] + [1]
        for kind, model in (("gpt", GPT), ("table", TABLE), ("llama", LLAMA), ("near", NEAR)):
            # With learning rate 0 the last checkpoint has the initial weights.
            start = numbers(self.train(f"{kind}-start", "-s", "optimizer.learning_rate=0", ids=stream, model=model))
            packed = self.train(f"{kind}-packed", ids=stream, model=model)
            tokens, loss, change, at = len(stream) - 1, 0, {name: [0.0] * len(values) for name, values in start.items()}, 0
            for i, document in enumerate(DOCUMENTS):
                share = (len(document) + 1) / tokens
                run = self.train(f"{kind}-{i}", ids=stream[at : at + len(document) + 2], model=model, more="")
                at += len(document) + 1
                loss += share * steps(run)[0]["loss"]
                for name, values in numbers(run).items():
                    for k, (new, old) in enumerate(zip(values, start[name], strict=True)):
                        change[name][k] += share * (new - old)
            self.assertAlmostEqual(steps(packed)[0]["loss"], loss, delta=2e-6 * loss, msg=kind)
            for name, values in numbers(packed).items():
                largest = max(map(abs, change[name])) + 1e-3
                for k, (new, old) in enumerate(zip(values, start[name], strict=True)):
                    self.assertLessEqual(abs(new - old - change[name][k]), 2e-5 * largest, f"{kind}: {name}, element {k}")
            # Without the mask they are others.
            mixed = self.train(f"{kind}-mixed", ids=stream, model=model, more="")
            self.assertGreater(abs(steps(mixed)[0]["loss"] - loss), 1e-4 * loss, kind)

    def test_layouts_have_the_losses_of_one_rank(self):
        stream = [token for _ in range(12) for document in DOCUMENTS for token in [*document, END]]
        for kind, model in (("gpt", GPT), ("llama", LLAMA)):
            keys = {"ids": stream, "model": model, "length": 24, "batch": 4, "count": 4}
            whole = steps(self.train(f"{kind}-whole", "-s", "optimizer.learning_rate=0.1", **keys))
            layouts = ((1, "training.micro_batch_size=1"), (2, "training.micro_batch_size=2"), (1, "memory.recompute=full"),
                       (2, "parallelism.tensor=2"), (2, "parallelism={tensor: 2, sequence_parallel: true}"), (2, "parallelism.zero_stage=3"),
                       (2, "parallelism={pipeline: 2}"))
            for i, (ranks, layout) in enumerate(layouts):
                more = ("-s", "training.micro_batch_size=2") if "pipeline" in layout else ()
                run = self.train(f"{kind}-{i}", "-s", layout, "-s", "optimizer.learning_rate=0.1", *more, ranks=ranks, **keys)
                for one, other in zip(whole, steps(run), strict=True):
                    for series in ("loss", "grad_norm"):
                        self.assertAlmostEqual(one[series], other[series], delta=2e-5 * one[series], msg=f"{kind}, {layout}")

    def test_a_run_on_texts_is_shown_evaluated_and_continued(self):
        lines = self.write("a.jsonl", "".join(json.dumps({"text": f"{i} is a number"}) + "\n" for i in range(200)))
        data = f"data: {{type: jsonl, path: {lines}, tokenizer: {{type: byte, special_tokens: [</s>]}}, sequence_length: 40, " \
               "document_mask: true, curriculum: {from: 16, steps: 6, stages: 2}, eval_fraction: 0.2}"
        text = CONFIG.format(model=GPT.replace("16}", "257}"), path="", length=1, more="", batch=8, steps=12).splitlines()
        text[4] = data
        text[5] = "optimizer: {type: adamw, learning_rate: 1.0e-3}"
        config = self.write("run.yaml", "\n".join(text))
        shown = self.run_dltrain("data", "show", config, "--split", "eval", "--samples", 1).out
        self.assertIn("      documents  3, which begin at the tokens 0, 10, 26\n", shown)
        self.assertNotIn("document_positions", shown)
        whole = self.folder / "whole"
        self.run_dltrain(config, "-q", "--output-dir", whole)
        part = self.folder / "part"
        self.run_dltrain(config, "-q", "--output-dir", part, "--max-steps", 5)
        self.run_dltrain(config, "-q", "--output-dir", part, "--resume", "auto")
        self.assert_same_state(whole, part)
        evaluation = [line for line in metrics(whole) if "eval_loss" in line][-1]
        for key in ("eval_loss", "eval_perplexity", "eval_bits_per_byte"):
            self.assertIn(key, evaluation)
        # New data has the mask too, whatever its kind.
        result = {}
        for name in ("new.jsonl", "new.txt"):
            content = [f"{i} is a number" for i in range(100, 140)]
            new = self.write(name, "".join(json.dumps({"text": line}) + "\n" for line in content) if name == "new.jsonl" else "</s>".join(content) + "</s>")
            self.run_dltrain("eval", whole, new, "--result", self.folder / "result.json", "-s", "data.tokenizer.parse_special=true")
            result[name] = json.loads((self.folder / "result.json").read_text())["eval_loss"]
        self.assertAlmostEqual(result["new.jsonl"], result["new.txt"], places=5)
        self.run_dltrain("generate", whole, "--prompt", "12 is", "--max-tokens", 5, "-q")

    def test_data_without_ends_is_told(self):
        said = self.run_dltrain(self.config("no-ends", ids=[1, 2, 3, 4, 5]), "-q", "--output-dir", self.folder / "run")
        self.assertIn("no document ends (token 0) in the first 5 tokens", said.err)
        self.refused(DATA, self.config("a", ids=[1, 2, 3], more=", document_mask: true"), says="document_mask needs the token that ends a document")

    def test_what_mixes_documents_is_refused(self):
        ids = [token for document in DOCUMENTS for token in [*document, END]] * 2
        for model, says in (
                ("{layers: [{embedding: {embedding_dim: 8}}, {lstm: 8}, {lm_head: {}}]}", "keeps its state from one document to the next"),
                ("{layers: [{embedding: {embedding_dim: 8}}, sinusoidal_positions, {multi_head_attention: {num_heads: 2, causal: true}}, {lm_head: {}}]}",
                 "with data.document_mask use learned or rotary positions"),
                ("{layers: [{embedding: {embedding_dim: 8}}, {multi_head_attention: {num_heads: 2}}, {lm_head: {}}]}",
                 "data.document_mask is for attention to earlier tokens"),
                ("{layers: [{embedding: {embedding_dim: 8}}, {linear: 8}, {lm_head: {}}]}", "no layer reads the data's 'document_positions'")):
            self.refused(USAGE, self.config("wrong", ids=ids, model=model, length=16), "--output-dir", self.folder / "wrong", says=says)


if __name__ == "__main__":
    main()
