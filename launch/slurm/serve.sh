# Sourced by ONI's jobs, in the directory of the project: a server with a language model, and the trainer that asks it.
#
# $job is the script's name. The script defines three functions: `on_server COMMAND` and `on_trainer COMMAND`, which become
# the command (exec) with the GPUs of each part, and `stop_trainer`, which tells the trainer to save and end; and perhaps
# `divide`, which finds out what each part gets.

source launch/slurm/start.sh
source launch/slurm/conclude.sh
server='' trainer='' stopping=''

divide() { :; }

stop() {
  stopping=1
  [ -z "$trainer" ] || stop_trainer
}

end_server() {
  [ "$server" ] || return 0
  kill "$server" 2>/dev/null || true
  join "$server" || true
}

# The variables of the server: its address, its key, and the command that serves the model.
prepare_server() {
  local name
  : "${MODEL:?names the model that the server has}"
  for name in PORT START_S; do
    if ! [[ ${!name:-1} =~ ^[1-9][0-9]{0,8}$ ]]; then
      echo "$job: $name is not a whole number from 1: '${!name}'" >&2
      exit 2
    fi
  done
  url=http://${SLURMD_NODENAME:-$(hostname)}:${PORT:=8000}/v1
  [ "${MOTIF_JAX_API_KEY:-}" ] || MOTIF_JAX_API_KEY=$(python -c 'import secrets; print(secrets.token_hex(16))')
  export MODEL PORT MOTIF_JAX_API_KEY VLLM_API_KEY=$MOTIF_JAX_API_KEY
  if [ -z "${SERVER:-}" ]; then
    SERVER='source "${SERVER_VENV:-.venv-annotate}/bin/activate" && commas=${CUDA_VISIBLE_DEVICES//[^,]/} &&
      exec python -m vllm.entrypoints.openai.api_server --model "$MODEL" --host 0.0.0.0 --port "$PORT" \
        --tensor-parallel-size $((${#commas} + 1))'
  fi
}

# Returns when the server lists the model, or at a signal.
wait_for_model() {
  local status why
  while [ -z "$stopping" ]; do
    status=0
    why=$(python -m motif_jax.annotation.client "$url" "$MODEL" 2>&1) || status=$?
    if [ "$status" = 0 ]; then return; fi
    if [ "$status" = 1 ]; then # a traceback; a server that is not ready yet gives another status
      echo "$job: $why" >&2
      exit 1
    fi
    if ! kill -0 "$server" 2>/dev/null; then
      status=0
      join "$server" || status=$?
      echo "$job: the server ended with status $status before it had the model $MODEL" >&2
      exit 1
    fi
    if [ "$SECONDS" -gt "${START_S:-3600}" ]; then
      echo "$job: the server did not get ready within ${START_S:-3600} seconds (START_S): $why" >&2
      exit 1
    fi
    sleep "${LOOK_EVERY_S:-10}" &
    wait $! || true # a signal ends the waiting
  done
}

# serve_and_train ARGUMENTS: of motif_jax.launch. Ends the script.
serve_and_train() {
  local status=0 arguments
  start "${VENV:-.venv}"
  require_cuda
  divide
  prepare_server
  trap stop TERM USR1
  trap end_server EXIT
  echo "$job: starting the server at $url"
  on_server bash -c "$SERVER" &
  server=$!
  wait_for_model
  if [ "$stopping" ]; then
    requeue "told to stop before the server was ready"
    exit 0
  fi

  echo "$job: the server has the model, starting the trainer"
  arguments=("$@" --config.annotate.backend=server --config.annotate.server.url="$url" --config.annotate.model="$MODEL")
  on_trainer python -m motif_jax.launch --stage=train_policy "${arguments[@]}" &
  trainer=$!
  [ -z "$stopping" ] || stop_trainer # a signal came before the trainer was known
  join "$trainer" || status=$?
  kill -0 "$server" 2>/dev/null || echo "$job: the server ended before the trainer"
  end_server
  conclude "$status" "${arguments[@]}"
}
