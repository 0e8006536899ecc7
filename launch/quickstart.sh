#!/usr/bin/env bash
# The whole of motif_jax on this machine, from nothing: installs what is missing, then runs configs/quickstart.py.
#
#   bash launch/quickstart.sh [--config.collect.num_pairs=50000 ...]
#
# Runs in runs/quickstart (WORKDIR=elsewhere to change that). Given again, it goes on where it was stopped.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install dev

WORKDIR=${WORKDIR:-runs/quickstart}
say "motif_jax: configs/quickstart.py in $WORKDIR"
python -m motif_jax.launch --config=configs/quickstart.py --workdir="$WORKDIR" "$@"

cat <<EOF

What was preferred is shown in $WORKDIR/annotations, the reward learnt from it is in $WORKDIR/reward, the agent that was
trained on it is in $WORKDIR/policy. Four things to try:
  python -m motif_jax.launch --config=configs/quickstart.py --workdir=$WORKDIR --stage=evaluate # how well does it play?
  WORKDIR=runs/gold bash launch/quickstart.sh --config.annotate.goal=gold                      # another goal
  python -m motif_jax.launch --config=configs/motif.py --workdir=runs/speed --stage=benchmark  # how fast is this machine?
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score              # 100,000 pairs, and on
EOF
[ "${VENV:-}" ] && echo "(first: source $VENV/bin/activate)" || true
