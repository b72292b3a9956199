"""Models of dltrain in lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness):

    PYTHONPATH=examples python -m lm_eval_dltrain --model dltrain --model_args model=runs/gpt --tasks lambada_openai

MODEL is what `dltrain score` takes: a run folder, a checkpoint or a folder of a Hugging Face model. Further arguments:
program (default: dltrain), tokenizer, precision, and backend (auto, cpu, cuda; the harness has a --device of its own, which names
PyTorch's and does not count here). Tried with lm-eval 0.4.13. Tasks of multiple choice, likelihood and generated
answers work; perplexity over whole documents (loglikelihood_rolling) does not: `dltrain eval` measures it."""
import collections
import json
import pathlib
import subprocess
import tempfile

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("dltrain")
class Dltrain(LM):
    def __init__(self, model, program="dltrain", tokenizer=None, backend=None, precision=None, batch_size=1, **_):
        super().__init__()
        self.program, self.model = program, model
        # 1 is what the harness gives without --batch_size; scores do not depend on it.
        batch = batch_size if str(batch_size).isdigit() and int(batch_size) > 1 else 8
        options = {"--tokenizer": tokenizer, "--device": backend, "--precision": precision, "--batch-size": batch}
        self.options = [str(part) for pair in options.items() if pair[1] is not None for part in pair]

    def call(self, command, lines, *arguments):
        """The lines of JSON that a command prints for a file of lines of JSON."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "in.jsonl")
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
            given = [file] if command == "score" else ["--prompt-file", file]
            out = subprocess.run([self.program, command, self.model, *given, *arguments, *self.options],
                                 check=True, stdout=subprocess.PIPE, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def loglikelihood(self, requests, disable_tqdm=False):
        pairs = [dict(zip(("context", "continuation"), request.args)) for request in requests]
        return [(line["log_likelihood"], line["greedy"]) for line in self.call("score", pairs)]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError("use `dltrain eval RUN FILE`, which prints perplexity and bits_per_byte")

    def generate_until(self, requests, disable_tqdm=False):
        # Requests with the same settings are answered together.
        groups = collections.defaultdict(list)
        for index, request in enumerate(requests):
            settings = request.args[1]
            until = settings.get("until") or []
            until = [until] if isinstance(until, str) else until
            groups[(tuple(until), settings.get("max_gen_toks", 256), settings.get("temperature", 0))].append(index)
        texts = [""] * len(requests)
        for (until, tokens, temperature), members in groups.items():
            stops = [part for text in until for part in ("--stop", text)]
            prompts = [{"prompt": requests[index].args[0]} for index in members]
            made = self.call("generate", prompts, "--json", "-q", "--max-tokens", str(tokens), "--temperature", str(temperature), *stops)
            for index, line in zip(members, made, strict=True):
                texts[index] = line["text"]
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
