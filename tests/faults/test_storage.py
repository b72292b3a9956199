"""Consoles, disks and limits that fail: training goes on without its console, what cannot be written is code 7, and nothing
that is printed ends up in a file of ours."""
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

from support import (DATA, MEMORY, OK, PROGRAM, SMALL, SOURCES, STOPPED, STORAGE, USAGE, DltrainTest, checkpoints, main, metrics, png,
                     save_safetensors, steps)

ENDLESS = ("-s", "training.max_steps=1000000", "-s", "checkpoint.save_steps=1000000")


def limited(kind, value):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(kind, (value, value))
    return limit


class Consoles(DltrainTest):
    def shell(self, line):
        """Runs a line of bash with $P for the program, $C for the configuration and $R for the run folder."""
        environment = {"P": PROGRAM, "C": str(self.small()), "R": str(self.folder / "run")}
        return self.end(self.begin(["bash", "-c", line], env=environment))

    def test_training_goes_on_without_its_console(self):
        result = self.shell('set -o pipefail; "$P" "$C" --output-dir "$R" -s training.max_steps=2000 -s data.eval=null 2>&1 | head -n 1')
        self.assertEqual(result.code, OK, str(result))
        self.assertEqual(steps(self.folder / "run")[-1]["step"], 2000)
        self.assertTrue((self.folder / "run/summary.json").exists())
        shutil.rmtree(self.folder / "run")
        result = self.shell('set -o pipefail; "$P" "$C" --output-dir "$R" --nproc-per-node 2 -s training.max_steps=400 2>&1 | true')
        self.assertEqual(result.code, OK, str(result))
        self.assertEqual(steps(self.folder / "run")[-1]["step"], 400)

    def test_ctrl_c_on_a_pipe_to_tee_still_saves(self):
        run = self.folder / "run"
        for ranks in (1, 2):
            reader, writer = os.pipe()
            process = subprocess.Popen([PROGRAM, str(self.small()), "--output-dir", str(run), "--nproc-per-node", str(ranks), *ENDLESS],
                                       cwd=SOURCES, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
            self.started.append(process)
            os.close(writer)
            self.wait_for(lambda: (run / "metrics.jsonl").exists() and len(steps(run)) > 3, "steps")
            os.close(reader)  # tee has gone
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(self.timeout), STOPPED)
            self.started.remove(process)
            self.assertEqual(len(checkpoints(run)), 1)
            shutil.rmtree(run)

    def test_other_commands_end_quietly_when_nobody_reads(self):
        for command in ("list", "schema", "--help", "completion bash", '--print-config "$C"'):
            result = self.shell(f'"$P" {command} | head -n 1')
            self.assertEqual((result.code, result.err), (OK, ""), str(result))

    def test_a_full_device_is_a_storage_error_everywhere(self):
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "run")
        for command in ("list", "version", "schema", "--help", "--version", "completion bash", "init mlp", '--print-config "$C"',
                        '--dry-run "$C"', 'plan "$C"', 'check "$C"', 'eval "$C" --checkpoint "$R"', 'data inspect "$C"',
                        'profile "$C" --steps 1 --output-dir "$R"'):
            result = self.shell(f'"$P" {command} >/dev/full')
            self.assertEqual(result.code, STORAGE, str(result))
            self.assertIn("cannot write", result.err)
            self.assertIn("No space left on device", result.err)
        result = self.shell('"$P" eval "$C" --checkpoint "$R" --result /dev/full')
        self.assertEqual(result.code, STORAGE, str(result))
        # The console is no product of training.
        result = self.shell('"$P" "$C" --output-dir "$R" --overwrite >/dev/full 2>/dev/full')
        self.assertEqual(result.code, OK, str(result))

    def test_closed_streams_never_end_up_in_files(self):
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            for ranks in (1, 2):
                result = self.shell(f'"$P" "$C" --output-dir "$R" --overwrite --nproc-per-node {ranks} {closed}')
                self.assertEqual(result.code, OK, f"{closed} {result}")
                self.assertEqual([line["step"] for line in metrics(self.folder / "run") if "loss" in line], list(range(1, 41)))
                self.assertNotIn("run folder:", (self.folder / "run/config.yaml").read_text())
        result = self.shell('"$P" list >&-')
        self.assertEqual(result.code, STORAGE, str(result))


class Disappearing(DltrainTest):
    def test_files_that_are_deleted_while_the_run_writes_to_them_are_told_at_once(self):
        run = self.folder / "run"
        process = self.start(self.small(), "--output-dir", run, *ENDLESS)
        self.wait_for(lambda: (run / "metrics.jsonl").exists() and len(steps(run)) > 3, "steps")
        (run / "metrics.jsonl").unlink()
        self.wait_for(lambda: (run / "metrics.jsonl").exists() and len(steps(run)) > 3, "steps in a new file")
        while (run / "config.yaml").exists():  # the run goes on writing meanwhile
            shutil.rmtree(run, ignore_errors=True)
        def goes_on():
            return (run / "config.yaml").exists() and (run / "metrics.jsonl").exists() and len(steps(run)) > 3
        self.wait_for(lambda: process.poll() is not None or goes_on(), "steps in a new folder")
        if process.poll() is not None:
            self.fail(str(self.end(process)))
        self.refused(USAGE, self.small(), "--output-dir", run, "--resume", "auto", says="in use by process")
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertIn(f"{run} was deleted or moved during the run", result.err)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertGreaterEqual(result.err.count("was deleted during the run"), 2, str(result))
        self.assertEqual(len(checkpoints(run)), 1)
        # It is the folder of a run again.
        self.assertIn("stopped", self.run_dltrain("runs", "show", run).out)
        self.assertEqual(len((run / "attempts.jsonl").read_text().splitlines()), 1)
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--resume", "auto", "--max-steps", int(checkpoints(run)[0][5:]) + 5)
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--overwrite", "--max-steps", 5)

    def test_a_run_whose_folder_was_moved_is_one_in_a_new_folder(self):
        run, moved = self.folder / "run", self.folder / "moved"
        slow = self.small(SMALL.replace("out_features: 24", "out_features: 20000"))
        process = self.start(slow, "-q", "--output-dir", run, *ENDLESS, "-s", "checkpoint.save_steps=100")
        # No save is under way a while after one.
        self.wait_for(lambda: (run / "checkpoints/latest").exists() and steps(run)[-1]["step"] % 100 in range(30, 60), "a checkpoint")
        run.rename(moved)
        self.wait_for(lambda: process.poll() is not None or (run / "checkpoints/latest").exists(), "a checkpoint in a new folder")
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertIn(f"warning: {run} was deleted or moved during the run", result.err)
        for folder in (run, moved):
            self.run_dltrain("eval", folder)
            self.run_dltrain(slow, "-q", "--output-dir", folder, "--overwrite", "--max-steps", 5)

    def test_mapped_data_that_shrinks_ends_the_run_with_its_name(self):
        tokens = self.write("train_000000.bin", b"".join((i % 50).to_bytes(2, "little") for i in range(1 << 20)))
        text = f"""
name: tokens
model: {{type: gpt2, num_layers: 1, hidden_size: 8, num_heads: 1, dropout: 0.0}}
data: {{type: tokens, path: {tokens}, layout: uint16, vocab_size: 50, sequence_length: 16}}
optimizer: {{type: adamw, learning_rate: 1.0e-3}}
training: {{global_batch_size: 4, max_steps: 1000000}}
logging: {{logging_steps: 1}}
"""
        run = self.folder / "run"
        process = self.start(self.write("tokens.yaml", text), "--output-dir", run)
        self.wait_for(lambda: process.poll() is not None or ((run / "metrics.jsonl").exists() and len(steps(run)) > 3), "steps")
        os.truncate(tokens, 4096)
        result = self.end(process)
        self.assertEqual(result.code, DATA, str(result))
        self.assertIn(f"{tokens}: was shortened", result.err)
        self.assertEqual(len(checkpoints(run)), 1, str(result))

    def while_it_trains(self, data, change):
        """The end of a run on `data` under which `change` is made; without one, a signal stops it."""
        run = self.folder / "run"
        text = f"""
name: shrinks
model: {{layers: [flatten, {{linear: 2}}]}}
data: {data}
optimizer: {{type: sgd, learning_rate: 0.01}}
training: {{global_batch_size: 4, max_steps: 1000000}}
logging: {{logging_steps: 1}}
"""
        process = self.start(self.write("shrinks.yaml", text), "--output-dir", run)
        self.wait_for(lambda: process.poll() is not None or ((run / "metrics.jsonl").exists() and len(steps(run)) > 3), "steps")
        change()
        return process, run

    def test_packed_images_that_shrink_end_the_run_with_their_name(self):
        for kind, value in (("dark", 40), ("light", 200)):
            for i in range(8):
                self.write(f"images/{kind}/{i}.png", png(64, 64, lambda y, x: (value + i, value + x % 50, (x * y + i) % 256)))
        packed = self.folder / "train.images"
        folder = self.write("folder.yaml", f"data: {{type: image_folder, path: {self.folder / 'images'}}}\nmodel: {{layers: [flatten, {{linear: 2}}]}}\n"
                            "optimizer: {type: sgd, learning_rate: 0.01}\ntraining: {global_batch_size: 4, max_steps: 1}\n")
        self.run_dltrain("data", "prepare", folder, "-o", packed, "--encoding", "raw")
        process, run = self.while_it_trains(f"{{type: packed_images, path: {packed}}}", lambda: os.truncate(packed, 4096))
        result = self.end(process)
        self.assertEqual(result.code, DATA, str(result))
        self.assertIn(f"{packed}: was shortened", result.err)
        self.assertEqual(len(checkpoints(run)), 1, str(result))

    def test_tensors_are_in_memory_so_that_a_run_outlives_their_file(self):
        file = save_safetensors(self.folder / "data.safetensors", {"x": ("F32", [64, 512], [i % 7 for i in range(64 * 512)]),
                                                                   "y": ("I64", [64], [i % 2 for i in range(64)])})
        process, run = self.while_it_trains(f"{{type: tensors, path: {file}, inputs: x, targets: y}}", lambda: os.truncate(file, 100))
        seen = len(steps(run))
        self.wait_for(lambda: len(steps(run)) > seen + 50, "more steps")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process).code, STOPPED)
        # The next start finds the damage.
        self.refused(DATA, self.folder / "shrinks.yaml", "--output-dir", run, "--resume", "auto", says=str(file))


SANITIZED = b"__ubsan_handle" in Path(PROGRAM).read_bytes()


class Limits(DltrainTest):
    def test_no_limit_is_an_internal_error(self):
        """Files, processes' descriptors and memory, each limited to many values."""
        configuration = self.small()
        for ranks, kind, values in ((1, resource.RLIMIT_NOFILE, (4, 5, 6, 8, 12, 24)), (2, resource.RLIMIT_NOFILE, (4, 10, 18, 30, 40)),
                                    (1, resource.RLIMIT_FSIZE, (0, 100, 5000))):
            for value in values:
                if SANITIZED and kind == resource.RLIMIT_NOFILE and value < 24:
                    continue  # the sanitizer opens pipes to look at memory
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                result = self.run_dltrain(configuration, "-q", "--output-dir", self.folder / "run", "--nproc-per-node", ranks, code=None,
                                          preexec_fn=limited(kind, value))
                self.assertIn(result.code, (OK, USAGE, DATA, MEMORY, STORAGE, 6, 8), f"{kind} {value} {result}")
                self.assertNotIn("internal error", result.err, f"{kind} {value} {result}")

    def test_over_long_names_and_paths_are_no_internal_errors(self):
        long_name, long_path = "n" * 300, "/".join(["p" * 200] * 25)
        for code, command in (
                (STORAGE, (self.small(), "--name", long_name)), (STORAGE, (self.small(), "--output-dir", self.folder / long_name)),
                (STORAGE, (self.small(), "--output-dir", self.folder / long_path)),
                (STORAGE, (self.small(), "--output-dir", self.folder / long_path, "--resume", "auto")),
                (STORAGE, (self.small(), "--output-dir", self.folder / "run", "--resume", long_path)),
                (STORAGE, (self.small(), "--output-dir", self.folder / long_name, "--nproc-per-node", 2)),
                (STORAGE, (self.small(), "--output-dir", self.folder / "run", "--result", self.folder / long_name)),
                (USAGE, (self.folder / long_name,)), (USAGE, (long_path + ".yaml",)),
                (STORAGE, ("eval", self.small(), "--checkpoint", long_path)),
                (STORAGE, ("export", long_path, self.folder / "out"))):
            self.refused(code, *command, says="File name too long" if code == STORAGE else (), cwd=self.folder)

    def test_a_layer_that_cannot_fit_is_a_memory_error(self):
        for size, says in (("100000000", "model.layers[3] (linear) on [16, 100000000]: a tensor of shape"), ("1000000", "does not fit: needs")):
            text = SMALL.replace("out_features: 24", f"out_features: {size}").replace("out_features: 4}", f"out_features: {size}}}")
            self.refused(MEMORY, self.small(text), "--output-dir", self.folder / "run", says=says)
            self.assertFalse((self.folder / "run" / "config.yaml").exists())

    def test_escapes_in_names_are_shown_as_text(self):
        evil = self.folder / "evil\x1b]0;owned\x07\x1b[2J.csv"
        evil.write_text("1,2,3\n1,2\n")
        text = SMALL[: SMALL.index("data:")] + f"data: {{type: csv, path: {str(evil)!r}}}\n" + SMALL[SMALL.index("optimizer:"):]
        for command in ((self.write("evil.yaml", text.replace("'", '"').replace("\\x1b", "\\e").replace("\\x07", "\\a")),),
                        (evil.with_suffix(".yaml"),), ("eval", self.small(), "--checkpoint", evil)):
            result = self.run_dltrain(*command, code=None)
            self.assertNotEqual(result.code, OK)
            self.assertNotIn("\x1b", result.err + result.out)
            self.assertNotIn("\x07", result.err + result.out)
            self.assertIn("\\x1b", result.err)


if __name__ == "__main__":
    main()
