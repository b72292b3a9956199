"""The files of examples/cluster: their commands run here, with substitutes for srun, scontrol and Kubernetes."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys

sys.path.append("/usr/lib/python3/dist-packages")  # for another python3 than the distribution's
import yaml  # package python3-yaml

from launching import answers, free_port
from support import CHECK, DATA, DIVERGED, MEMORY, OK, PROGRAM, RANK, SMALL, SOURCES, STOPPED, USAGE, DltrainTest, main, steps

FOLDER = SOURCES / "examples" / "cluster"
STEPS, LOGGED = 10000, 100  # some seconds, so that a signal after the first logged step finds the run
LONG = SMALL.replace("max_steps: 40", f"max_steps: {STEPS}").replace("save_steps: 10", "save_steps: 1000")
LONG = LONG.replace("logging_steps: 1", f"logging_steps: {LOGGED}")

# Starts the tasks of a step, each as if on a node of its own. Takes the first line of the file `signals`, if there is one,
# and sends that signal after a logged step: TERM to all tasks, as slurmd does before the time limit, KILL to the last.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
echo "$DLTRAIN_STORE_SECRET $MASTER_PORT $*" >>srun.log
logged() { find runs -name metrics.jsonl -exec cat {} + 2>/dev/null | wc -l; }
before=$(logged)
pids=()
for ((task = 0; task < SLURM_NTASKS; task++)); do
  SLURM_STEP_ID=0 SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS \\
    SLURM_STEP_TASKS_PER_NODE="1(x$SLURM_NTASKS)" SLURM_STEP_NODELIST=127.0.0.1 "$@" &
  pids+=($!)
done
signal=$(head -n 1 signals 2>/dev/null)
if [ -n "$signal" ]; then
  sed -i 1d signals
  until [ "$(logged)" -gt "$before" ] || ! kill -0 ${pids[0]}; do sleep 0.02; done
  if [ "$signal" = KILL ]; then kill -KILL ${pids[-1]}; else kill "-$signal" "${pids[@]}"; fi
fi
code=0
for pid in "${pids[@]}"; do wait $pid; ended=$?; if ((ended > code)); then code=$ended; fi; done
exit $code
"""


def container(instruction):
    """What follows each instruction of this name in the Containerfile, without the line ends."""
    return re.findall(rf"^{instruction} (.*)$", (FOLDER / "Containerfile").read_text().replace("\\\n", " "), re.M)


class Cluster(DltrainTest):
    def setUp(self):
        super().setUp()
        for name, script in (("srun", SRUN), ("scontrol", '#!/bin/bash\necho "$*" >>scontrol.log\n')):
            self.write(f"bin/{name}", script).chmod(0o755)
        (self.folder / "bin" / "dltrain").symlink_to(PROGRAM)
        self.run_folder = self.folder / "runs" / "small"

    def log(self, program):
        path = self.folder / f"{program}.log"
        return path.read_text().splitlines() if path.exists() else []

    def submit(self, script, *arguments, tasks=2, job=None):
        """Starts a batch script with the variables of an allocation."""
        job = job or next(number for number in random.sample(range(1, 20000), 100) if not answers(10000 + number))
        return self.begin(["bash", str(FOLDER / script), *map(str, arguments)], cwd=self.folder, env={
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": str(job), "SLURM_CPUS_PER_TASK": "1",
            "SLURM_NTASKS": str(tasks)})

    def assert_ends(self, code, *processes):
        results = [self.end(process) for process in processes]
        self.assertEqual([result.code for result in results], [code] * len(results), "\n".join(map(str, results)))
        return results

    def assert_all_steps(self, run):
        logged = [line["step"] for line in steps(run)]
        self.assertEqual(logged, sorted({*logged, *range(LOGGED, STEPS + 1, LOGGED)}))

    def assert_whole_run(self):
        """No step is logged twice, and the state is that of a run that nobody stopped."""
        self.assert_all_steps(self.run_folder)
        self.run_dltrain(self.folder / "exp.yaml", "-q", "--output-dir", self.folder / "one", "--nproc-per-node", 2,
                         env={"OMP_NUM_THREADS": "1"})
        self.assert_same_state(self.folder / "one", self.run_folder)

    def test_a_slurm_job_continues_after_a_lost_rank_and_after_its_time_limit(self):
        self.write("exp.yaml", LONG)
        self.write("signals", "KILL\nTERM\n")
        result, = self.assert_ends(STOPPED, self.submit("job.sbatch", "exp.yaml", "-q"))
        self.assertIn("attempt 1 ended with code 137", result.err)
        self.assertLess(steps(self.run_folder)[-1]["step"], STEPS)
        job = re.fullmatch(r"requeue (\d+)", self.log("scontrol")[0])[1]
        self.assert_ends(OK, self.submit("job.sbatch", "exp.yaml", "-q", job=job))
        self.assert_whole_run()
        self.assertEqual(len(self.log("scontrol")), 1)
        calls = [line.split(" ", 1) for line in self.log("srun")]
        self.assertEqual([rest for _, rest in calls], [f"{10000 + int(job)} dltrain exp.yaml -q --resume auto"] * 3)
        self.assertRegex(calls[0][0], r"^[0-9a-f]{32}$")
        self.assertEqual([secret == calls[0][0] for secret, _ in calls], [True, True, False])

    def test_a_slurm_job_with_a_mistake_is_not_repeated(self):
        self.write("exp.yaml", SMALL.replace("gelu", "glue"))
        self.assert_ends(USAGE, self.submit("job.sbatch", "exp.yaml"))
        self.assertEqual((len(self.log("srun")), self.log("scontrol")), (1, []))

    def test_tasks_of_a_slurm_array_share_a_sweep(self):
        self.write("sweep.yaml", LONG + "sweep: {search: grid, parameters: {optimizer.learning_rate: [0.01, 0.02, 0.03, 0.04]}}\n")
        self.write("signals", "TERM\n")
        self.assert_ends(STOPPED, self.submit("sweep.sbatch", "sweep.yaml", tasks=1, job=7))
        self.assertEqual(self.log("scontrol"), ["requeue 7"])
        self.assert_ends(OK, *(self.submit("sweep.sbatch", "sweep.yaml", tasks=1, job=job) for job in (7, 8)))
        runs = list((self.folder / "runs" / "sweep-small").glob("*/run"))
        self.assertEqual(len(runs), 4)
        for run in runs:
            self.assert_all_steps(run)

    def pods(self, file, ranks):
        """The Job of a file, and a function that starts the container of a pod here: with `ranks` GPUs, at 127.0.0.1."""
        objects = {entry["kind"]: entry for entry in yaml.safe_load_all((FOLDER / file).read_text(encoding="utf-8"))}
        job, name = objects["Job"]["spec"], objects["Job"]["metadata"]["name"]
        pod = job["template"]["spec"]
        only, = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        self.assertEqual({mount["name"] for mount in only["volumeMounts"]}, set(volumes))
        self.assertEqual(volumes["work"]["persistentVolumeClaim"]["claimName"], objects["PersistentVolumeClaim"]["metadata"]["name"])
        self.assertEqual(pod["securityContext"]["fsGroup"], int(container("USER")[0]))
        here = {"gpu": str(ranks), "/config/exp.yaml": str(self.write("exp.yaml", LONG))}
        if job.get("completionMode") == "Indexed":
            self.assertEqual(pod["subdomain"], objects["Service"]["metadata"]["name"])
            self.assertEqual(objects["Service"]["spec"]["selector"], {"batch.kubernetes.io/job-name": name})
            here[f"{name}-0.{pod['subdomain']}"] = "127.0.0.1"
            self.assertEqual(only["args"][:3], ["launch", "--nnodes", str(job["completions"])])
        variables = {"PET_MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        variables.update((variable["name"], "sesame") for variable in only.get("env", []))

        def start(index):
            known = dict(variables, JOB_COMPLETION_INDEX=str(index))
            words = [re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], here.get(word, word)) for word in only["args"]]
            return self.begin([PROGRAM, *words], cwd=self.folder, env=known)

        return job, start

    def wait_for_a_step(self, process):
        path = self.run_folder / "metrics.jsonl"
        self.wait_for(lambda: process.poll() is not None or path.exists() and path.stat().st_size > 0, "a step")

    def stop_and_continue(self, file, ranks):
        job, start = self.pods(file, ranks)
        indices = range(job.get("completions", 1))
        processes = [start(index) for index in indices]
        self.wait_for_a_step(processes[0])
        processes[-1].send_signal(signal.SIGTERM)  # one pod is evicted
        self.assert_ends(STOPPED, *processes)
        self.assertLess(steps(self.run_folder)[-1]["step"], STEPS)
        self.assert_ends(OK, *(start(index) for index in indices))
        self.assert_whole_run()
        rules = [(rule["action"], rule["onExitCodes"]["values"]) for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
        self.assertEqual(rules, [("Ignore", [STOPPED]), ("FailJob", [USAGE, DATA, DIVERGED, MEMORY, CHECK])])

    def test_a_kubernetes_job_continues(self):
        self.stop_and_continue("job.yaml", 2)

    def test_pods_of_an_indexed_job_continue(self):
        self.stop_and_continue("indexed-job.yaml", 1)

    def test_the_launcher_of_a_lost_pod_is_replaced(self):
        job, start = self.pods("indexed-job.yaml", 1)
        first, lost = start(0), start(1)
        self.wait_for_a_step(first)
        lost.kill()
        for _ in range(job["backoffLimit"]):  # one that comes before the loss is noticed is refused
            replacement = self.end(start(1))
            if replacement.code != RANK:
                break
        self.assertEqual(replacement.code, OK, str(replacement))
        self.assert_ends(OK, first)
        self.assert_whole_run()

    def test_the_containers_build_stage_has_the_files_that_it_needs(self):
        context = self.folder / "src"
        (context / "scripts").mkdir(parents=True)
        for *sources, target in map(str.split, container("COPY")):
            if not sources[0].startswith("--from"):
                self.shell(f"cp -r {' '.join(sources)} {context / target}", SOURCES)
        install, build, packages = container("RUN")[:3]
        self.shell(f"{install} --list", context)  # the packages that lack here, if any
        for script in ("install_dependencies", "cudnn_frontend"):
            for called in re.findall(r"^[^#\n]*?(scripts/\w+\.sh)", (SOURCES / f"scripts/{script}.sh").read_text(), re.M):
                self.assertTrue((context / called).exists(), called)
        self.shell("DLTRAIN_CUDA=OFF; " + build.split("&&")[0], context)
        if not shutil.which("dpkg-query"):
            return
        # The packages that it finds for this program have the libraries that the loader needs.
        self.shell(packages.replace("/opt/dltrain/bin/dltrain", PROGRAM).replace("/opt/dltrain/packages", "packages"))
        files = {path.rsplit("/", 1)[-1] for path in self.shell("xargs dpkg-query --listfiles <packages").splitlines()}
        needed = set(re.findall(r"^\s*(\S+) => /lib", self.shell(f"ldd {PROGRAM}"), re.M))
        self.assertGreater(len(needed), 5)
        self.assertEqual(needed - files, set())

    def shell(self, script, cwd=None):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=cwd or self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_the_containers_commands_pass_shellcheck(self):
        self.assertEqual(container("ENTRYPOINT"), ['["dltrain"]'])
        for command in container("RUN"):
            done = subprocess.run(["shellcheck", "--shell=sh", "-"], input=command + "\n", capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")

    def test_flags_in_what_people_read_exist(self):
        helps, flags = {}, []
        commands = re.findall(r"^  (\w\S+)  +\S", self.run_dltrain("--help").out, re.M)
        for path in sorted(FOLDER.iterdir()):
            for words in re.findall(r"(?<![/\w])dltrain(?:\.sif)?((?: [^\s`|&;#]+)+)", path.read_text(encoding="utf-8")):
                words = words.split()
                command = words[0] if words[0] in commands else "train"
                if command not in helps:
                    helps[command] = self.run_dltrain(command, "--help").out
                flags += [(path.name, command, word) for word in words if word.startswith("-")]
        for name, command, flag in flags:
            self.assertRegex(helps[command], rf"(?m)^  (\S+,)?{flag}\b", f"{name}: dltrain {command} {flag}")
        self.assertGreater(len(flags), 5, flags)


if __name__ == "__main__":
    main()
