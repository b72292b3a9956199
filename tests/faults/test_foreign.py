"""Foreign files: no command removes or replaces what dltrain has not written; a folder that holds such is refused whole."""
import hashlib
import os
import pathlib
import random
import shutil
import time

from support import DATA, OK, SMALL, STOPPED, STORAGE, USAGE, DltrainTest, checkpoints, main, png, steps

LANGUAGE = """
name: letters
model: {type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 1, dropout: 0.0}
data: {type: text, path: FOLDER/input.txt, tokenizer: {type: char}, sequence_length: 8, eval_fraction: 0.2}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 4, max_steps: 4}
"""

# Files that people keep in folders, some under names that dltrain uses.
FOREIGN = ("notes.txt", ".git/HEAD", "plots/loss.png", "config.yaml", "log.txt", "summary.json", "model.safetensors", "data.csv",
           "checkpoints/best.pt", "checkpoints/step-000007/weights.bin", "tensorboard/events.out.tfevents.1", ".lock", ".dltrain",
           "predictions/step-000001.jsonl", "tokenizer.json", "train_000000.bin", "train_000004.bin", "tokens.json", "trace.json",
           "config.json", "checksums.json")


def content(folder):
    """{path: what it is} of all that is below a folder, links not followed."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink() or path.is_dir():
            found[name] = os.readlink(path) if path.is_symlink() else None
            continue
        text = path.read_bytes()  # a lock names its last holder
        found[name] = "ours" if path.name == ".lock" and text.startswith(b"process ") else hashlib.sha256(text).hexdigest()
    return found


class Foreign(DltrainTest):
    def language(self):
        self.write("input.txt", "the quick brown fox jumps over the lazy dog. " * 40)
        return self.write("letters.yaml", LANGUAGE.replace("FOLDER", str(self.folder)))

    def trained(self, name="run", configuration=None):
        run = self.folder / name
        self.run_dltrain(configuration or self.small(), "-q", "--output-dir", run)
        return run

    def test_overwrite_refuses_a_run_with_foreign_files_and_names_the_first(self):
        run = self.trained(configuration=self.small(SMALL + "evaluation: {eval_steps: 10, predictions: 5}\n"))
        for name in ("notes.txt", ".git/HEAD", "checkpoints/notes.txt", "checkpoints/step-000040/patch.diff", "tensorboard/mine",
                     "predictions/mine.csv", "plots/"):
            first = run / name.rstrip("/")
            made = next(p for p in reversed([first, *first.parents]) if not p.exists())
            named = run / "tensorboard/mine" if "tensorboard" in name else made  # tensorboard/ itself may be ours
            first.mkdir(parents=True) if name.endswith("/") else self.write(first, "mine")
            before = content(run)
            self.refused(USAGE, self.small(), "--output-dir", run, "--overwrite", says=(f"{named} was not written by dltrain", "move it"))
            self.assertEqual(content(run), before)
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--overwrite", "--max-steps", 3)
        self.assertEqual(len(steps(run)), 3)
        self.assertEqual(checkpoints(run), ["step-000003"])
        self.assertFalse((run / "predictions").exists())

    def test_a_run_of_an_earlier_version_goes_on_but_is_not_overwritten(self):
        whole, run = self.trained("whole"), self.folder / "run"
        shutil.copytree(whole, run, symlinks=True)
        shutil.rmtree(run / "checkpoints/step-000040")
        (run / ".dltrain").unlink()
        before = content(run)
        self.refused(USAGE, self.small(), "--output-dir", run, "--overwrite", says=(".dltrain", "remove this one yourself"))
        self.assertEqual(content(run), before)
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--resume", "auto")
        self.assert_same_state(run, whole)
        self.refused(USAGE, self.small(), "--output-dir", run, "--overwrite", says=".dltrain")

    def test_the_users_own_folder_stays_as_it_is(self):
        """As for somebody who gives `--output-dir .`: every file alone, under every way to start a run."""
        configuration = self.small()
        for name in FOREIGN:
            place = self.folder / "mine"
            self.write(place / name, "mine")
            for flags in ((), ("--resume", "auto"), ("--overwrite",)):
                before = content(place)
                result = self.run_dltrain(configuration, "-q", "--max-steps", 1, "--output-dir", place, *flags, code=None)
                self.assertIn(result.code, (OK, USAGE), str(result))
                self.assertNotIn("internal error", result.err)
                after = content(place)
                self.assertEqual({n: after.get(n) for n in before}, before, f"{name} {flags}\n{result}")
                if result.code == USAGE:
                    self.assertEqual(after, before, str(result))
                else:  # nothing of the run's has that name, so both live side by side
                    self.assertIn("config.yaml", after)
                    shutil.rmtree(place)
                    self.write(place / name, "mine")
            shutil.rmtree(place)

    def test_exports_replace_exports_alone(self):
        run, out = self.trained(configuration=self.language()), self.folder / "model"
        self.run_dltrain("export", run, out)
        self.run_dltrain("export", run, out, "--overwrite")
        self.refused(USAGE, "import", out, out, "--overwrite", says="would replace")
        other = self.trained("other", configuration=self.folder / "letters.yaml")
        self.refused(USAGE, "average", run, other, "-o", run, "--overwrite", says=f"{run}/checkpoints/step-000004 is an input")
        for command, source in (("export", run), ("import", out)):
            to = self.folder / command
            self.run_dltrain(command, source, to)
            self.write(to / ".git" / "HEAD", "ref: refs/heads/main")
            before = content(to)
            self.refused(USAGE, command, source, to, "--overwrite", says=f"{to}/.git was not written by dltrain")
            shutil.rmtree(to / ".git")
            (to / "checksums.json").unlink()  # as a clone of somebody's model
            self.refused(USAGE, command, source, to, "--overwrite", says="remove this one yourself")
            before.pop(".git"), before.pop(".git/HEAD"), before.pop("checksums.json")
            self.assertEqual(content(to), before)

    def test_prepared_data_replaces_prepared_data_alone(self):
        configuration, out = self.language(), self.folder / "tokens"
        prepare = ("data", "prepare", configuration, "-o", out)
        for name in ("train_000000.bin", "train_000004.bin", "eval_000001.bin", "tokens.json", "tokenizer.json"):
            self.write(out / name, "mine")
            before = content(out)
            for flags in ((), ("--overwrite",)):
                self.refused(USAGE, *prepare, *flags, says=str(out))
                after = content(out)
                after.pop(".dltrain", None)
                self.assertEqual(after, before, f"{name} {flags}")
            shutil.rmtree(out)
        self.run_dltrain(*prepare, "--shard-tokens", 100)
        self.assertGreater(len(list(out.glob("train_*.bin"))), 2)
        self.refused(USAGE, *prepare, says="--overwrite")
        self.run_dltrain(*prepare, "--overwrite")
        self.assertEqual(len(list(out.glob("train_*.bin"))), 1)
        self.write(out / "readme.md", "mine")
        self.refused(USAGE, *prepare, "--overwrite", says=f"{out}/readme.md was not written by dltrain")
        # A file of packed images is told by what it begins with.
        image = self.write("photo.yaml", "name: x\ndata: {type: idx}\n")
        self.refused(USAGE, "data", "prepare", self.small(), "-o", image, "--overwrite", says=str(image))
        self.assertEqual(image.read_text(), "name: x\ndata: {type: idx}\n")

    def test_no_output_replaces_an_input(self):
        table = self.write("table.csv", "a,b,c\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(60)))
        text = SMALL[: SMALL.index("data:")].replace("out_features: 4", "out_features: 2") + f"data: {{type: csv, path: {table}, header: true, " \
            "eval_fraction: 0.2}\n" + SMALL[SMALL.index("optimizer:"):]
        configuration = self.write("table.yaml", text)
        run = self.trained(configuration=configuration)
        before = content(self.folder)
        # A link to an input is that input.
        link = self.folder / "link.csv"
        link.symlink_to(table)
        for command in (("predict", configuration, "--checkpoint", run, "-o", table), ("predict", configuration, "--checkpoint", run, "-o", link),
                        ("eval", configuration, "--checkpoint", run, "--result", table),
                        ("eval", configuration, "--checkpoint", run, "--result", configuration),
                        ("eval", configuration, "--checkpoint", run, "--result", run / "checkpoints/latest/state.json"),
                        (configuration, "--output-dir", self.folder / "other", "--result", table),
                        ("plan", configuration, "--timeline", configuration), ("plan", configuration, "--timeline", table),
                        ("plan", configuration, "--timeline", run / "checkpoints/latest/model.safetensors"),
                        ("init", "mlp", "--data", table, "--force", "-o", table)):
            self.refused(USAGE, *command, says="would replace")
        # Files that the configuration of a run names, although this command reads other data, and files of a run.
        new = self.write("new.csv", "a,b,c\n1,2,1\n")
        for output in (table, link, run / "metrics.jsonl", run / "checkpoints/latest/new.jsonl"):
            self.refused(USAGE, "predict", run, new, "-o", output, says="would replace")
        for output in (table, configuration, run / "summary.json"):
            self.refused(USAGE, "eval", run, new, "--result", output, says="would replace")
        new.unlink()
        link.unlink()
        shutil.rmtree(self.folder / "other", ignore_errors=True)
        self.assertEqual(content(self.folder), before)

    def test_pictures_replace_pictures_of_dltrain_alone(self):
        for kind, value in (("dark", 40), ("light", 200)):
            self.write(f"photos/{kind}/0.png", png(8, 8, lambda y, x: (value, x, y)))
        configuration = self.write("photos.yaml", SMALL[: SMALL.index("data:")].replace("layers:", "layers:\n    - flatten")
                                   + f"data: {{type: image_folder, path: {self.folder / 'photos'}, transforms: [{{resize: [8, 8]}}]}}\n" + SMALL[SMALL.index("optimizer:"):])
        mine = self.write("mine.png", png(8, 8, lambda y, x: (1, 2, 3)))
        photo = self.folder / "photos/dark/0.png"
        before = content(self.folder)
        self.refused(USAGE, "data", "show", configuration, "-o", mine, says=(f"{mine} exists", "--overwrite"))
        for output in (photo, self.folder / "photos/light/new.png"):
            self.refused(USAGE, "data", "show", configuration, "-o", output, "--overwrite", says=f"lies in {self.folder / 'photos'}")
        self.assertEqual(content(self.folder), before)
        for flags in (("--overwrite",), ()):
            self.run_dltrain("data", "show", configuration, "-o", mine, *flags)
        # Nor does a command write into the folder of images that it reads.
        run = self.trained(configuration=configuration)
        self.refused(USAGE, "predict", run, self.folder / "photos", "-o", photo.parent / "x.csv", says="whose files are inputs")
        self.assertFalse((photo.parent / "x.csv").exists())

    def test_a_run_does_not_discard_the_weights_that_it_starts_from(self):
        run = self.trained()
        before = content(run)
        for source in (run, run / "checkpoints/step-000040", run / "checkpoints/latest/model.safetensors"):
            again = (self.small(), "--output-dir", run, "--overwrite", "-s", f"model.init_from={source}")
            self.refused(USAGE, *again, says=("initial weights", "--overwrite would discard"))
            self.refused(USAGE, *again, "--dry-run", says="initial weights")
        self.assertEqual(content(run), before)

    def test_a_foreign_folder_that_is_called_like_a_later_checkpoint_is_refused_at_the_start(self):
        run = self.folder / "run"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--stop-at", 10, code=STOPPED)
        self.write(run / "checkpoints/step-000030/notes.txt", "mine")
        before = content(run)
        again = (self.small(), "--output-dir", run, "--resume", "auto")
        self.refused(USAGE, *again, says=(f"{run}/checkpoints/step-000030 was not written by dltrain", "move it"))
        self.refused(USAGE, *again, "--dry-run", says="step-000030")
        self.assertEqual(content(run), before)
        shutil.move(run / "checkpoints/step-000030", run / "checkpoints/step-000003")
        self.run_dltrain(*again, "-q")
        self.assertEqual(steps(run)[-1]["step"], 40)

    def test_an_empty_path_or_name_is_a_mistake(self):
        before = content(self.folder)
        self.refused(USAGE, self.small(), "--output-dir", "", says="--output-dir", cwd=self.folder)
        self.refused(USAGE, "profile", self.small(), "--output-dir", "", says="--output-dir", cwd=self.folder)
        self.refused(USAGE, self.small(), "--name", "", says="--name", cwd=self.folder)
        self.refused(USAGE, "data", "prepare", self.language(), "-o", "", says="--output", cwd=self.folder)
        self.assertEqual(set(content(self.folder)) - set(before), {"small.yaml", "input.txt", "letters.yaml"})

    def campaign(self, rounds, seed):
        """Random foreign files in the folders that random commands are told to write to."""
        dice = random.Random(seed)
        small, language = self.small(SMALL.replace("max_steps: 40", "max_steps: 2")), self.language()
        model = self.folder / "letters"
        self.run_dltrain(language, "-q", "--output-dir", model)
        self.run_dltrain("export", model, self.folder / "hf")
        refused = 0
        for number in range(rounds):
            place = self.folder / "place"
            command = dice.choice((
                (small, "-q", "--output-dir", place), ("export", model, place), ("import", self.folder / "hf", place),
                ("data", "prepare", language, "-o", place), ("profile", small, "-q", "--steps", 1, "--output-dir", place)))
            if dice.random() < 0.5:  # something of ours is there already
                self.run_dltrain(*command, code=None)
            mine = {name: f"mine {number}".encode() for name in dice.sample(FOREIGN, dice.randint(1, 3)) if not (place / name).exists()}
            for name, text in list(mine.items()):
                try:
                    self.write(place / name, text)
                except (FileExistsError, NotADirectoryError):
                    del mine[name]
            flags = dice.choice(((), ("--overwrite",), ("--resume", "auto")))
            if command[0] != small and (flags[:1] == ("--resume",) or command[0] == "profile"):
                flags = ()
            result = self.run_dltrain(*command, *flags, code=None)
            # A foreign tokenizer.json in the folder of a run is a damaged run.
            damaged = result.code == STORAGE and "tokenizer.json" in mine
            self.assertTrue(result.code in (OK, USAGE) or damaged, f"seed {seed}, round {number}\n{result}")
            self.assertNotIn("internal error", result.err)
            for name, text in mine.items():
                self.assertEqual((place / name).read_bytes(), text, f"seed {seed}, round {number}: {name}\n{result}")
            refused += result.code == USAGE
            shutil.rmtree(place, ignore_errors=True)
        print(f"foreign files: {rounds} commands, {refused} refused, 0 files lost (seed {seed})")

    def test_random_foreign_files_survive_random_commands(self):
        self.campaign(12, time.time_ns())

    def test_long_two_thousand_commands_among_foreign_files(self):
        self.campaign(2000, time.time_ns())


if __name__ == "__main__":
    main()
