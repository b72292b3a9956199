"""scripts/gpu_check.py, rehearsed without a GPU: in an unpacked bundle, from another folder, with an empty environment; its
time, its parts that fail, and its record. scripts/gpu_record.py: the table of docs/gpu/README.md."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import support
from support import CHECK, DEVICE, OK, SOURCES, STOPPED, USAGE, DltrainTest

sys.path.insert(0, str(SOURCES / "scripts"))
import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402

PARTS, FAULTS = list(gpu_parts.SHARES), ("exit", "hang", "abort")

# Programs in the place of dltrain and gpu_check that stand for those of a machine with a GPU: they run on the CPU, small,
# and a profile names the kernels that a GPU must take (of the ops in $OWN: own kernels).
FAKE = """#!{python}
import json, os, subprocess, sys
sys.path.insert(0, "{root}/scripts")
import gpu_parts
words = ["cpu" if word == "cuda" else word for word in sys.argv[1:]]
if "--time" in words:
    words += ["--scale", "0.0001"]
if words[:1] == ["profile"]:
    config = words[1].split("/")[-1].removesuffix(".yaml")
    words += [word for setting in gpu_parts.SMALL[config] for word in ("-s", setting)] + ["--warmup", "1", "--steps", "1"]
status = subprocess.run(["{program}", *words]).returncode
if os.environ.get("CRASH") and "0/12" in words and "--skip" not in words:  # as if a case had ended the process
    path = words[words.index("--lines") + 1]
    lines = open(path).read().splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if json.loads(line).get("op") == os.environ["CRASH"])
    open(path, "w").writelines(lines[:end + 1])
    os.abort()
if words[:1] == ["profile"] and status == 0:
    print("warning: cuDNN does not run attention", flush=True)
    path = words[words.index("--result") + 1]
    profile = json.load(open(path))
    required = gpu_parts.REQUIRED["cuda"]
    for row in profile["ops"]:
        row["detail"] = "own" if row["name"] in os.environ.get("OWN", "").split() else required.get(row["name"], "own")
    rows = [row["name"] for row in profile["ops"]]
    present = gpu_parts.PRESENT.get(config + "_fp8" * any("fp8" in word for word in words), gpu_parts.PRESENT["gpt2_xl"])
    profile["ops"] += [dict(profile["ops"][0], name=op, detail=required.get(op, "own")) for op in present if op not in rows]
    json.dump(profile, open(path, "w"))
sys.exit(status if status >= 0 else 1)
"""


class GpuParts(DltrainTest):
    def test_a_kernel_that_is_not_the_required_one_is_told(self):
        rows = [{"name": op, "detail": gpu_parts.REQUIRED["cuda"][op], "calls": 12} for op in gpu_parts.PRESENT["bert_large"]]
        self.assertEqual(gpu_parts.wrong_kernels("cuda", "bert_large", rows), [])
        rows[1]["detail"] = "own"
        rows.append({"name": "softmax", "detail": "through f32", "calls": 1})
        self.assertEqual(gpu_parts.wrong_kernels("cuda", "bert_large", rows),
                         ["attention by own (12 calls) instead of cuDNN", "softmax by through f32 (1 calls)"])
        self.assertEqual(gpu_parts.wrong_kernels("cuda", "bert_large", rows[:1]),
                         ["no attention in the step", "no attention_backward in the step"])
        self.assertEqual(set(gpu_parts.PRESENT), set(gpu_parts.TARGETS))

    def test_an_op_whose_cases_did_not_end_is_not_proven(self):
        def line(op, dtype, fault=""):
            case = {"case": f"{op} [3]", "op": op, "dtype": dtype, "kernel": "own", "worst": 0.5, "fault": fault}
            return [{"begins": case["case"], "op": op, "dtype": dtype}, case]
        first = [*line("relu", "f32"), *line("add", "f32", "other bits"), line("mul", "f32")[0]]
        second = [*line("relu", "f32"), *line("relu", "bf16"), *line("add", "f32", "other bits"), {"ended": True}]
        found = []
        for lines in (first, second):
            self.write("lines.jsonl", "".join(json.dumps(entry) + "\n" for entry in lines) + '{"torn')
            found.append(gpu_parts.cases_of(self.folder, ""))
        self.assertEqual(gpu_parts.other_ops(found[0]), ["--skip", "mul"])
        self.assertIsNone(gpu_parts.other_ops(found[1]))
        record = {"engine": "cuda", "parts": {"ops": {"jobs": {"group-0": {"data": found[0]}}}}}
        self.assertEqual(gpu_record.proven(record), {}, "the other dtypes are missing")
        gpu_parts.add_cases(*found)
        self.assertEqual(gpu_record.proven(record), {"relu": ["own"], "add": []})
        self.assertEqual(found[0]["ops"]["relu"]["own"], {"f32": [1, 0, 0.5], "bf16": [1, 0, 0.5]})

    def test_every_target_is_planned(self):
        self.assertEqual({path.stem for path in (SOURCES / "configs" / "gpu").glob("*.yaml")}, {target[0] for target in gpu_parts.TARGETS.values()})
        for config, settings, *_ in gpu_parts.TARGETS.values():
            self.run_dltrain("plan", f"configs/gpu/{config}.yaml", "-s", "memory.budget=1TB", *(word for setting in settings for word in ("-s", setting)))


class GpuCheck(DltrainTest):
    def setUp(self):
        super().setUp()
        self.root, self.results = self.folder / "unpacked", self.folder / "results"
        for name in ("configs", "tests/golden"):
            shutil.copytree(SOURCES / name, self.root / name)
        (self.root / "bin").mkdir()
        (self.root / "scripts").mkdir()
        for name in ("dltrain", "gpu_check"):
            (self.root / "bin" / name).symlink_to(pathlib.Path(support.PROGRAM).parent / name)
        for name in ("gpu_check.py", "gpu_parts.py", "gpu_record.py"):
            shutil.copy(SOURCES / "scripts" / name, self.root / "scripts")

    def record_curves(self):
        """As scripts/bundle.sh does."""
        done = self.end(self.call("--curves", self.root / "curves.json", "--work", self.folder / "curves"))
        self.assertEqual(done.code, OK, str(done))

    def pretend(self):
        """Programs as on a machine with a GPU; compute-sanitizer is one that only runs its command."""
        for name in ("dltrain", "gpu_check"):
            path = self.root / "bin" / name
            path.unlink()
            path.write_text(FAKE.format(python=sys.executable, root=self.root, program=pathlib.Path(support.PROGRAM).parent / name))
            path.chmod(0o755)
        tool = self.folder / "tools" / "compute-sanitizer"
        tool.parent.mkdir()
        tool.write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
        tool.chmod(0o755)
        return {"PATH": f"{tool.parent}:/usr/bin:/bin"}

    def call(self, *arguments, engine="cpu", **popen):
        command = [sys.executable, str(self.root / "scripts" / "gpu_check.py"), "--engine", engine, "--results", str(self.results),
                   *map(str, arguments)]
        environment = popen.pop("env", {"PATH": "/usr/bin:/bin"})
        process = subprocess.Popen(command, cwd="/", env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **popen)
        self.started.append(process)
        return process

    def check(self, *arguments, code=OK, **popen):
        """Runs it to its end; the record."""
        done = self.end(self.call(*arguments, **popen))
        self.assertIn(done.code, code if isinstance(code, tuple) else (code,), str(done))
        return self.record()

    def record(self):
        """Of the folder for results, in which both files are whole and nothing else is. No process is left."""
        self.assertEqual(sorted(path.name for path in self.results.iterdir()), ["record.tar.gz", "summary.md"])
        with tarfile.open(self.results / "record.tar.gz") as tar:
            content = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
        self.assertEqual(content["record/summary.md"], (self.results / "summary.md").read_bytes())
        self.wait_for(lambda: not self.left(), "the last process", seconds=5)  # ranks end after their launcher
        return json.loads(content["record/record.json"])

    def left(self):
        """Commands of processes that read or write below the root."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes()
            except OSError:
                continue
            if str(self.root).encode() in command:
                found.append(command)
        return found

    def states(self, record, part):
        return {name: job["status"] for name, job in record["parts"][part]["jobs"].items()}

    def jobs(self):
        path = self.root / "gpu-check" / "jobs.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []  # a busy machine may have begun none
        return [(job["part"], job["job"], job["status"]) for job in map(json.loads, lines)]

    def test_calls_go_on_where_the_time_of_one_was_over(self):
        begin = time.monotonic()
        self.check("--seconds", 3, "--fault", "repeat=hang", "repeat", "ranks", code=STOPPED)  # however fast the machine is
        self.assertLess(time.monotonic() - begin, 30)
        first = {job[:2] for job in self.jobs() if job[2] == "passed"}
        # On another machine, from the record alone. What others need of a lost folder is made again.
        earlier = self.folder / "earlier.tar.gz"
        shutil.move(self.results / "record.tar.gz", earlier)
        shutil.rmtree(self.root / "gpu-check")
        for _ in range(40):
            shutil.rmtree(self.results)
            done = self.end(self.call("--seconds", 20, "repeat", "ranks", "--earlier", earlier))
            if done.code != STOPPED:
                break
        self.assertEqual(done.code, OK, str(done))
        record = self.record()
        for part in ("repeat", "ranks"):
            self.assertEqual(record["parts"][part]["result"], "passed")
        passed = [job[:2] for job in self.jobs() if job[2] == "passed"]
        self.assertLessEqual({job for job in passed if passed.count(job) > 1}, first, "a job that has passed is run again")
        self.assertEqual(record["proven"], {})
        shutil.rmtree(self.root / "gpu-check")
        shutil.move(self.results / "record.tar.gz", earlier)
        self.check("repeat", "--earlier", earlier)
        self.assertEqual(len(self.jobs()), len(set(passed)) + sum(job[2] == "cut" for job in self.jobs()))

    def expect_fault(self, part, kind, seconds):
        """A fault costs its part's first job alone; another part passes."""
        beside = "ranks" if part != "ranks" else "repeat"
        shutil.rmtree(self.root / "gpu-check", ignore_errors=True)
        record = self.check("--fault", f"{part}={kind}", "--seconds", seconds, part, beside, code=(CHECK, STOPPED))
        states = self.states(record, part)
        if kind == "hang":
            self.assertIn("cut", states.values())
        else:
            self.assertEqual(list(states.values()).count("failed"), 1, states)
            self.assertIn("signal SIGABRT" if kind == "abort" else "exit status 1", (self.results / "summary.md").read_text())
            self.assertIn("with blocking launches", (self.results / "summary.md").read_text())
        self.assertIn("passed", self.states(record, beside).values(), "another part runs")
        self.assertNotIn("failed", self.states(record, beside).values())

    def expect_term(self, part):
        """SIGTERM in the part's first job: the record is written at once, and nothing goes on running."""
        process = self.call("--fault", f"{part}=hang", "--seconds", 300, part)
        while not process.stdout.readline().startswith(f"== {part}"):
            self.assertIsNone(process.poll())
        time.sleep(0.3)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        done = self.end(process)
        self.assertEqual(done.code, STOPPED, str(done))
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(list(self.states(self.record(), part).values()), ["cut"])

    def test_a_fault_costs_its_job_alone(self):
        for kind in FAULTS:
            self.expect_fault("texts", kind, 24)

    def test_it_ends_at_sigterm(self):
        self.expect_term("speed")

    def test_targets_that_ran_by_other_kernels_fail(self):
        record = self.check("speed", engine="cuda", env={**self.pretend(), "OWN": "attention"}, code=CHECK)
        bad = {name for name, state in self.states(record, "speed").items() if state == "failed"}
        self.assertEqual(bad, {name for name, ops in gpu_parts.PRESENT.items() if "attention" in ops})
        summary = (self.results / "summary.md").read_text()
        self.assertRegex(summary, r"attention by own .* instead of cuDNN")
        self.assertIn("Slowest calls of gpt2_xl", summary, "what it was is told all the same")
        self.assertIn("* warning: cuDNN does not run attention", summary)

    def test_long_rehearsal_of_every_part(self):
        self.rehearse()

    def test_long_rehearsal_as_on_a_gpu(self):
        self.rehearse(engine="cuda", env=self.pretend())
        docs = self.root / "docs" / "gpu"
        docs.mkdir(parents=True)
        shutil.copy(SOURCES / "docs" / "gpu" / "README.md", docs)
        self.record_script("add", self.results / "record.tar.gz")
        self.assertIn("| gpt2_124m_b64 |", (docs / "README.md").read_text())

    def test_long_a_case_that_ends_its_process_loses_its_op_alone(self):
        record = self.check("ops", "--seconds", 600, engine="cuda", env={**self.pretend(), "CRASH": "tanh"}, code=CHECK)
        job = record["parts"]["ops"]["jobs"]["group-0"]
        self.assertIn("SIGABRT", job["why"])
        self.assertEqual(job["rest"], "--skip tanh: passed")
        self.assertNotIn("tanh", record["proven"])
        self.assertGreater(len(record["proven"]), 100)
        self.assertEqual(set(self.states(record, "ops").values()), {"failed", "passed"})

    def rehearse(self, **popen):
        self.record_curves()
        for _ in range(20):
            done = self.end(self.call("--seconds", 240, **popen))
            if done.code != STOPPED:
                break
        self.assertEqual(done.code, OK, str(done))
        record = self.record()
        for part in PARTS:
            self.assertLessEqual(set(self.states(record, part).values()), {"passed", "skipped"}, part)
            self.assertTrue(record["parts"][part]["jobs"], part)
        text = (self.results / "summary.md").read_text()
        for heading in ("Ceilings", "Speed of the targets", "Slowest calls of resnet50", "Op cases", "Times: gemm", "Times: variants"):
            self.assertIn(f"# {heading}", text)

    def test_long_faults_and_signals_in_every_part(self):
        self.record_curves()
        for part in PARTS:
            for kind in FAULTS:
                with self.subTest(part=part, kind=kind):
                    self.expect_fault(part, kind, 60)
            with self.subTest(part=part):
                shutil.rmtree(self.root / "gpu-check")
                self.expect_term(part)

    def test_mistakes_and_a_machine_without_a_gpu(self):
        done = self.end(self.call("nonsense"))
        self.assertEqual(done.code, USAGE)
        self.assertIn("the parts are: device speed ops", done.out)
        done = self.end(self.call("device", "ops:nonsense"))
        self.assertEqual(done.code, USAGE)
        self.assertIn("ops has no such job; its jobs are: group-0", done.out)
        done = self.end(self.call("--work", self.root))
        self.assertIn("holds other files", done.out)
        if not pathlib.Path("/dev/nvidia0").exists():
            self.check(engine="cuda", code=DEVICE)
            self.assertIn("The engine cannot be used", (self.results / "summary.md").read_text())

    def test_what_another_program_has_left_does_not_count(self):
        self.check("device")
        record = shutil.move(self.results / "record.tar.gz", self.folder / "other.tar.gz")
        with (self.root / "bin" / "gpu_check").open("rb") as file:
            content = file.read()
        (self.root / "bin" / "gpu_check").unlink()
        (self.root / "bin" / "gpu_check").write_bytes(content + b"another")
        (self.root / "bin" / "gpu_check").chmod(0o755)
        self.check("texts")
        self.assertEqual({job[0] for job in self.jobs()}, {"texts"})
        shutil.rmtree(self.root / "gpu-check")
        done = self.end(self.call("texts", "--earlier", record))
        self.assertEqual(done.code, 1)
        self.assertIn("is of another program", done.out)

    def record_script(self, *arguments, code=OK):
        done = self.end(self.begin([sys.executable, str(self.root / "scripts" / "gpu_record.py"), *map(str, arguments)]))
        self.assertEqual(done.code, code, str(done))
        return done

    def test_the_readme_follows_the_newest_record(self):
        done = self.end(self.begin([sys.executable, str(SOURCES / "scripts" / "gpu_record.py"), "readme", "--check"]))
        self.assertEqual(done.code, OK, str(done))
        docs = self.root / "docs" / "gpu"
        docs.mkdir(parents=True)
        shutil.copy(SOURCES / "docs" / "gpu" / "README.md", docs)
        self.check("device", code=OK)
        archive = self.results / "record.tar.gz"
        self.assertIn("is not of a GPU", self.record_script("add", archive, code=1).err)
        # As a GPU would leave it.
        record = self.record()
        cases = {"device": {"name": "NVIDIA H100"}, "ops": {"relu": {"own": {"f32": [3, 0, 0.1]}}, "add": {"own": {"f32": [3, 1, 9]}}}}
        record.update(engine="cuda", proven={"relu": ["own"], "add": []})
        record["parts"]["ops"]["jobs"]["group-0"] = {"status": "passed", "seconds": 1, "why": "", "data": cases}
        folder = self.folder / "record"

        def pack(path):
            folder.mkdir(exist_ok=True)
            (folder / "record.json").write_text(json.dumps(record))
            with tarfile.open(path, "w:gz") as tar:
                tar.add(folder, "record")
        pack(archive)
        self.assertIn(f"docs/gpu/{record['date']}-nvidia-h100.md", self.record_script("add", archive).out)
        text = (docs / "README.md").read_text()
        self.assertIn("1 kernels of 2 ops", text)
        self.assertNotIn("**Nothing yet.**", text)
        self.record_script("readme", "--check")
        (docs / "README.md").write_text(text.replace("1 kernels", "9 kernels"))
        self.record_script("readme", "--check", code=1)
        # What it has not finished comes from an earlier record, the rest does not.
        cases["ops"] = {"mul": {"own": {"f32": [1, 0, 0.1]}}}
        record["version"] = "dltrain of before"
        record["parts"]["ops"]["jobs"] = {"group-0": {"status": "failed", "seconds": 1, "why": "wrong"},
                                          "group-1": {"status": "passed", "seconds": 1, "why": "", "data": cases}}
        earlier = self.folder / "earlier.tar.gz"
        pack(earlier)
        self.record_script("add", archive, earlier)
        self.assertIn("2 kernels of 3 ops", (docs / "README.md").read_text())
        summary = next(docs.glob("*-nvidia-h100.md")).read_text()
        self.assertIn("`dltrain of before`", summary)
        self.assertNotIn("wrong", summary)


if __name__ == "__main__":
    support.main()
