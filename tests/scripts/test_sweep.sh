#!/usr/bin/env bash
# scripts/sweep.sh against a stand-in for dltrain that records how it was called: every combination
# once, several at a time, codes kept, ranked, nothing finished trained again.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
sweep=$SOURCE_DIR/scripts/sweep.sh

fail() {
  echo "test_sweep: $1" >&2
  [ -f out ] && cat out >&2
  exit 1
}
expect_code() { # expect_code CODE COMMAND...: runs it with its output in ./out
  local expected=$1 code=0
  shift
  "$@" >out 2>&1 || code=$?
  [ "$code" = "$expected" ] || fail "exit code $code, expected $expected: $*"
}

# The stand-in: accuracy = a - b; a trial with a=3 fails with code 4 while the file "broken" exists.
cat >fake <<'FAKE'
#!/usr/bin/env bash
a=0 b=0
case " $* " in *" --print-config "*)
  cat config.yaml
  echo "$*"
  exit ;;
esac
echo "$OMP_NUM_THREADS $*" >>"$CALLS"
while [ $# -gt 0 ]; do
  case "$1" in
    -s)
      case "$2" in x.a=*) a=${2#*=} ;; y.b=*) b=${2#*=} ;; esac
      shift ;;
    --output-dir) run=$2; shift ;;
    --result) result=$2; shift ;;
  esac
  shift
done
mkdir -p "$run"
sleep 0.05
if [ "$a" = 3 ] && [ -e broken ]; then
  echo "error: broken"
  exit 4
fi
echo "{\"eval_accuracy\": $((a - b)), \"loss\": $((b - a)), \"step_ms_median\": $((10 * a + b))}" >"$result"
FAKE
chmod +x fake
export DLTRAIN=$work/fake CALLS=$work/calls
echo "name: x" >config.yaml
unset OMP_NUM_THREADS

touch broken
expect_code 4 "$sweep" -c config.yaml -j 2 -o s x.a=1,2,3 y.b=0,1 -- --max-steps 5
grep -q 'a=3,b=0: exit code 4: error: broken (s/a=3,b=0/output.txt)' out || fail "the reason of a failure is not printed"
[ "$(wc -l <calls)" = 6 ] || fail "expected 6 trials, ran $(wc -l <calls)"
[ "$(cut -d ' ' -f 2- calls | sort -u | wc -l)" = 6 ] || fail "trials were not different"
grep -q -- '--max-steps 5' calls || fail "arguments after -- were not passed on"
threads=$(($(nproc) / 2 > 0 ? $(nproc) / 2 : 1))
[ "$(cut -d ' ' -f 1 calls | sort -u)" = "$threads" ] || fail "threads were not divided by 2"
[ "$(cat 's/a=3,b=0/exit_code')" = 4 ] || fail "the failed trial's code was not kept"
# Best first: a=2,b=0 has 2, then the two of value 1; the failed two stand last.
[ "$(sed -n 2p s/table.txt | awk '{print $1, $2, $3, $5, $6, $7}')" = "1 2 -2 1 0 a=2,b=0" ] || fail "ranked wrongly"
[ "$(tail -n 2 s/table.txt | awk '{print $1, $6}' | sort -u)" = "- 4" ] || fail "failures do not stand last with their code"

# Again: only the two that failed, in folders that are theirs (so --overwrite).
rm broken calls
expect_code 0 "$sweep" -c config.yaml -j 2 -o s x.a=1,2,3 y.b=0,1 -- --max-steps 5
[ "$(wc -l <calls)" = 2 ] || fail "expected the 2 failed trials again, ran $(wc -l <calls)"
[ "$(grep -c -- --overwrite calls)" = 2 ] || fail "a trial without checkpoint must be overwritten"
[ "$(sed -n 2p s/table.txt | awk '{print $7}')" = "a=3,b=0" ] || fail "the table was not made anew"

# Another configuration in the same folder is refused, and trained anew with --overwrite.
rm -f calls
echo "name: y" >config.yaml
expect_code 2 "$sweep" -c config.yaml -o s x.a=1,2,3 y.b=0,1
grep -q "6 trials of another configuration" out || fail "a changed configuration is not named"
[ ! -e calls ] || fail "something was trained although the configuration changed"
expect_code 0 "$sweep" -c config.yaml -o s --overwrite x.a=1,2,3 y.b=0,1
[ "$(wc -l <calls)" = 6 ] || fail "--overwrite: expected the 6 changed trials again"
rm -f calls
expect_code 0 "$sweep" -c config.yaml -o s --overwrite x.a=1,2,3 y.b=0,1
[ ! -e calls ] || fail "--overwrite trained what had not changed"

# The other way round, and by another number.
expect_code 0 "$sweep" -c config.yaml -o s --metric loss x.a=1,2,3 y.b=0,1
[ "$(sed -n 2p out | awk '{print $1}')" != "" ] || fail "no table"
grep -q '^ *1 .* -3 .*a=3,b=0$' s/table.txt || fail "--metric loss does not rank the least loss first"
expect_code 0 "$sweep" -c config.yaml -o s --metric loss --mode max x.a=1,2,3 y.b=0,1
grep -q '^ *1 .* 0 .*a=1,b=1$' s/table.txt || fail "--mode max ranks wrongly"
expect_code 0 "$sweep" -c config.yaml -o s --metric step_ms_median x.a=1,2,3 y.b=0,1
grep -q '^ *1 .* 10 .*a=1,b=0$' s/table.txt || fail "--metric step_ms_median does not rank the fastest first"
expect_code 2 "$sweep" -c config.yaml -o s --metric nonsense x.a=1,2,3 y.b=0,1
grep -q "eval_accuracy, loss" out || fail "an unknown metric does not name the known ones"

expect_code 2 "$sweep" -c config.yaml -o s x.a=1,
grep -q "'x.a=1,' has an empty value" out || fail "an empty value is not refused"

# Trials that differ in the seed alone are one row: mean ± standard deviation, and how many failed.
expect_code 0 "$sweep" -c config.yaml -o m x.a=1,2 seed=1,2,3
grep -qE '^ +1 +2 ± 0 +-2 ± 0 +- +3 +0  a=2$' m/table.txt || fail "seeds are not one row"
[ "$(wc -l <m/table.txt)" = 3 ] || fail "expected two rows"

# Random: N different ones, the same for the same seed, others for another.
rm -f calls
expect_code 0 "$sweep" -c config.yaml -j 4 -o r1 --random 5 --seed 7 x.a=1,2,4,5 y.b=0,1,2,3,4
expect_code 0 "$sweep" -c config.yaml -j 4 -o r2 --random 5 --seed 7 x.a=1,2,4,5 y.b=0,1,2,3,4
expect_code 0 "$sweep" -c config.yaml -j 4 -o r3 --random 5 --seed 8 x.a=1,2,4,5 y.b=0,1,2,3,4
folders() { (cd "$1" && ls -d ./*/); }
[ "$(folders r1 | wc -l)" = 5 ] || fail "--random 5 made $(folders r1 | wc -l) trials"
[ "$(folders r1)" = "$(folders r2)" ] || fail "--random is not the same for the same seed"
[ "$(folders r1)" != "$(folders r3)" ] || fail "--random is the same for every seed"

# Lists as values, keys that end alike, and wrong usage.
rm -f calls
expect_code 0 "$sweep" -c config.yaml -o l 'x.c=[1,2],[3,4]' 'y.c={p: 1, q: 2}'
grep -qF 'x.c=[3,4]' calls || fail "a list was taken apart"
[ "$(wc -l <calls)" = 2 ] || fail "lists: expected 2 trials"
expect_code 2 "$sweep" -c config.yaml
expect_code 2 "$sweep" -c nowhere.yaml x.a=1
expect_code 2 "$sweep" -c config.yaml -j 0 x.a=1
expect_code 2 "$sweep" -c config.yaml x.a=1 x.a=2
expect_code 2 "$sweep" -c config.yaml --mode up x.a=1
expect_code 2 "$sweep" -c config.yaml --random 2 --seed "" x.a=1,2

# Stopped in between: what runs is told, no more is started, the code says "resume me".
rm -f calls
cat >slow <<'SLOW'
#!/usr/bin/env bash
case " $* " in *" --print-config "*) exit ;; esac
echo "$*" >>"$CALLS"
trap 'echo told >>"$CALLS"; exit 75' TERM
sleep 20 &
wait
SLOW
chmod +x slow
DLTRAIN=$work/slow "$sweep" -c config.yaml -j 2 -o k x.a=1,2,3,4 >out 2>&1 &
pid=$!
for _ in $(seq 50); do [ "$(grep -c config calls 2>/dev/null)" = 2 ] && break; sleep 0.1; done
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 75 ] || fail "stopped: exit code $code, expected 75"
[ "$(grep -c told calls)" = 2 ] || fail "stopped: the running trials were not told"
[ "$(grep -c config calls)" = 2 ] || fail "stopped: more trials were started"
[ "$(cat k/a=1/exit_code)" = 75 ] || fail "stopped: the trial's own code was not kept"

# Ranks of a trial share its threads.
mkdir bin
printf '#!/bin/sh\necho 16\n' >bin/nproc
chmod +x bin/nproc
rm calls
PATH=$work/bin:$PATH expect_code 0 "$sweep" -c config.yaml -j 2 -o ranks x.a=1,2 -- --nproc-per-node 4
[ "$(cut -d ' ' -f 1 calls | sort -u)" = 2 ] || fail "16 CPUs were not divided among 2 trials of 4 ranks"
echo "sweep: all as expected"
