#!/usr/bin/env python3
"""Writes what scripts/gpu_check.py has found: record.tar.gz and summary.md, and docs/gpu/README.md's table.

    gpu_record.py add record.tar.gz [EARLIER.tar.gz...]
                                       keeps a record as docs/gpu/<date>-<device>.json and .md, and renews the table; jobs
                                       that it has not finished are taken from earlier records, with their revision
    gpu_record.py readme [--check]     writes the table of docs/gpu/README.md from the newest record, or compares it
"""
import io
import json
import pathlib
import re
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "gpu"
HEAD, TAIL = 16 << 10, 48 << 10  # bytes of a log that are kept
MOST = 4 << 20  # bytes of a result file that is kept
CASES = "ops", "variants", "sanitizer"  # the parts that run op cases
MARKS = "<!-- written by scripts/gpu_record.py -->", "<!-- end -->"


def last_line(path):
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    told = [line for line in lines if line.startswith(("FAIL", "gpu_check:", "dltrain:", "error"))]
    return (told or lines[-1:] or ["no output"])[0][:300]


def result_of(states):
    """"passed", or "3 passed, 8 not run"."""
    count = {state: states.count(state) for state in dict.fromkeys(states)}
    return "passed" if set(states) <= {"passed"} else ", ".join(f"{n} {state}" for state, n in count.items())


def parts_of(attempts, names):
    """{part: {"result": …, "seconds": …, "jobs": {job: its last run}}}"""
    parts = {}
    for part, jobs in names.items():
        mine = [a for a in attempts if a["part"] == part]
        last = {a["job"]: a for a in mine}
        states = [last[job]["status"] if job in last else "not run" for job in jobs]
        parts[part] = {"result": result_of(states), "seconds": round(sum(a["seconds"] for a in mine), 1),
                       "jobs": {job: {k: v for k, v in last[job].items() if k not in ("part", "job")} for job in jobs if job in last}}
    return parts


def data_of(record, part):
    return {name: job["data"] for name, job in record["parts"].get(part, {}).get("jobs", {}).items() if job.get("data")}


def ops_of(record):
    """{op: {kernel: {dtype: [runs, failed, worst]}}} of all cases, and the device."""
    ops, device = {}, None
    for part in CASES:
        for data in data_of(record, part).values():
            if not isinstance(data, dict):
                continue
            device = device or data.get("device")
            for op, kernels in data.get("ops", {}).items():
                for kernel, dtypes in kernels.items():
                    for dtype, row in dtypes.items():
                        old = ops.setdefault(op, {}).setdefault(kernel, {}).setdefault(dtype, [0, 0, 0])
                        ops[op][kernel][dtype] = [old[0] + row[0], old[1] + row[1], max(old[2], row[2])]
    return ops, device


def proven(record):
    """{op: [kernels of which every case passed]}; nothing without a GPU, nor of an op whose cases did not end."""
    if record["engine"] != "cuda":
        return {}
    jobs = [data for part in CASES for data in data_of(record, part).values() if isinstance(data, dict) and "ops" in data]
    unsure = {op for data in jobs if data.get("lost_at") for op in data["ops"]
              if op == data["lost_at"]["op"] or not data.get("rest_ended")}
    return {op: sorted(kernel for kernel, dtypes in kernels.items() if not any(row[1] for row in dtypes.values()))
            for op, kernels in ops_of(record)[0].items() if op not in unsure}


def device_name(record):
    _, device = ops_of(record)
    for row in data_of(record, "device").get("ceilings", []):
        device = device or row.get("device")
    return device["name"] if device else "unknown device"


def ceilings(record):
    """{"copy": GB/s, "bf16": TFLOP/s, …}"""
    out = {}
    for row in data_of(record, "device").get("ceilings", []):
        if "ms" in row:
            name = row["op"].removeprefix("product ")
            out[name] = row["gbs"] if name == "copy" else row["tflops"]
    return out


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def speed_rows(record):
    rows = []
    for part in ("speed", "autotune"):
        for name, data in data_of(record, part).items():
            if isinstance(data, dict) and "rate" in data:
                goal = f"{data['goal']:,.0f} ({100 * data['rate'] / data['goal']:.0f} %)" if data["goal"] else "-"
                share = f"{100 * data['mfu']:.1f} %" if data.get("mfu") else "-"
                rows.append([name + (", autotune" if part == "autotune" else ""), f"{data['step_ms']:.2f}",
                             f"{data['rate']:,.0f} {data['unit']}", goal, share, f"{data['shares_ms'].get('host', 0):.2f}"])
    return rows


def call_rows(data, most):
    """The slowest calls of a target: GB/s and TFLOP/s as shares of the measured ceilings."""
    rows = []
    for call in data["calls"]:
        gbs, tflops = call["bytes"] / call["ms"] * 1e-6, call["flops"] / call["ms"] * 1e-9
        dtype = next((d for d in ("bf16", "f16", "f32") if d + "[" in call.get("detail", "")), "f32")
        share = lambda value, name: f"{value:.1f}" + (f" ({100 * value / most[name]:.0f} %)" if most.get(name) else "")
        rows.append([call["name"], call.get("detail", "")[:70], f"{call['calls']:g}", f"{call['ms']:.3f}",
                     share(gbs, "copy"), share(tflops, dtype)])
    return rows


def time_rows(rows, most):
    return [[row["op"], row["kernel"], f"{row['ms']:.4f}", f"{row['gbs']:.0f}", f"{row['tflops']:.1f}", row["fault"]]
            for row in rows if "ms" in row]


def summary(record):
    """The text of summary.md."""
    most = ceilings(record)
    lines = [f"# {device_name(record) if record['engine'] == 'cuda' else 'Rehearsal on the CPU'}, {record['date']}", "",
             "Written by `scripts/gpu_check.py`; logs and numbers are in `record.tar.gz`.", "", "```", record["version"].strip(), "```", ""]
    if record.get("problem"):
        lines += ["The engine cannot be used:", "", "```", record["problem"], "```", ""]
    lines += table(["part", "result", "seconds"], [[p, d["result"], d["seconds"]] for p, d in record["parts"].items()])
    others = sorted({f"`{job['revision']}`" for d in record["parts"].values() for job in d["jobs"].values() if job.get("revision")})
    if others:
        lines += [f"Jobs that this revision did not finish are those of {', '.join(others)}.", ""]
    failed = [[p, name, job["why"].replace("|", "/"), job.get("again", "").replace("|", "/"), job.get("rest", "")] for p, d in record["parts"].items()
              for name, job in d["jobs"].items() if job["status"] in ("failed", "cut", "skipped")]
    if failed:
        lines += ["## Not passed", "", *table(["part", "job", "why", "once more", "without the op"], failed)]
    if most:
        lines += ["## Ceilings", "", *table(["measured", "value"], [[n, f"{v:.1f} {'GB/s' if n == 'copy' else 'TFLOP/s'}"] for n, v in most.items()])]
    if speed_rows(record):
        lines += ["## Speed of the targets", "", *table(["target", "step, ms", "per second", "goal", "MFU", "host, ms"], speed_rows(record))]
    for name, data in data_of(record, "speed").items():
        if isinstance(data, dict) and "calls" in data:
            kernels = ", ".join(f"{row['name']} {row.get('detail', '')} {row['calls']:g}" for row in data["ops"])
            told = "".join(f"* {warning}\n" for warning in data["warnings"])
            lines += [f"### Slowest calls of {name}", "", f"Calls of each op by kernel: {kernels}.", "", *filter(None, [told]), *table(["call", "shapes", "calls", "ms", "GB/s", "TFLOP/s"], call_rows(data, most))]
    ops, _ = ops_of(record)
    if ops:
        cell = lambda row: "-" if row is None else f"{row[0]} ({row[2]:.2f})" if not row[1] else f"**{row[1]} of {row[0]} FAIL**"
        rows = [[op, kernel, *(cell(dtypes.get(d)) for d in ("f32", "bf16", "f16"))] for op in sorted(ops) for kernel, dtypes in sorted(ops[op].items())]
        lines += ["## Op cases", "", "Comparisons with the reference engine, and the worst as a part of the tolerance.", "",
                  *table(["op", "kernel", "f32", "bf16", "f16"], rows)]
    for part in ("gemm", "variants"):
        for name, rows in data_of(record, part).items():
            if isinstance(rows, list):
                lines += [f"## Times: {part}, {name}", "", *table(["op", "kernel", "ms", "GB/s", "TFLOP/s", "fault"], time_rows(rows, most))]
    return "\n".join(lines) + "\n"


def clipped(path):
    """The bytes of a file as the archive has them: the ends of a long log, nothing of a large result."""
    size = path.stat().st_size
    if path.suffix == ".log" and size > HEAD + TAIL:
        with open(path, "rb") as file:
            head = file.read(HEAD)
            file.seek(size - TAIL)
            return head + b"\n... %d bytes left out ...\n" % (size - HEAD - TAIL) + file.read()
    return path.read_bytes() if size <= MOST else None


def write(work, results, record):
    """Rewrites both files, each at once: a reader never sees a part of one."""
    record["proven"] = proven(record)
    (work / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    (work / "summary.md").write_text(summary(record))
    files = [work / name for name in ("record.json", "summary.md", "jobs.jsonl")]
    files += sorted((work / "logs").glob("*.log"))
    files += sorted(p for p in (work / "out").rglob("*") if p.suffix in (".json", ".jsonl") and "checkpoints" not in p.parts)
    archive = work / "record.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        for path in files:
            content = clipped(path) if path.is_file() else None
            if content is not None:
                info = tarfile.TarInfo(f"record/{path.relative_to(work)}")
                info.size, info.mtime = len(content), int(path.stat().st_mtime)
                tar.addfile(info, io.BytesIO(content))
    results.mkdir(parents=True, exist_ok=True)
    for name in ("record.tar.gz", "summary.md"):
        beside = results / f".{name}.new"
        beside.write_bytes((work / name).read_bytes())
        beside.replace(results / name)


def unpack(archive, work, identity):
    """Adds the jobs of an earlier call, where its folder is lost. A record of another program is refused."""
    jobs = work / "jobs.jsonl"  # missing where the call ended before its first job
    before = jobs.read_text() if jobs.exists() else ""
    jobs.unlink(missing_ok=True)
    with tarfile.open(archive) as tar:
        found = json.load(tar.extractfile("record/record.json"))
        if found["identity"] != identity:
            sys.exit(f"{archive} is of another program: {found['version'].splitlines()[0]}, {found['engine']}")
        for member in tar.getmembers():
            path = pathlib.PurePosixPath(member.name)
            if member.isfile() and path.parts[0] == "record" and ".." not in path.parts:
                target = work.joinpath(*path.parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())
    if jobs.exists():
        before += jobs.read_text()
    jobs.write_text(before)


def newest():
    """(name, record) of the newest record in docs/gpu, or None."""
    records = [(json.loads(path.read_text()), path.stem) for path in DOCS.glob("*.json")]
    found = max(records, key=lambda r: (r[0]["date"], r[1]), default=None)
    return (found[1], found[0]) if found else None


def proven_text():
    """What docs/gpu/README.md begins with."""
    found = newest()
    if found is None:
        return ("**Nothing yet.** No part of the CUDA engine has run on a GPU: every row of its kernel table is marked unproven\n"
                "(`dltrain list ops` shows it), and no statement of speed or of agreement with the CPU is made for it.")
    name, record = found
    kernels = sum(map(len, record["proven"].values()))
    lines = [f"The newest record is [{name}]({name}.md): {device_name(record)}, {record['date']}, `{record['version'].splitlines()[0]}`.",
             f"{kernels} kernels of {len(record['proven'])} ops passed all of their cases there.", "",
             *table(["part", "result"], [[p, d["result"]] for p, d in record["parts"].items()])]
    if speed_rows(record):
        lines += table(["target", "step, ms", "per second", "goal", "MFU", "host, ms"], speed_rows(record))
    return "\n".join(lines).rstrip()


def readme(check):
    path = DOCS / "README.md"
    text = path.read_text(encoding="utf-8")
    begin, rest = text.split(MARKS[0])
    new = f"{begin}{MARKS[0]}\n{proven_text()}\n{MARKS[1]}{rest.split(MARKS[1])[1]}"
    if check and new != text:
        print("docs/gpu/README.md is not that of the newest record: scripts/gpu_record.py readme", file=sys.stderr)
        return 1
    if new != text:
        path.write_text(new, encoding="utf-8")
    return 0


def loaded(archive):
    with tarfile.open(archive) as tar:
        record = json.load(tar.extractfile("record/record.json"))
    if record["engine"] != "cuda" or record.get("problem"):
        sys.exit(f"{archive} is not of a GPU")
    return record


def jobs_in_all(part):
    """The number of a part's jobs, from "3 passed, 8 not run"."""
    return sum(map(int, re.findall(r"\d+", part["result"]))) or len(part["jobs"])


def complete(record, earlier):
    """Takes the jobs that `record` has not finished from an earlier record."""
    for name, found in earlier["parts"].items():
        part = record["parts"][name]
        count = max(jobs_in_all(part), jobs_in_all(found))
        for job, done in found["jobs"].items():
            if part["jobs"].get(job, {"status": "cut"})["status"] == "cut" and done["status"] != "cut":
                part["jobs"][job] = {**done, "revision": earlier["version"].splitlines()[0]}
        states = [done["status"] for done in part["jobs"].values()]
        part["result"] = result_of(states + ["not run"] * (count - len(states)))


def add(archives):
    record, *before = map(loaded, archives)
    for earlier in before:
        complete(record, earlier)
    record["proven"] = proven(record)
    text = summary(record)
    name = f"{record['date']}-{re.sub('[^a-z0-9]+', '-', device_name(record).lower()).strip('-')}"
    for part in record["parts"].values():  # the calls of the targets and the logs stay in the archive
        for job in part["jobs"].values():
            if isinstance(job.get("data"), dict):
                job["data"].pop("calls", None)
    (DOCS / f"{name}.json").write_text(json.dumps(record) + "\n")
    (DOCS / f"{name}.md").write_text(text)
    print(f"docs/gpu/{name}.md")
    return readme(False)


def main():
    if sys.argv[1:2] == ["add"] and len(sys.argv) > 2:
        sys.exit(add(sys.argv[2:]))
    if sys.argv[1:] in (["readme"], ["readme", "--check"]):
        sys.exit(readme(len(sys.argv) == 3))
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
