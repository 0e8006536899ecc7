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

The dataset of pairs is in $WORKDIR/dataset. Three things to try next:
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score              # 100,000 pairs
  python -m motif_jax.launch --config=configs/motif.py --workdir=runs/speed --stage=benchmark  # how fast is this machine?
  python -c 'import motif_jax.preferences.store as s; print(s.PairDataset("$WORKDIR/dataset").data)'
EOF
[ "${VENV:-}" ] && echo "(first: source $VENV/bin/activate)" || true
