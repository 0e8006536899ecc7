#!/usr/bin/env bash
# The whole of motif_jax on this machine, from nothing: installs what is missing, then runs configs/quickstart.py.
#
#   bash launch/quickstart.sh                      to an agent that likes progress, in runs/quickstart
#   bash launch/quickstart.sh --goal=gold          one that likes gold, in runs/quickstart-gold; also combat, stairs
#   bash launch/quickstart.sh --goal=gold,combat   one after the other
#   bash launch/quickstart.sh oni                  configs/oni_quickstart.py instead, in runs/oni: the reward is learnt
#                                                  while the agent plays; --goal=gold works as well
#   bash launch/quickstart.sh ilql                 configs/ilql_quickstart.py, in runs/ilql: a language model learns to
#                                                  play with words from recorded games; it has no goals
#   bash launch/quickstart.sh --config.policy.train_for_seconds=1800    other flags go to the program
#
# The report compares an agent with those of other goals that are finished. WORKDIR=elsewhere changes where it runs.
# Given again, it goes on where it was stopped, and does nothing twice.
case ${WORKDIR:-} in
  "" | /*) ;;
  *) WORKDIR=$PWD/$WORKDIR ;; # environment.sh changes directory
esac
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

mapfile -t known < <(sed -n 's/^\([A-Za-z0-9_-]*\) = .*/\1/p' motif_jax/envs/nethack/texts/goals.toml)
goals=
staged=
arguments=()
example=quickstart # a config, and the flag that says the goal to it
home=runs/quickstart
goal_flag() { echo "--config.annotate.goal=$1"; }
if [ "${1:-}" = oni ]; then
  example=oni_quickstart
  home=runs/oni
  goal_flag() { echo "--config.policy.online.goals=$1@0"; }
  shift
elif [ "${1:-}" = ilql ]; then
  example=ilql_quickstart
  home=runs/ilql
  goal_flag() { :; }
  shift
fi
for argument in "$@"; do
  case $argument in
    --goal | --goal=*)
      if [ "$example" = ilql_quickstart ]; then fail "$argument: games of words have no goals"; fi
      if [[ $argument != --goal=?* ]]; then fail "say which goal, as --goal=gold: choose from ${known[*]}"; fi
      if [ "$goals" ]; then fail "--goal was given twice; several goals go into one: --goal=gold,combat"; fi
      goals=${argument#--goal=}
      ;;
    --workdir | --workdir=* | -workdir | -workdir=*)
      fail "$argument is not for this script: WORKDIR=elsewhere bash launch/quickstart.sh chooses the place"
      ;;
    --config | --config=* | -config | -config=*)
      fail "$argument is not for this script, which runs configs/$example.py: give it to python -m motif_jax.launch"
      ;;
    --config.annotate.goal | --config.annotate.goal=* | --config.policy.online.goals=*) fail "$argument: say it with --goal here, as --goal=gold" ;;
    --stage | --stage=* | -stage | -stage=* | --help* | -help* | -h)
      staged=yes # then a report is not due
      arguments+=("$argument")
      ;;
    *) arguments+=("$argument") ;;
  esac
done
goals=${goals:-defaultgoal}
case ",$goals," in
  *[[:space:]]*) fail "a goal in your own words needs a real language model (see README.md), unlike --goal='$goals'" ;;
  *,,*) fail "--goal=$goals has an empty goal in it" ;;
esac
IFS=, read -ra wanted <<<"$goals"
for goal in "${wanted[@]}"; do
  case " ${known[*]} " in
    *" $goal "*) ;;
    *) fail "unknown goal '$goal' (--goal): choose from ${known[*]}" ;;
  esac
done
case ${WORKDIR:-} in
  *,*) fail "the directory '$WORKDIR' has a comma in its name, which a list of runs cannot hold (WORKDIR)" ;;
esac
install dev

home=${WORKDIR:-$home}
place() { if [ "$1" = defaultgoal ]; then echo "$home"; else echo "$home-$1"; fi; }

trap 'exit 130' INT # the program itself ends well when it is stopped, and the next goal would begin
trap 'exit 143' TERM
for goal in "${wanted[@]}"; do
  workdir=$(place "$goal")
  others=()
  for other in "${known[@]}"; do
    if [ "$example" != ilql_quickstart ] && [ "$other" != "$goal" ] && [ -f "$(place "$other")/policy/summary.json" ]; then
      others+=("$(place "$other")")
    fi
  done
  compare=()
  if [ ${#others[@]} -gt 0 ]; then compare=("--config.report.runs=$(IFS=,; echo "${others[*]}")"); fi
  say "motif_jax: configs/$example.py in $workdir"
  steer=$(goal_flag "$goal")
  python -m motif_jax.launch --config=configs/$example.py --workdir="$workdir" ${steer:+"$steer"} \
    ${compare[@]+"${compare[@]}"} ${arguments[@]+"${arguments[@]}"}
  if [ -z "$staged" ] && [ ! -f "$workdir/report/index.html" ]; then
    printf 'motif_jax: stopped; give the same command again to go on\n' >&2
    exit 1
  fi
done
trap - INT TERM
if [ "$staged" ]; then exit; fi

config="--config=configs/$example.py --workdir=$(printf %q "$workdir")"
again="bash launch/quickstart.sh"
if [ "$example" != quickstart ]; then again="$again ${example%_quickstart}"; fi
if [ "${WORKDIR:-}" ]; then again="WORKDIR=$(printf %q "$WORKDIR") $again"; fi
report=$(cd "$workdir" && pwd)/report/index.html
if [ "$example" = ilql_quickstart ]; then
  cat <<EOF

The report: file://${report// /%20}
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Three things to try:
  python -m motif_jax.launch $config --stage=evaluate,report --config.decoding.betas=0,2,8,32    # other factors of Q - V
  python -m motif_jax.launch --config=configs/ilql_quickstart.py:wordle,filtered_bc --workdir=runs/filtered_bc    # a peer
  $again --config.train_values.num_epochs=4    # train the values for longer: they go on where they were
EOF
  if [ "${VENV:-}" ]; then echo "(first: source $VENV/bin/activate)"; fi
  exit
fi
config="$config $(goal_flag "$goal")"
elsewhere=gold
if [ "$goal" = gold ]; then elsewhere=combat; fi
cat <<EOF

The report: file://${report// /%20}
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Three things to try:
  $again --goal=$elsewhere    # steer it elsewhere; the report then compares the two
  $again --goal=$goal --config.policy.train_for_seconds=3600    # train it for longer: it goes on where it was
  python -m motif_jax.launch --config=configs/$example.py --workdir=runs/model --config.annotate.backend=server \\
      --config.annotate.server.url=http://127.0.0.1:8000/v1 --config.annotate.model=NAME    # ask a real language model
EOF
if [ "${VENV:-}" ]; then echo "(first: source $VENV/bin/activate)"; fi
