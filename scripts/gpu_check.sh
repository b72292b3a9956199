#!/usr/bin/env bash
# Checks dltrain on a machine with a GPU, from an unpacked bundle (scripts/bundle.sh) or from the
# repository after a build. Needs the driver, NVIDIA's libraries (CUDA runtime, cuBLASLt, cuDNN 9), and
# python3 for the comparisons and the record.
#
#   scripts/gpu_check.sh [PART…]        parts: device ops sanitizer trajectories repeat resume
#                                       generation refusals ranks training timing
#
# Each part takes less than ten minutes (PART_SECONDS, 600) and runs once: results are kept in
# gpu-check/ (OUT), and a second call runs the remaining parts; remove the folder to start again. A
# failing part does not stop the others. At the end RECORDS/<date>-<device>.md and .json are written
# (RECORDS: docs/gpu). ENGINE=cpu runs everything without a GPU, which the record states.
#
# Exit status: 0 all parts passed, 8 no usable GPU, 9 a part failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

all_parts=(device ops sanitizer trajectories repeat resume generation refusals ranks training timing)
out=${OUT:-gpu-check}
records=${RECORDS:-docs/gpu}
engine=${ENGINE:-cuda}
if [ -x bin/dltrain ]; then programs=bin; else programs=${BUILD:-build}; fi
dltrain=$programs/dltrain
gpu_check=$programs/gpu_check

# Folders with NVIDIA's libraries: the toolkit's, the driver's, and those of Python packages.
vendor_folders() {
  local folder path
  {
    printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/nvidia/lib64
    python3 -c 'import sys; print("\n".join(p for p in sys.path if p))' 2>/dev/null | while read -r path; do
      printf '%s\n' "$path"/nvidia/*/lib
    done
  } | while read -r folder; do
    for path in "$folder"/libcudart.so.* "$folder"/libcublasLt.so.* "$folder"/libcudnn.so.* "$folder"/libnvrtc.so.* \
      "$folder"/libnccl.so.2 "$folder"/libcuda.so.1; do
      if [ -e "$path" ]; then
        printf ':%s' "$folder"
        break
      fi
    done
  done
}

train() { # train NAME DEVICE CONFIG…: trains in $out/runs/NAME
  local name=$1 device=$2
  shift 2
  rm -rf "$out/runs/$name"
  "$dltrain" train "$@" --device "$device" --output-dir "$out/runs/$name" --quiet
}

same_losses() { # same_losses A B TOLERANCE: compares the losses of two runs at every step, relatively
  python3 scripts/gpu_record.py compare "$out/runs/$1/metrics.jsonl" "$out/runs/$2/metrics.jsonl" "$3"
}

# text_config NAME MODEL [DATA]: writes a configuration of a small model on the recorded token ids.
text_config() {
  mkdir -p "$out"
  cat >"$out/$1.yaml" <<YAML
name: $1
model: $2
data:
  type: tokens
  path: $PWD/tests/golden/recurrent/tokens.bin
  sequence_length: 12
  random_offset: false
  ${3:-shuffle: false}
  train: {}
optimizer: {type: adamw, learning_rate: 3.0e-3, weight_decay: 0.01}
training: {global_batch_size: 4, max_steps: 20, max_grad_norm: 1.0}
logging: {logging_steps: 1}
YAML
  echo "$out/$1.yaml"
}
cell_model() { # cell_model CELL CARRIED
  echo "{type: char_lstm, cell: $1, hidden_size: 24, carry_state: $2, vocab_size: 29, init_from: $PWD/tests/golden/recurrent/$1.safetensors}"
}
gpt_model="{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 64, vocab_size: 29}"
llama_model="{type: llama, num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 48, vocab_size: 29}"

part_device() {
  "$dltrain" version && "$dltrain" list devices || return
  nvidia-smi 2>/dev/null || echo "(nvidia-smi is not installed)"
}

part_ops() {
  local dtype status=0
  for dtype in f32 bf16 f16; do
    echo "-- $dtype"
    "$gpu_check" --engine "$engine" --dtype "$dtype" --json "$out/ops-$dtype.json" || status=9
  done
  return "$status"
}

part_sanitizer() {
  local tool
  if [ "$engine" != cuda ] || ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer is not installed"
    return 77
  fi
  for tool in memcheck racecheck initcheck; do
    echo "-- $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$gpu_check" || return
  done
}

compare_devices() { # compare_devices NAME TOLERANCE CONFIG…: compares a run on the CPU with one on the engine
  local name=$1 tolerance=$2
  shift 2
  train "$name-cpu" cpu "$@" && train "$name-$engine" "$engine" "$@" || return
  printf '%s: ' "$name"
  same_losses "$name-cpu" "$name-$engine" "$tolerance"
}

# The golden runs on both devices. Smooth networks agree to 1e-5 over 20 steps; ReLU networks are
# chaotic (one ReLU with another sign changes the third loss by half a percent), so only their first loss
# must agree, to 2e-6.
part_trajectories() {
  local config name tolerance status=0
  for config in tests/golden/*/*.yaml; do
    name=$(basename "$(dirname "$config")")-$(basename "$config" .yaml)
    case $name in
      *gelu* | language-*) tolerance=1e-5 ;;
      *) tolerance=2e-6:1e-2 ;;
    esac
    compare_devices "$name" "$tolerance" "$config" || status=9
  done
  # Recurrent networks, with and without state carried over batches, and the optimizers that need
  # whole tensors.
  for name in lstm gru rnn; do
    config=$(text_config "recurrent-$name" "$(cell_model "$name" true)" "sampling: streams")
    compare_devices "recurrent-$name" 1e-5 "$config" || status=9
  done
  config=$(text_config recurrent-lstm-plain "$(cell_model lstm false)")
  compare_devices recurrent-lstm-plain 1e-5 "$config" || status=9
  compare_devices recurrent-lstm-bf16 0.1 "$config" -s precision.compute=bf16 || status=9
  for name in "lars, learning_rate: 0.5" "lamb, learning_rate: 1.0e-2" "adafactor, learning_rate: 1.0e-2"; do
    compare_devices "optimizer-${name%%,*}" 1e-5 tests/golden/mlp/gelu-adamw.yaml \
      -s "optimizer={type: $name, weight_decay: 0.01}" || status=9
  done
  return "$status"
}

# Two runs are bit-identical, also to a run without graph capture (blocking launches).
part_repeat() {
  local config name status=0
  # The last is an LSTM, because cuDNN's recurrent networks use cuBLAS on several streams.
  for config in tests/golden/*/*-adamw.yaml tests/golden/language/*.yaml \
    "$(text_config repeat-lstm "$(cell_model lstm false)")"; do
    name=$(basename "$(dirname "$config")")-$(basename "$config" .yaml)
    train "$name-first" "$engine" "$config" && train "$name-second" "$engine" "$config" || return
    printf '%s: ' "$name"
    same_losses "$name-first" "$name-second" 0 || status=9
    CUDA_LAUNCH_BLOCKING=1 train "$name-blocking" "$engine" "$config" || return
    printf '%s, not captured: ' "$name"
    same_losses "$name-first" "$name-blocking" 0 || status=9
  done
  # The chosen algorithms are stored, so the second run uses those of the first.
  for config in tests/golden/language/gpt2.yaml tests/golden/convnet/relu-adamw.yaml; do
    for name in first second; do train "autotune-$name" "$engine" "$config" --autotune quick || return; done
    printf 'autotune, %s: ' "$(basename "$(dirname "$config")")"
    same_losses autotune-first autotune-second 0 || status=9
  done
  # The stochastic rounding of parameters without masters uses the same random numbers in every run.
  for name in first second; do
    train "narrow-$name" "$engine" tests/golden/language/gpt2.yaml \
      -s "precision={compute: bf16, parameters: bf16}" || return
  done
  printf 'parameters in bf16: '
  same_losses narrow-first narrow-second 0 || status=9
  return "$status"
}

# A run that is killed and resumed is bit-identical to an uninterrupted one.
part_resume() {
  local config=tests/golden/language/gpt2.yaml name=resume pid
  train "$name-whole" "$engine" "$config" -s checkpoint.save_steps=4 || return
  rm -rf "$out/runs/$name-killed"
  "$dltrain" train "$config" --device "$engine" --output-dir "$out/runs/$name-killed" --quiet \
    -s checkpoint.save_steps=4 &
  pid=$!
  until compgen -G "$out/runs/$name-killed/checkpoints/step-*" >/dev/null || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.01
  done
  kill -9 "$pid" 2>/dev/null
  wait "$pid"
  "$dltrain" train "$config" --device "$engine" --output-dir "$out/runs/$name-killed" --quiet \
    -s checkpoint.save_steps=4 --resume auto || return
  same_losses "$name-whole" "$name-killed" 0
}

# Greedy texts of trained models are equal on both devices, and equal alone and in a batch.
part_generation() {
  local name model config run status=0
  for name in gpt llama lstm; do
    case $name in
      gpt) model=$gpt_model ;;
      llama) model=$llama_model ;;
      *) model=$(cell_model lstm false) ;;
    esac
    config=$(text_config "generation-$name" "$model")
    train "generation-$name" cpu "$config" || return
    run=$out/runs/generation-$name
    continue_texts "$run" cpu >"$run/cpu.jsonl" && continue_texts "$run" "$engine" >"$run/$engine.jsonl" &&
      continue_texts "$run" "$engine" --batch-size 1 >"$run/$engine-alone.jsonl" || return
    echo "-- $name: $(wc -l <"$run/$engine.jsonl") texts"
    cmp "$run/cpu.jsonl" "$run/$engine.jsonl" && cmp "$run/$engine.jsonl" "$run/$engine-alone.jsonl" || status=9
  done
  return "$status"
}
continue_texts() { # continue_texts RUN DEVICE […]
  local run=$1 device=$2
  shift 2
  "$dltrain" generate "$run" --device "$device" --tokens 1,2,3 --tokens 7,5 --tokens 4 --max-tokens 16 \
    --temperature 0 --json --quiet "$@"
}

# Requests that cannot be satisfied are refused with the documented exit code and message.
part_refusals() {
  local status=0 config
  config=tests/golden/mlp/gelu-adamw.yaml
  refuses 8 'this machine has\|no NVIDIA driver\|finds no GPU\|no GPU' "$dltrain" train "$config" --device cuda:99 \
    --output-dir "$out/runs/refused" --quiet || status=9
  config=$(text_config too-large "{type: char_lstm, hidden_size: 1000000, vocab_size: 29}")
  refuses 5 'needed' "$dltrain" train "$config" --device "$engine" --output-dir "$out/runs/too-large" --quiet || status=9
  return "$status"
}
refuses() { # refuses STATUS WORDS COMMAND…
  local wanted=$1 words=$2 text found
  shift 2
  text=$("$@" 2>&1)
  found=$?
  echo "$text" | tail -n 3
  if [ "$found" != "$wanted" ] || ! echo "$text" | grep -q "$words"; then
    echo "expected exit status $wanted and '$words', found $found"
    return 9
  fi
}

# Several ranks. With one GPU: NCCL's operations in a group of one, and two ranks that share the GPU and communicate
# through host memory, in every ZeRO stage and with a fixed reduction. With more GPUs also NCCL between two of them.
part_ranks() {
  local config=tests/golden/language/gpt2.yaml name stage status=0 gpus
  if [ "$engine" = cuda ]; then
    "$gpu_check" --collectives --json "$out/collectives.json" || status=9
  fi
  train ranks-one "$engine" "$config" || return
  for stage in 0 1 2 3; do
    ranks_as_one "ranks-staged-zero$stage" 1e-5 ranks-one staged "$config" -s parallelism.zero_stage="$stage" \
      -s parallelism.bucket_mb=0.05 || status=9
  done
  train ranks-fixed-one "$engine" "$config" -s training.reduction=fixed -s training.micro_batch_size=2 || return
  ranks_as_one ranks-fixed-two 0 ranks-fixed-one staged "$config" -s training.reduction=fixed \
    -s training.micro_batch_size=2 || status=9
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
  if [ "$engine" != cuda ] || [ "$gpus" -lt 2 ]; then
    echo "NCCL between GPUs: not tested, the number of GPUs is $gpus"
    return "$status"
  fi
  for stage in 0 1 2 3; do
    ranks_as_one "ranks-nccl-zero$stage" 1e-5 ranks-one nccl "$config" -s parallelism.zero_stage="$stage" \
      -s parallelism.bucket_mb=0.05 || status=9
  done
  return "$status"
}
ranks_as_one() { # ranks_as_one NAME TOLERANCE ONE CARRIER CONFIG…: compares the losses of two ranks with those of run ONE
  local name=$1 tolerance=$2 one=$3 carrier=$4
  shift 4
  rm -rf "$out/runs/$name"
  "$dltrain" train "$@" -s parallelism.collectives="$carrier" --nproc-per-node 2 --device "$engine" \
    --output-dir "$out/runs/$name" --quiet || return
  printf '%s: ' "$name"
  same_losses "$one" "$name" "$tolerance"
}

part_training() {
  local recipe
  if [ ! -f data/digits.csv.gz ]; then
    echo "data/digits.csv.gz does not exist; run scripts/prepare_digits.sh"
    return 77
  fi
  for recipe in digits-mlp digits-convnet; do
    echo "-- $recipe"
    train "$recipe" "$engine" "configs/recipes/$recipe.yaml" --result "$out/$recipe.json" || return
    cat "$out/$recipe.json"
  done
}

part_timing() {
  local config name scale=1 steps=()
  [ "$engine" = cuda ] || { # without a GPU only that everything runs is tested, not the speed
    scale=0.01
    steps=(--max-steps 2)
  }
  "$gpu_check" --time --engine "$engine" --scale "$scale" --json "$out/timing.json" || return
  if [ "$engine" = cuda ]; then # with cuDNN's first proposals, and with the fastest algorithms measured
    for name in off full; do
      echo "-- ResNet-50 in bf16, autotune $name"
      train "resnet50-bf16-$name" "$engine" configs/bench/resnet50_224.yaml --autotune "$name" \
        -s precision.compute=bf16 -s training.global_batch_size=128 -s data.train.samples=256 \
        --result "$out/resnet50-bf16-$name.json" || return
      cat "$out/resnet50-bf16-$name.json"
    done
  fi
  for config in configs/bench/*.yaml; do
    name=bench-$(basename "$config" .yaml)
    echo "-- $name"
    train "$name" "$engine" "$config" "${steps[@]}" --result "$out/$name.json" || return
    cat "$out/$name.json"
  done
}

run_part() { # run_part NAME: runs the part once and stores its output, status and time
  local name=$1 status
  if [ "$(cat "$out/$name.status" 2>/dev/null)" = 0 ]; then
    echo "== $name: done in an earlier call"
    return 0
  fi
  echo "== $name"
  SECONDS=0
  timeout "${PART_SECONDS:-600}" "$0" --part "$name" 2>&1 | tee "$out/$name.log"
  status=${PIPESTATUS[0]}
  echo "$status" >"$out/$name.status"
  echo "$SECONDS" >"$out/$name.seconds"
  case $status in
    0) return 0 ;;
    77) echo "== $name: skipped" ;;
    *)
      echo "== $name: FAILED (status $status)"
      return 9
      ;;
  esac
}

for program in "$dltrain" "$gpu_check"; do
  if [ ! -x "$program" ]; then
    echo "$program does not exist: build it, or run this script from an unpacked bundle" >&2
    exit 1
  fi
done

if [ "${1:-}" = --part ]; then
  case ${2:-} in
    device) part_device ;;
    ops) part_ops ;;
    sanitizer) part_sanitizer ;;
    trajectories) part_trajectories ;;
    repeat) part_repeat ;;
    resume) part_resume ;;
    generation) part_generation ;;
    refusals) part_refusals ;;
    ranks) part_ranks ;;
    training) part_training ;;
    timing) part_timing ;;
    *) exit 2 ;;
  esac
  exit
fi

LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}$(vendor_folders)"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH#:}"
mkdir -p "$out"
# Compiled programs are cached in the folder of the check, not in the user's cache.
DLTRAIN_CACHE_DIR=$(cd "$out" && pwd)/cache
export DLTRAIN_CACHE_DIR
if [ "$engine" = cuda ]; then
  message=$("$gpu_check" --op loss_seed 2>&1)
  if [ $? = 8 ]; then
    echo "$message" >&2
    echo "scripts/gpu_check.sh needs an NVIDIA GPU with its driver, the CUDA runtime, cuBLASLt and cuDNN 9" >&2
    exit 8
  fi
fi

status=0
[ $# -gt 0 ] || set -- "${all_parts[@]}"
for name in "$@"; do
  case " ${all_parts[*]} " in
    *" $name "*) run_part "$name" || status=9 ;;
    *)
      echo "unknown part '$name'; the parts are: ${all_parts[*]}" >&2
      exit 2
      ;;
  esac
done
python3 scripts/gpu_record.py write "$out" "$records" "$engine" || status=9
exit $status
