# Sourced by the jobs, in the directory of the project: the cluster's modules and the environment. $job is the script's name.

# start VENV: loads the modules that MODULES names, and activates an environment.
start() {
  if [ "${MODULES:-}" ]; then
    set +u # the clusters' own functions are not written for it
    # shellcheck disable=SC2086
    module load $MODULES
    set -u
  fi
  if [ ! -f "$1/bin/activate" ]; then
    echo "$job: there is no environment $1 (VENV); docs/hosts.md says how to make it" >&2
    exit 2
  fi
  # shellcheck disable=SC1091
  source "$1/bin/activate"
}

# Ends the job if the node has a GPU that JAX could not use, as it would train on the CPU for days.
require_cuda() {
  if [[ ${JAX_PLATFORMS:-} != cpu ]] && nvidia-smi >/dev/null 2>&1 && ! python -c '
import importlib.util, sys
sys.exit(not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)))'; then
    echo "$job: the environment (VENV) lacks JAX's libraries for CUDA: pip install -c launch/constraints.txt -e '.[cuda13]' there" >&2
    exit 2
  fi
}
