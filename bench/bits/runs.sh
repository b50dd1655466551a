#!/usr/bin/env bash
# Hashes of runs: a change that must not change results shows the same lines before and after.
# Usage: bench/bits/runs.sh RINGO [OLD] > FILE
# OLD is another binary: it writes the checkpoints that RINGO resumes, so that equal lines also show
# that RINGO reads them. Takes 20 seconds on two cores.
set -uo pipefail
ringo=$(realpath "$1") old=$(realpath "${2:-$1}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# bits NAME ARGUMENTS...: one training; its line has the hash of the parameters and the losses with all
# digits.
by=$ringo
bits() {
  local name=$1 out
  shift
  if out=$("$by" train "$@" --json - --progress none 2>"$dir/stderr" | tail -1) && [[ $out == *'"event":"summary"'* ]]; then
    printf '%-28s %s\n' "$name" "$(grep -oE '"(params_sha256|train_loss|eval_loss)":[^,}]*' <<<"$out" | tr -d '"' | tr '\n' ' ')"
  else
    printf '%-28s FAILED: %s\n' "$name" "$(tail -1 "$dir/stderr")"
    failed=1
  fi
}

failed=0
small=(--data synthetic --epochs 1 --threads 1 --train-limit 600 --eval-limit 200)
for np in 1 2 3; do bits "mlp np $np" mlp "${small[@]}" --np $np; done
for strategy in fp32 fp16 bf16 int8 partialUpdate sparseTopK sparseThreshold lags dgc dlgs; do bits "mlp $strategy" mlp "${small[@]}" --np 2 --strategy $strategy; done
for plan in one per-layer fixed; do bits "mlp plan $plan" mlp "${small[@]}" --np 2 --plan $plan; done
for optimizer in sgd adagrad adam adamw; do bits "mlp $optimizer" mlp "${small[@]}" --np 2 --optimizer $optimizer; done
bits "mlp accumulate" mlp "${small[@]}" --np 2 --accumulate 3
bits "mlp clip" mlp "${small[@]}" --np 2 --clip-norm 0.5
bits "mnist-cnn np 2" mnist "${small[@]}" --np 2
bits "resnet20" resnet20 --data synthetic --epochs 1 --threads 1 --train-limit 64 --eval-limit 32 --np 2
bits "gpt-mini" gpt-mini --data synthetic --epochs 1 --threads 1 --np 2 --train-limit 48 --eval-limit 12
clicks=(ctr-dnn --data synthetic --epochs 1 --threads 1 --batch 64 --train-limit 1200 --eval-limit 400)
for model in ctr-dnn wide-deep deepfm dcn-v2; do bits "$model" $model "${clicks[@]:1}" --np 2; done
bits "ctr-dnn sum" "${clicks[@]}" --np 2 --servers 2 --sync aggregate
for sync in bsp ssp async geo; do bits "ctr-dnn $sync" "${clicks[@]}" --np 1 --servers 2 --sync $sync; done
bits "ctr-dnn bsp np 2" "${clicks[@]}" --np 2 --servers 2 --sync bsp
bits "ctr-dnn bsp on SSD" "${clicks[@]}" --np 2 --servers 1 --sync bsp --ps-memory 2MiB --ps-dir "$dir/ssd"
bits "ctr-dnn bsp admitted" "${clicks[@]}" --np 2 --servers 2 --sync bsp --set ps.admission=count:2
bits "ctr-dnn click" "${clicks[@]}" --np 2 --servers 2 --sync bsp --optimizer click
bits "ctr-dnn heter" "${clicks[@]}" --np 1 --servers 1 --heter 1 --set heter.micro-batches=1
for heters in 1 2 3; do bits "ctr-dnn heter $heters np 2" "${clicks[@]}" --np 2 --servers 2 --heter $heters; done
by=$old
bits "mlp saved" mlp "${small[@]}" --np 2 --strategy topk --checkpoint saved --set checkpoint.every=2
by=$ringo
bits "mlp resumed" mlp "${small[@]}" --np 2 --strategy topk --checkpoint saved --resume --epochs 2
by=$old
bits "ctr-dnn saved" "${clicks[@]}" --np 2 --servers 2 --sync bsp --checkpoint served --set checkpoint.every=4
by=$ringo
bits "ctr-dnn resumed" "${clicks[@]}" --np 2 --servers 2 --sync bsp --checkpoint served --resume --epochs 2
exit $failed
