#!/usr/bin/env bash
# A good player on one GPU: 100 million steps of configs/quickstart.py:score,gpu (half an hour on an H200, at 72,500
# steps/s), then 1,000 games by its own rules, and 100 each by BALROG's and the NetHack Challenge's.
#
#   bash motif_jax/contrib/protocols/launch/long.sh                    in runs/long; WORKDIR=elsewhere changes where. Given again, it goes on
#   PART_S=1500 bash motif_jax/contrib/protocols/launch/long.sh        in parts, for machines that are lent: each ends after 25 minutes
#   bash motif_jax/contrib/protocols/launch/long.sh --dry_run          also without a GPU: what it would do
#   bash motif_jax/contrib/protocols/launch/long.sh --config.seed=1    other flags go to the program
#
# PYTHON=/path/to/python names an environment as it is. A part needs only the workdir of the last one.
set -euo pipefail
case ${WORKDIR:-} in "") WORKDIR=runs/long ;; /*) ;; *) WORKDIR=$PWD/$WORKDIR ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
if [ -z "${PYTHON:-}" ]; then
  source launch/environment.sh
  install dev
fi
python=${PYTHON:-python} end=$((SECONDS + ${PART_S:-864000}))
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
[[ " $* " = *" --dry_run "* ]] || MOTIF_JAX_GPU=$("$python" -m motif_jax.system.sizing)
export MOTIF_JAX_GPU
if [ "${MOTIF_JAX_GPU:-}" = cpu ]; then
  echo "motif_jax: this takes a GPU that JAX can use" >&2
  exit 2
fi
trap 'exit 130' INT
run() { # STAGES FLAGS
  local status=0 left=$((end - SECONDS))
  timeout --foreground "$((left > 0 ? left : 1))" "$python" -m motif_jax.launch --workdir="$WORKDIR" \
    --config=configs/quickstart.py:score,gpu --config.policy.train_for_env_steps=100000000 \
    --config.policy.train_for_seconds=0 --stage="$@" || status=$?
  if [ "$status" = 124 ]; then echo "this part is over: the same command goes on"; exit; fi
  if [ "$status" != 0 ]; then exit "$status"; fi
}
run collect,annotate,train_reward,train_policy,evaluate,report --config.evaluate.episodes=1000 "$@"
for protocol in balrog_nethack challenge; do
  run evaluate,report --config.evaluate.protocol=$protocol --config.evaluate.episodes=100 "$@"
done
