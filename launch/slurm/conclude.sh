# Sourced by the jobs that requeue themselves: what becomes of a job when its program has ended. $job is the script's name.

# A job that somebody cancelled, or that SLURM itself has requeued, is not RUNNING any more.
requeue() {
  local state
  state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)
  state=${state%%$'\n'*} # a heterogeneous job has a line for each part
  if [ "$state" = RUNNING ]; then
    echo "$job: $1, requeued"
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "$job: $1; the job is ${state:-gone}"
  fi
}

# The status of a process. `wait` returns early at each signal to this script.
join() {
  while kill -0 "$1" 2>/dev/null; do
    wait "$1" || true
  done
  wait "$1"
}

# Ends the script: conclude STATUS ARGUMENTS, with the status of srun and the arguments of motif_jax.launch.
conclude() {
  local status=$1
  shift
  case $status in
    0) ;;
    134 | 137) # a task was killed, or JAX aborted it as another was lost. A job that loses one each time must end, too.
      [[ ${SLURM_RESTART_COUNT:-0} == [0-4] ]] || exit "$status"
      requeue "a task was lost"
      exit 0
      ;;
    *) exit "$status" ;;
  esac

  # Status 0 is both "stopped, and saved" and "finished".
  python - "$@" <<'PYTHON' || status=$?
import sys
from pathlib import Path

from motif_jax import launch
from motif_jax.stages import train_policy

launch.define_flags()
launch.parse(sys.argv)
sys.exit(0 if train_policy.is_complete(launch.FLAGS.config, Path(launch.FLAGS.workdir)) else 10)
PYTHON
  case $status in
    0) echo "$job: finished" ;;
    10) requeue "not finished" ;;
    *) exit "$status" ;;
  esac
}
