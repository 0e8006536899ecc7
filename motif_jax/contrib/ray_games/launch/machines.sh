#!/usr/bin/env bash
# A cluster of Ray on a plain list of machines, which this one reaches by ssh without a password.
#
#   bash motif_jax/contrib/ray_games/launch/machines.sh start HOST:CORES HOST:CORES    # prints the flags for motif_jax.launch
#   bash motif_jax/contrib/ray_games/launch/machines.sh stop HOST HOST
#
# The project and its environment (VENV, default .venv, with the extra `ray`) must be at the same path everywhere, and the
# workdir on a shared disk. ADDRESS is this machine's address in their network (default: its first), PORT that of the
# cluster (default 6379); Ray's other ports are open to that network as well. The key, ~/.ray/auth_token, is made once
# and copied to each of them.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
VENV=${VENV:-.venv} PORT=${PORT:-6379} ADDRESS=${ADDRESS:-$(hostname -I | cut -d' ' -f1)} key=~/.ray/auth_token
action=${1:?start or stop}
shift
# shellcheck disable=SC1091
source "$VENV/bin/activate"

on() { ssh -o BatchMode=yes "$1" "bash -c $(printf %q "cd '$PWD' && source '$VENV/bin/activate' && $2")"; }

if [ "$action" = stop ]; then # ends all of your Ray there
  for host in "$@"; do on "${host%:*}" "ray stop"; done
  ray stop
  exit
fi
[ -f "$key" ] || (umask 077 && mkdir -p ~/.ray && python -c 'import secrets; print(secrets.token_hex(32))' >"$key")
RAY_AUTH_TOKEN=$(cat "$key")
source motif_jax/contrib/ray_games/launch/start.sh
ray start --head --node-ip-address="$ADDRESS" --port="$PORT" --num-cpus=0 --include-dashboard=false
for host in "$@"; do
  on "${host%:*}" 'umask 077 && mkdir -p ~/.ray && cat >~/.ray/auth_token' <"$key"
  # In one line: a shell that is not bash would not understand how `on` quotes two.
  on "${host%:*}" "RAY_AUTH_TOKEN=\$(cat ~/.ray/auth_token) && source motif_jax/contrib/ray_games/launch/start.sh && ray start --address=$ADDRESS:$PORT --num-cpus=${host#*:}" </dev/null
done
echo "RAY_AUTH_MODE=token python -m motif_jax.launch ... --config.ray_games.address=$ADDRESS:$PORT" \
  "--config.ray_games.hosts=$# --config.ray_games.cores=$(printf '%s\n' "${@#*:}" | sort -n | head -1)"
