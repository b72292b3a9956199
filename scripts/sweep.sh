#!/usr/bin/env bash
# Trains one configuration with many settings, several at a time, and ranks the results.
#
#   scripts/sweep.sh -c CONFIG [-j N] [-o DIR] [--metric NAME] [--mode min|max]
#                    [--random N [--seed S]] [--overwrite] KEY=VALUE,VALUE,... [KEY=...]... [-- DLTRAIN_ARGUMENTS...]
#
#   scripts/sweep.sh -c configs/recipes/digits-mlp.yaml -j 2 \
#       optimizer.learning_rate=1e-3,3e-3 seed=1,2,3
#
# Every combination of the values is one trial, a separate run with `-s KEY=VALUE`; commas inside
# brackets do not separate values (optimizer.betas=[0.9,0.99],[0.9,0.999]). --random N draws N different
# combinations instead; the same --seed gives the same ones.
#
# DIR (default runs/sweep-<configuration's name>) holds, for trial NAME = "learning_rate=1e-3,seed=1":
#   NAME/run          the run folder      NAME/result.json   the summary (`dltrain --result`)
#   NAME/output.txt   stdout and stderr   NAME/exit_code     written when the trial has ended
#   table.txt         the ranked table, which is also printed: trials that differ only in the seed are one row, with
#                     mean ± standard deviation of metric and loss, and the mean time
# A second call with the same DIR trains only missing, new and failed trials (failed ones from their last
# checkpoint, if there is one). Each trial stores a hash of its resolved
# configuration (NAME/config.sha256): if it has changed, the sweep is refused before any
# training, and --overwrite trains the changed trials again. (The content of data files is not part of the hash.)
#
# The CPUs are divided among the ranks of the N concurrent trials (by OMP_NUM_THREADS, unless it is set).
# The metric is a key of the summary; by default the first of eval_accuracy, eval_loss and loss that a trial has.
# The mode is min for losses, errors, times, memory and FLOP, otherwise max, unless --mode is given.
# DLTRAIN selects another executable than build/dltrain. Exit status: 0 if all trials ended with 0,
# otherwise that of the first failed trial in the order of the trials; 2 for wrong usage.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
dltrain=${DLTRAIN:-$here/build/dltrain}
config="" jobs=1 folder="" metric="" mode="" random=0 seed=0 overwrite=no
axes=() extra=()

usage() {
  echo "scripts/sweep.sh: $1" >&2
  echo "usage: scripts/sweep.sh -c CONFIG [-j N] [-o DIR] [--metric NAME] [--mode min|max] [--random N [--seed S]] [--overwrite] KEY=V1,V2,... [-- ARGUMENTS]" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    -c | -j | -o | --config | --jobs | --output-dir | --metric | --mode | --random | --seed)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case "$1" in
        -c | --config) config=$2 ;;
        -j | --jobs) jobs=$2 ;;
        -o | --output-dir) folder=$2 ;;
        --metric) metric=$2 ;;
        --mode) mode=$2 ;;
        --random) random=$2 ;;
        --seed) seed=$2 ;;
      esac
      shift 2
      ;;
    --overwrite)
      overwrite=yes
      shift
      ;;
    --)
      shift
      extra=("$@")
      break
      ;;
    -*) usage "unknown option $1" ;;
    ?*=?*)
      axes+=("$1")
      shift
      ;;
    *) usage "expected KEY=VALUE,VALUE,..., found '$1'" ;;
  esac
done
[ -n "$config" ] || usage "no configuration given (-c CONFIG)"
[ -f "$config" ] || usage "the file $config does not exist"
[ ${#axes[@]} -gt 0 ] || usage "no key to vary given (KEY=VALUE,VALUE,...)"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || usage "-j needs a number from 1, not '$jobs'"
[[ $random =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || usage "--random and --seed need numbers"
[[ $mode =~ ^(min|max|)$ ]] || usage "--mode is min or max, not '$mode'"
[ -x "$dltrain" ] || usage "the executable $dltrain does not exist: run scripts/quickstart.sh, or cmake --build build"
[ -n "$folder" ] || folder=runs/sweep-$(basename "$config" .yaml)
mkdir -p "$folder" 2>/dev/null || usage "cannot create the folder $folder"

# One trial per line: NAME, then each KEY=VALUE, separated by tabs.
trials=$(python3 - "$random" "$seed" "${axes[@]}" <<'PYTHON'
import itertools, random, re, sys

def split(text):
    """Splits at commas outside of brackets and braces."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts

count, seed = int(sys.argv[1]), int(sys.argv[2])
axes = []
for axis in sys.argv[3:]:
    key, values = axis.split("=", 1)
    if "" in split(values):
        sys.exit(f"scripts/sweep.sh: '{axis}' has an empty value")
    axes.append([(key, value) for value in dict.fromkeys(split(values))])
keys = [axis[0][0] for axis in axes]
twice = [key for key in keys if keys.count(key) > 1]
if twice:
    sys.exit(f"scripts/sweep.sh: {twice[0]} is varied twice: give all its values at once")
last = [key.split(".")[-1] for key in keys]
short = {key: name if last.count(name) == 1 else key for key, name in zip(keys, last)}
total = 1
for axis in axes:
    total *= len(axis)
if count:
    if count > total:
        print(f"scripts/sweep.sh: there are only {total} combinations", file=sys.stderr)
    chosen = sorted(random.Random(seed).sample(range(total), min(count, total)))
else:
    if total > 100000:
        sys.exit(f"scripts/sweep.sh: {total} combinations: use --random N")
    chosen = range(total)
for index in chosen:
    combination = []
    for axis in reversed(axes):
        index, at = divmod(index, len(axis))
        combination.insert(0, axis[at])
    name = ",".join(f"{short[key]}={value}" for key, value in combination)
    name = re.sub(r"[^A-Za-z0-9_.,=+\-\[\]]", "_", name)
    print("\t".join([name] + [f"{key}={value}" for key, value in combination]))
PYTHON
) || exit 2
duplicates=$(cut -f 1 <<<"$trials" | sort | uniq -d)
[ -z "$duplicates" ] || usage "these settings would share the folder '${duplicates%%$'\n'*}'"

# Threads of each rank of a trial, unless OMP_NUM_THREADS is set.
ranks=$(sed -n 's/.*--nproc[-_]per[-_]node[= ]\([1-9][0-9]*\).*/\1/p' <<<"${extra[*]-}")
threads=$(($(nproc) / (jobs * ${ranks:-1})))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}

hash_of() { # hash_of NAME KEY=VALUE...: prints the hash of the trial's resolved configuration; fails if that is invalid
  local name=$1 arguments=() setting text
  shift
  for setting in "$@"; do arguments+=(-s "$setting"); done
  text=$("$dltrain" --config "$config" ${arguments[@]+"${arguments[@]}"} --name "$name" ${extra[@]+"${extra[@]}"} \
    --print-config 2>/dev/null) || return 1
  sha256sum <<<"$text" | cut -d ' ' -f 1
}

reusable() { # reusable NAME: succeeds if the trial has results that a second call would use
  [ "$(cat "$folder/$1/exit_code" 2>/dev/null)" = 0 ] || [ -e "$folder/$1/run/checkpoints/latest" ]
}

# Trials that an earlier call trained with another configuration are not reused.
declare -A hashes=()
changed=()
while IFS=$'\t' read -r -a trial; do
  hash=$(hash_of "${trial[@]}" </dev/null) || hash=none # the trial itself reports the error
  hashes[${trial[0]}]=$hash
  if reusable "${trial[0]}" && [ "$(cat "$folder/${trial[0]}/config.sha256" 2>/dev/null)" != "$hash" ]; then
    changed+=("${trial[0]}")
    [ $overwrite = no ] || rm -f "$folder/${trial[0]}/exit_code" "$folder/${trial[0]}/config.sha256"
  fi
done <<<"$trials"
if [ ${#changed[@]} -gt 0 ] && [ $overwrite = no ]; then
  usage "$folder has ${#changed[@]} trials of another configuration (${changed[0]}): choose another folder (-o), or --overwrite"
fi

run_trial() { # run_trial NAME KEY=VALUE...: writes the outcome to the trial's folder
  local name=$1 place="$folder/$1" arguments=() code=0 setting
  shift
  if [ -f "$place/exit_code" ] && [ "$(cat "$place/exit_code")" = 0 ]; then
    echo "$name: done in an earlier call"
    return
  fi
  mkdir -p "$place"
  rm -f "$place/exit_code"
  for setting in "$@"; do arguments+=(-s "$setting"); done
  if [ -e "$place/run" ]; then
    if [ -e "$place/run/checkpoints/latest" ] && [ -e "$place/config.sha256" ]; then
      arguments+=(--resume auto)
    else
      arguments+=(--overwrite)
    fi
  fi
  echo "${hashes[$name]}" >"$place/config.sha256"
  # In a separate session, so that an interrupt from the terminal reaches it only once, through this script.
  setsid "$dltrain" --config "$config" "${arguments[@]}" --name "$name" --output-dir "$place/run" \
    --result "$place/result.json" --quiet ${extra[@]+"${extra[@]}"} >"$place/output.txt" 2>&1 &
  local child=$! signalled=yes
  trap 'signalled=yes; kill -TERM $child 2>/dev/null' TERM
  while [ $signalled = yes ]; do # wait returned because of the signal, not because the trial ended
    signalled=no code=0
    wait $child || code=$?
  done
  echo "$code" >"$place/exit_code.part"
  mv "$place/exit_code.part" "$place/exit_code"
  echo "$name: exit code $code$([ $code = 0 ] || echo ": $(grep -m 1 'error:' "$place/output.txt" || tail -n 1 "$place/output.txt") ($place/output.txt)")"
}

# An interrupt ends the running trials (dltrain writes a checkpoint and exits with 75) and starts no further ones.
pids=()
stop() {
  trap - INT TERM
  kill -TERM ${pids[@]+"${pids[@]}"} 2>/dev/null || true
  wait
  echo "scripts/sweep.sh: stopped; run the same command to continue" >&2
  exit 75
}
trap stop INT TERM

while IFS=$'\t' read -r -a trial; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  run_trial "${trial[@]}" </dev/null &
  pids+=($!)
done <<<"$trials"
wait

python3 - "$folder" "$metric" "$mode" "$trials" <<'PYTHON'
import json, math, os, statistics, sys

folder, metric, mode, trials = sys.argv[1:]
groups, first_failure, results = {}, 0, []
for line in trials.splitlines():
    name, *settings = line.split("\t")
    try:
        with open(os.path.join(folder, name, "exit_code"), encoding="utf-8") as file:
            code = int(file.read())
    except (OSError, ValueError):
        code = 1  # the trial was killed before it could write its exit code
    summary = {}
    try:
        with open(os.path.join(folder, name, "result.json"), encoding="utf-8") as file:
            summary = json.load(file)
    except (OSError, ValueError):
        pass
    first_failure = first_failure or code
    results.append((name, code, summary))
seen = {key for _, _, summary in results for key in summary}
metric = metric or next((key for key in ("eval_accuracy", "eval_loss") if key in seen), "loss")
if not mode:
    mode = "min" if any(word in metric for word in ("loss", "error", "mae", "mse", "perplexity", "seconds", "_ms", "memory", "rss", "bytes", "flops")) else "max"
loss = "eval_loss" if metric != "eval_loss" else "loss"
for name, code, summary in results:
    # Trials that differ only in the seed are one row.
    parts = [part for part in name.split(",") if not part.startswith("seed=")]
    group = groups.setdefault(",".join(parts) or "all", {"codes": [], metric: [], loss: [], "loss": [], "seconds": []})
    group["codes"].append(code)
    for key in {metric, loss, "loss", "seconds"}:
        value = summary.get(key) if code == 0 else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value):
            group[key].append(value)


def shown(values, digits):
    """Mean, and the standard deviation where there are several."""
    if not values:
        return "-"
    mean = format(statistics.fmean(values), digits)
    return mean if len(values) == 1 else f"{mean} ± {format(statistics.stdev(values), '.2g')}"


sign = -1 if mode == "max" else 1
rows = sorted(groups.items(), key=lambda row: (not row[1][metric], sign * statistics.fmean(row[1][metric] or [0])))
if not any(group[loss] for _, group in rows):
    loss = "loss"
cells = [["rank", metric, loss, "seconds", "runs", "exit code", "trial"]]
for rank, (name, group) in enumerate(rows, 1):
    codes = group["codes"]
    worst = next((code for code in codes if code), 0)
    failed = f"{worst} ({sum(map(bool, codes))} of {len(codes)})" if worst and len(codes) > 1 else str(worst)
    cells.append([str(rank) if group[metric] else "-", shown(group[metric], ".6g"), shown(group[loss], ".4g"),
                  format(statistics.fmean(group["seconds"]), ".1f") if group["seconds"] else "-", str(len(codes)), failed, name])
widths = [max(len(row[i]) for row in cells) for i in range(6)]
table = "".join("  ".join([*(cell.rjust(width) for cell, width in zip(row, widths)), row[6]]) + "\n" for row in cells)
with open(os.path.join(folder, "table.txt"), "w", encoding="utf-8") as file:
    file.write(table)
print(table, end="")
if not any(group[metric] for _, group in rows) and first_failure == 0:
    names = ", ".join(sorted(seen)) or "nothing"
    print(f"scripts/sweep.sh: no summary has '{metric}'; choose one of these with --metric: {names}", file=sys.stderr)
    sys.exit(2)
sys.exit(first_failure)
PYTHON
