#!/usr/bin/env python3
"""Checks dltrain on a machine with a GPU: proof, speed and a profile, in one command of bounded time.

Runs from an unpacked bundle (scripts/bundle.sh) or from the repository after a build, from any folder. It needs python3,
the NVIDIA driver, and CUDA's libraries (toolkit or Python packages: CUDA runtime, cuBLASLt, cuDNN 9, NVRTC).

Each part is a list of jobs, one process each. A job that fails, crashes or hangs costs itself alone; a failed one runs
once more with CUDA_LAUNCH_BLOCKING=1 and the vendors' logs. What is done is kept in the folder --work; another call goes
on with the rest. After every part, and on SIGTERM, record.tar.gz and summary.md are rewritten in the folder --results.

Exit status: 0 everything passed, 2 usage, 8 no usable GPU, 9 a job failed, 75 jobs are left for another call.
"""
import argparse
import dataclasses
import glob
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
FAULTS = {"exit": "exit 1", "hang": "trap '' TERM; sleep 3600", "abort": "kill -ABRT $$"}
ATTEMPTS = 4  # of a job that its part's share has cut
DIAGNOSED = 3  # failed jobs of a part that run again with logs


def vendor_folders():
    """Folders with NVIDIA's libraries: those of the toolkit, the driver, and Python packages."""
    folders = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/nvidia/lib64"]
    for path in filter(None, sys.path):
        folders += sorted(glob.glob(f"{path}/nvidia/*/lib"))
    return [folder for folder in dict.fromkeys(folders) if glob.glob(f"{folder}/lib*.so*")]


class Check:
    """The folder of work, the deadline, and the process that runs."""

    def __init__(self, options):
        self.options, self.engine, self.root = options, options.engine, ROOT
        self.work, self.results = options.work.resolve(), options.results.resolve()
        self.started, self.end = time.time(), time.monotonic() + 0.97 * options.seconds
        self.process, self.stopped, self.written = None, False, time.monotonic()
        programs = ROOT / "bin" if (ROOT / "bin" / "dltrain").exists() else options.build
        self.dltrain, self.gpu_check = programs / "dltrain", programs / "gpu_check"
        self.plugin = next((p for p in (programs / "libdltrain_cuda.so", ROOT / "lib/libdltrain_cuda.so") if p.exists()), None)
        self.environment = dict(os.environ, DLTRAIN_CACHE_DIR=str(self.work / "cache"))
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *vendor_folders()]))
        self.diagnosed = []  # the part of every failed job that ran again with logs
        self.attempts = []  # one dictionary for every run of a job, as in jobs.jsonl

    def open_work(self):
        """Keeps what an earlier call of the same program and engine has left."""
        self.version = self.output([self.dltrain, "version"])
        files = filter(None, [self.dltrain, self.gpu_check, self.plugin])
        self.identity = identity = f"{self.engine} {hashlib.sha256(b''.join(file.read_bytes() for file in files)).hexdigest()}"
        marker = self.work / "gpu_check.identity"
        if marker.exists() and marker.read_text() != identity:
            shutil.rmtree(self.work)
        if self.work.exists() and not marker.exists() and any(self.work.iterdir()):
            sys.exit(f"{self.work} holds other files: name another folder with --work")
        if not marker.exists() and self.options.earlier:
            for archive in self.options.earlier:
                gpu_record.unpack(archive, self.work, identity)
        for name in ("logs", "out"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        marker.write_text(identity)
        if (self.work / "jobs.jsonl").exists():
            self.attempts = [json.loads(line) for line in (self.work / "jobs.jsonl").read_text().splitlines()]

    def output(self, command):
        try:
            return subprocess.run([str(word) for word in command], cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace").stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{error}\n"

    def stop(self, *_):
        """SIGTERM: the job that runs is ended, the record is written."""
        self.stopped = True
        self.kill()

    def kill(self):
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def execute(self, command, log, seconds, extra=()):
        """(exit status or None where the time ran out, seconds). Nothing of the process is left behind."""
        begin = time.monotonic()
        with open(log, "wb") as file:
            self.process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env={**self.environment, **dict(extra)},
                                            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            status = None
            while status is None and not self.stopped and time.monotonic() - begin < seconds:
                try:
                    status = self.process.wait(min(0.5, max(0.01, seconds - (time.monotonic() - begin))))
                except subprocess.TimeoutExpired:
                    pass
            self.kill()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                file.write(b"\nthe process does not end after SIGKILL\n")
            self.process = None
        return status, time.monotonic() - begin

    def run_once(self, part, job, name, seconds, extra=()):
        """One run of a job; what jobs.jsonl says about it."""
        out, log = self.work / "out" / name, self.work / "logs" / f"{name}.log"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        command = [str(word).replace("{out}", str(out)) for word in job.command]
        fault = dict(self.options.fault).get(part)
        if fault and job.name == self.chosen[part][0].name:
            command = ["/bin/sh", "-c", FAULTS[fault]]
        limit = min(job.limit, seconds)
        done = {"part": part, "job": job.name, "status": "passed", "why": "", "data": None}
        try:
            status, done["seconds"] = self.execute(command, log, limit, {**job.environment, **dict(extra)}.items())
        except OSError as error:
            return {**done, "status": "failed", "seconds": 0, "why": str(error)}
        if self.stopped or (status is None and limit < job.limit):
            return {**done, "status": "cut", "why": "stopped" if self.stopped else "the part's share of the time was over"}
        if status is None:
            done.update(status="failed", why=f"did not end within {limit:.0f} s")
        elif status == gpu_parts.SKIPPED:
            done.update(status="skipped", why=gpu_record.last_line(log))
        elif status not in job.statuses:
            what = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            done.update(status="failed", why=f"{what}: {gpu_record.last_line(log)}")
        try:  # what a failed job has left is worth reading too
            if job.check and done["status"] != "skipped":
                done["data"] = job.check(out, log.read_text(errors="replace"))
        except gpu_parts.Wrong as wrong:
            done["data"] = wrong.data
            if done["status"] == "passed":
                done.update(status="skipped" if isinstance(wrong, gpu_parts.Skip) else "failed", why=str(wrong))
        except Exception as error:  # a broken file is this job's failure
            if done["status"] == "passed":
                done.update(status="failed", why=f"{type(error).__name__}: {error}")
        return done

    def run_job(self, part, job, end):
        name = f"{part}-{job.name}"
        done = self.run_once(part, job, name, end - time.monotonic())
        if done["status"] == "cut" and not self.stopped and len(self.cuts(part, job)) + 1 >= ATTEMPTS:
            done["status"] = "failed"
        if done["status"] == "failed" and self.diagnosed.count(part) < DIAGNOSED and end - time.monotonic() > 1:
            self.diagnosed.append(part)
            logs = {vendor: self.work / "logs" / f"{name}.{vendor}.log" for vendor in ("cublaslt", "cudnn", "frontend", "nccl")}
            again = self.run_once(part, job, f"{name}.again", end - time.monotonic(), {
                "CUDA_LAUNCH_BLOCKING": "1", "CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": str(logs["cublaslt"]),
                "CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": str(logs["cudnn"]),
                "CUDNN_FRONTEND_LOG_INFO": "1", "CUDNN_FRONTEND_LOG_FILE": str(logs["frontend"]),
                "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(logs["nccl"])}.items())
            done["again"] = f"with blocking launches: {again['status']} {again['why']}".strip()
        extra = job.rest(done["data"]) if job.rest and done["status"] == "failed" else None
        if extra and end - time.monotonic() > 1:
            rest = self.run_once(part, dataclasses.replace(job, command=[*job.command, *extra]), f"{name}.rest", end - time.monotonic())
            if rest["data"]:
                gpu_parts.add_cases(done["data"], rest["data"])
            done["rest"] = f"{' '.join(extra)}: {rest['status']} {rest['why']}".strip()
        self.note(done)

    def note(self, done):
        self.attempts.append(done)
        with open(self.work / "jobs.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(done) + "\n")
        print(f"   {done['job']}: {done['status']} ({done['seconds']:.1f} s) {done['why']}", flush=True)

    def cuts(self, part, job):
        """The seconds that the job ran each time that its part's share was over."""
        return [a["seconds"] for a in self.attempts
                if (a["part"], a["job"]) == (part, job.name) and a["status"] == "cut" and a["why"] != "stopped"]

    def left(self, part):
        """The jobs of a part that have no result: first those that no share has cut yet, and whose needs it has not cut. A job that
        has passed is among them if its folder is lost (--earlier) and needed."""
        last = {a["job"]: a["status"] for a in self.attempts if a["part"] == part}
        final = {a["job"] for a in self.attempts if a["part"] == part and a["status"] != "cut"}
        cut = {name for name, status in last.items() if status == "cut"}
        needed = {need for job in self.chosen[part] if job.name not in final for need in job.needs}
        lost = {name for name in needed if name in cut or not (self.work / "out" / f"{part}-{name}").exists()}
        todo = (job for job in self.chosen[part] if job.name not in final or job.name in lost)
        return sorted(todo, key=lambda job: not cut.isdisjoint((job.name, *job.needs)))

    def run_part(self, part, share):
        print(f"== {part}: {len(self.left(part))} of {len(self.chosen[part])} jobs, {share:.0f} s", flush=True)
        end = time.monotonic() + share
        for job in self.left(part):
            left, cut = end - time.monotonic(), max(self.cuts(part, job), default=0)
            if self.stopped or left <= 0:
                break
            if not {other.name for other in self.left(part)}.isdisjoint(job.needs):
                continue
            if left > 1.3 * cut:  # less would cut it again
                self.run_job(part, job, end)
            if time.monotonic() - self.written > 20:
                self.write()

    def write(self, problem=None):
        """Rewrites the record; that it cannot be written does not end the check."""
        self.written = time.monotonic()
        names = {part: [job.name for job in jobs] for part, jobs in self.jobs.items()}
        try:
            gpu_record.write(self.work, self.results, {
                "format": 1, "problem": problem, "engine": self.engine, "version": self.version, "identity": self.identity,
                "date": time.strftime("%Y-%m-%d", time.gmtime(self.started)), "parts": gpu_record.parts_of(self.attempts, names)})
        except Exception as error:
            print(f"the record is not written: {type(error).__name__}: {error}", file=sys.stderr)

    def usable(self):
        """None, or why the engine cannot be used, with what the loader says."""
        log = self.work / "logs" / "engine.log"
        status, _ = self.execute([self.gpu_check, "--engine", self.engine, "--op", "loss_seed"], log, 30)
        why = log.read_text(errors="replace").strip()
        if status != 8 or "after this case" in why:  # a wrong kernel is a matter of the parts
            return None
        if self.plugin is not None and shutil.which("ldd"):
            why += f"\nldd {self.plugin.name}:\n{self.output(['ldd', self.plugin])}"
        log.write_text(why)
        return why

    def run(self):
        for program in (self.dltrain, self.gpu_check):
            if not program.exists():
                sys.exit(f"{program} does not exist: build it, or run this script from an unpacked bundle")
        self.open_work()
        self.jobs = gpu_parts.parts(self)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.stop)
        chosen = {}  # {part: how its jobs begin}
        for part, _, begin in (word.partition(":") for word in self.options.parts):
            chosen.setdefault(part, []).append(begin)
        wanted = list(chosen) or list(self.jobs)
        unknown = [part for part in wanted if part not in self.jobs]
        if unknown:
            print(f"unknown part '{unknown[0]}'; the parts are: {' '.join(self.jobs)}", file=sys.stderr)
            return 2
        self.chosen = {part: [job for job in self.jobs[part] if job.name.startswith(tuple(chosen.get(part, [""])))] for part in wanted}
        empty = [part for part in wanted if not self.chosen[part]]
        if empty:
            print(f"{empty[0]} has no such job; its jobs are: {' '.join(job.name for job in self.jobs[empty[0]])}", file=sys.stderr)
            return 2
        why = self.usable()
        if why is not None and not self.stopped:
            print(why, file=sys.stderr)
            self.write(why)
            return 8
        for turn in (wanted, wanted):  # what later parts leave of their shares goes to those that were cut
            for i, part in enumerate(turn):
                todo, left = [p for p in turn[i:] if self.left(p)], self.end - time.monotonic()
                if self.stopped or part not in todo or left <= 0:
                    continue
                self.run_part(part, left * gpu_parts.SHARES[part] / sum(gpu_parts.SHARES[p] for p in todo))
                self.write()
        self.write()
        print(self.results / "summary.md")
        if any(a["status"] == "failed" for a in self.attempts):
            return 9
        return 75 if any(self.left(part) for part in wanted) else 0


def fault(text):
    part, _, kind = text.partition("=")
    if kind not in FAULTS:
        raise argparse.ArgumentTypeError(f"PART={'|'.join(FAULTS)}")
    return part, kind


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART[:JOBS]",
                        help="parts to run (default: all), or those of their jobs whose names begin with JOBS")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "gpu-results", help="folder of record.tar.gz and summary.md")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "gpu-check", help="folder kept between calls")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="programs, outside of a bundle")
    parser.add_argument("--earlier", type=pathlib.Path, action="append", default=[],
                        help="record.tar.gz of an earlier call, where its --work is lost, or of a call beside this one; repeatable")
    parser.add_argument("--seconds", type=float, default=480, help="time of this call (default 480)")
    parser.add_argument("--engine", choices=["cuda", "cpu"], default=os.environ.get("ENGINE", "cuda"), help="cpu: a rehearsal")
    parser.add_argument("--curves", type=pathlib.Path, help="only record the losses of the CPU that a GPU is compared with")
    parser.add_argument("--fault", type=fault, action="append", default=[], help="for tests: the first job of PART does this")
    options = parser.parse_args()
    check = Check(options)
    if options.curves:
        return gpu_parts.record_curves(check, options.curves)
    return check.run()


if __name__ == "__main__":
    sys.exit(main())
