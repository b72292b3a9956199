#!/usr/bin/env bash
# scripts/sweep.sh with the real program: four short trainings, one of them hopeless.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >config.yaml <<'YAML'
name: sweep-test
model: {layers: [{type: linear, out_features: 4}]}
loss: {type: cross_entropy}
data: {type: synthetic, shape: [8], classes: 4, samples: 256, eval: {seed: 0}}
optimizer: {type: sgd, learning_rate: 0.1}
training: {global_batch_size: 32, max_steps: 20}
evaluation: {eval_steps: 20}
YAML

sweep() { "$SOURCE_DIR/scripts/sweep.sh" -c config.yaml -j 2 -o sweep "$@"; }
fail() {
  echo "test_sweep_trains: $1" >&2
  cat out sweep/*/output.txt >&2
  exit 1
}

sweep optimizer.learning_rate=0,0.1 seed=1,2 >out 2>&1 || fail "exit code $?"
# A learning rate of 0 learns nothing, so it stands below the other.
sed -n 2p sweep/table.txt | grep -qE '^ +1 .* ± .* 2 +0  learning_rate=0.1$' || fail "ranked wrongly"
for trial in sweep/*/; do
  [ -f "$trial/run/metrics.jsonl" ] || fail "no run folder in $trial"
done
# A mistake in the configuration is that trial's exit code, and the sweep's.
code=0
sweep optimizer.learning_rat=1 >out 2>&1 || code=$?
[ $code = 2 ] || fail "exit code $code for a misspelt key, expected 2"
grep -q 'exit code 2: .*error:' out || fail "the reason of the failure is not printed"
