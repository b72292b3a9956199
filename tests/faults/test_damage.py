"""Damage to every file of runs, checkpoints and data: it is found, or it changes nothing; no input crashes the program."""
import os
import pathlib
import random
import shutil
import time

from support import DATA, MEMORY, OK, SOURCES, STORAGE, USAGE, DltrainTest, main

SEEDS = SOURCES / "tests" / "fuzz" / "seeds"

LANGUAGE = """
name: letters
model: {type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 1, dropout: 0.0}
data: {type: text, path: FOLDER/input.txt, tokenizer: {type: char}, sequence_length: 8, eval_fraction: 0.2}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 4, max_steps: 6}
checkpoint: {save_steps: 3}
"""


def files_below(folder):
    return [p for p in sorted(pathlib.Path(folder).rglob("*")) if not p.is_symlink() and p.is_file() and p.name not in (".lock", ".dltrain")]


def damage(path, dice):
    """Damages a file in one of the ways that disks, copies and people do; returns how."""
    content = path.read_bytes()
    how = dice.choice(("flip", "flip", "flip", "cut", "append", "zero", "empty", "delete", "folder", "dangling", "swap"))
    at = dice.randrange(max(1, len(content)))
    if how == "flip" and content:
        changed = bytearray(content)
        changed[at] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
    elif how == "cut":
        path.write_bytes(content[:at])
    elif how == "append":
        path.write_bytes(content + dice.randbytes(dice.randrange(1, 50)))
    elif how == "zero":
        end = min(len(content), at + dice.randrange(1, 600))
        path.write_bytes(content[:at] + bytes(end - at) + content[end:])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "dangling":
            path.symlink_to("nowhere")
        elif how == "swap":
            path.write_bytes(dice.choice(files_below(path.parent) or [pathlib.Path(__file__)]).read_bytes())
    return how


class Damage(DltrainTest):
    def outcome(self, command, run):
        """What a command says and makes, without what differs from run to run."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        result = self.run_dltrain(*command, code=None)
        self.assertIn(result.code, (OK, USAGE, DATA, STORAGE), str(result))
        self.assertNotIn("internal error", result.err, str(result))
        if result.code != OK:
            return result, None
        made = self.folder / "out" if (self.folder / "out").exists() else run / "checkpoints" / "latest"
        return result, (result.out, [(p.name, p.read_bytes()) for p in files_below(made) if p.suffix != ".json"])

    def campaign(self, rounds, seed, seconds):
        dice, end = random.Random(seed), time.monotonic() + seconds
        self.write("input.txt", "the quick brown fox jumps over the lazy dog. " * 8)
        configuration = self.write("letters.yaml", LANGUAGE.replace("FOLDER", str(self.folder)))
        whole, run = self.folder / "whole", self.folder / "run"
        self.run_dltrain(configuration, "-q", "--output-dir", whole)
        newest = run / "checkpoints" / "step-000006"
        commands = {
            "resume": (configuration, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 9),
            "eval": ("eval", configuration, "--checkpoint", newest),
            "generate": ("generate", newest, "--prompt", "the", "--max-tokens", 3, "--seed", 1),
            "export": ("export", newest, self.folder / "out"),
        }
        expected = {}
        for name, command in commands.items():
            shutil.copytree(whole, run, symlinks=True)
            expected[name] = self.outcome(command, run)[1]
            self.assertIsNotNone(expected[name], name)
            shutil.rmtree(run)
        done = found = harmless = 0
        for done in range(1, rounds + 1):
            shutil.copytree(whole, run, symlinks=True)
            # Nine of ten in what the command reads first.
            path = dice.choice(files_below(newest if dice.random() < 0.9 else run))
            how, name = damage(path, dice), dice.choice(list(commands))
            result, made = self.outcome(commands[name], run)
            if made is not None:
                # Resuming goes back to the checkpoint before, and does the steps again.
                self.assertEqual(made, expected[name], f"seed {seed}, round {done}: {path} {how}, then {name}, was not found\n{result}")
            harmless += made is not None
            found += made is None
            shutil.rmtree(run)
            if time.monotonic() > end:
                break
        print(f"damage: {done} files damaged, {found} refused, {harmless} without effect, 0 wrong results, 0 crashes (seed {seed})")

    def test_damaged_checkpoints_are_found_or_change_nothing(self):
        self.campaign(16, time.time_ns(), 300)

    def test_long_ten_thousand_damaged_files(self):
        self.campaign(10_000, time.time_ns(), 3200)


class Hostile(DltrainTest):
    # How a file of each kind is given to the program.
    KINDS = {
        "csv": "{type: csv, path: FILE}",
        "idx": "{type: idx, images: FILE, labels: FILE}",
        "jsonl": "{type: jsonl, path: FILE, tokenizer: {type: byte}, sequence_length: 8}",
        "npy": "{type: tensors, inputs: {x: FILE}, targets: FILE}",
        "packed": "{type: packed_images, path: FILE}",
        "safetensors": "{type: tensors, path: FILE, inputs: {x: x}, targets: y}",
        "tokens": "{type: tokens, path: FILE, sequence_length: 8}",
        "tokenizer": "{type: text, path: FILE, tokenizer: {type: bpe, path: FILE}, sequence_length: 8}",
    }
    MODEL = "name: x\nmodel: {layers: [{flatten: {}}, {linear: 2}]}\nloss: {type: cross_entropy}\noptimizer: {type: sgd, learning_rate: 0.1}\n" \
            "training: {global_batch_size: 1, max_steps: 1}\ndata: "

    def campaign(self, rounds, seed, seconds):
        """Changed seeds of the fuzzers as whole inputs of the program; codes 1 and signals are failures."""
        dice, end, done = random.Random(seed), time.monotonic() + seconds, 0
        seeds = [p for p in files_below(SEEDS) if p.parent.name in self.KINDS or p.parent.name in ("config", "huggingface")]
        for done in range(1, rounds + 1):
            source = dice.choice(seeds)
            kind, content = source.parent.name, bytearray(source.read_bytes())
            for _ in range(dice.randrange(4)):
                at = dice.randrange(len(content) + 1)
                piece = dice.choice((dice.randbytes(dice.randrange(1, 9)), b"\x1b[2J", b"99999999999999999999", b"\xff\xfe", b"\0", b"{" * 500,
                                     b"-1", b"nan", content[: dice.randrange(1, 200)]))
                content[at : at + dice.choice((0, len(piece)))] = piece
            path = self.write(f"input.{'yaml' if kind == 'config' else kind}", bytes(content[: dice.randrange(len(content) + 1)]
                                                                                    if dice.random() < 0.2 else content))
            if kind == "config":
                command = ("--dry-run", path)
            elif kind == "huggingface":
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                self.write("model/config.json", path.read_bytes())
                command = ("import", self.folder / "model", self.folder / "out")
            else:
                command = ("data", "inspect", self.write("input.yaml", self.MODEL + self.KINDS[kind].replace("FILE", str(path)) + "\n"))
            result = self.run_dltrain(*command, code=None)
            saved = self.folder.parent / f"dltrain-hostile-{seed}-{done}"
            if result.code not in (OK, USAGE, DATA, MEMORY, STORAGE) or "\x1b" in result.err:
                shutil.copyfile(path, saved)
                self.fail(f"seed {seed}, round {done}, {source.name}: kept as {saved}\n{result}")
            if time.monotonic() > end:
                break
        print(f"hostile inputs: {done}, 0 internal errors, 0 signals (seed {seed})")

    def test_hostile_inputs_are_refused_in_order(self):
        self.campaign(40, time.time_ns(), 300)

    def test_long_twenty_thousand_hostile_inputs(self):
        self.campaign(20_000, time.time_ns(), 3200)


if __name__ == "__main__":
    main()
