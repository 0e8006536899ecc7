#!/usr/bin/env bash
# Copies the repository without motif_jax/contrib, its tests and its pages, and runs core's quick tests and quickstarts.
#
#   bash launch/without_contrib.sh DIRECTORY    an empty directory for the copy; arguments after it go to pytest
set -euo pipefail
copy=$(realpath "$1") && shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files -z | xargs -0 cp --parents --no-dereference -t "$copy"
cd "$copy"
rm -r motif_jax/contrib tests/contrib
PYTHONPATH=$PWD exec python -m pytest -m "(quick or tiny) and not repository" "$@"
