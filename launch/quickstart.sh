#!/usr/bin/env bash
# The whole of motif_jax on this machine, from nothing: installs what is missing, then runs configs/quickstart.py.
#
#   bash launch/quickstart.sh                      to an agent that likes progress, in runs/quickstart
#   bash launch/quickstart.sh --goal=gold          one that likes gold, in runs/quickstart-gold; also combat, stairs
#   bash launch/quickstart.sh --goal=gold,combat   one after the other
#   bash launch/quickstart.sh --config.policy.train_for_seconds=1800    other flags go to the program
#
# The report compares an agent with those of other goals that are finished. WORKDIR=elsewhere changes where it runs.
# Given again, it goes on where it was stopped, and does nothing twice.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

goals=defaultgoal
arguments=()
for argument in "$@"; do
  case $argument in
    --goal=?*) goals=${argument#--goal=} ;;
    --goal | --goal=) fail "say which goal: --goal=gold, combat, stairs or defaultgoal" ;;
    *) arguments+=("$argument") ;;
  esac
done
install dev

home=${WORKDIR:-runs/quickstart}
place() { if [ "$1" = defaultgoal ]; then echo "$home"; else echo "$home-$1"; fi; }

for goal in ${goals//,/ }; do
  workdir=$(place "$goal")
  others=()
  for other in defaultgoal gold combat stairs; do
    if [ "$other" != "$goal" ] && [ -f "$(place "$other")/policy/summary.json" ]; then
      others+=("$(place "$other")")
    fi
  done
  compare=()
  if [ ${#others[@]} -gt 0 ]; then compare=("--config.report.runs=$(IFS=,; echo "${others[*]}")"); fi
  say "motif_jax: configs/quickstart.py in $workdir"
  python -m motif_jax.launch --config=configs/quickstart.py --workdir="$workdir" --config.annotate.goal="$goal" \
    ${compare[@]+"${compare[@]}"} ${arguments[@]+"${arguments[@]}"}
done

config="--config=configs/quickstart.py --workdir=$workdir --config.annotate.goal=$goal"
again="${WORKDIR:+WORKDIR=$WORKDIR }bash launch/quickstart.sh"
elsewhere=gold
if [ "$goal" = gold ]; then elsewhere=combat; fi
cat <<EOF

The report: file://$(cd "$workdir" && pwd)/report/index.html
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Three things to try:
  $again --goal=$elsewhere    # steer it elsewhere; the report then compares the two
  $again --goal=$goal --config.policy.train_for_seconds=3600    # train it for longer: it goes on where it was
  python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/model --config.annotate.backend=server \\
      --config.annotate.server.url=http://127.0.0.1:8000/v1 --config.annotate.model=NAME    # ask a real language model
EOF
[ "${VENV:-}" ] && echo "(first: source $VENV/bin/activate)" || true
