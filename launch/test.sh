#!/usr/bin/env bash
# Checks and tests: formatting, lint, types, then pytest.
#
#   bash launch/test.sh              everything (some minutes)
#   bash launch/test.sh --quick      the quick tests only
#   bash launch/test.sh -k pool      other arguments go to pytest
#
# Environment variables PYTHON and VENV choose another Python: see environment.sh.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install dev

arguments=()
for argument in "$@"; do
  if [ "$argument" = --quick ]; then arguments+=(-m quick); else arguments+=("$argument"); fi
done
say "ruff"
ruff check .
ruff format --check .
say "mypy"
mypy
say "pytest, with $(python --version)"
python -m pytest "${arguments[@]}"
