#!/usr/bin/env bash
# Installs what the tests need on a machine that has Rust and Python: system packages if it may (root on Debian), and
# clients and engines in target/test-env. Writes nothing else, and does nothing the second time. What stays missing is
# listed by name; with CI=true that is an error.
#
#   target/test-env/python/bin/python   Python with OpenAI's SDK
#   target/test-env/node                a folder whose node_modules has OpenAI's SDK for Node
#   target/test-env/mocker/bin/python   Python with NVIDIA's mocker of engines
set -euo pipefail
cd "$(dirname "$0")/.."

home=$PWD/target/test-env
clients=$PWD/tests/clients
engines=$PWD/tests/engines
missing=()

# Runs a command quietly; shows what it said if it fails.
quietly() {
  local log=$home/setup.log
  "$@" >"$log" 2>&1 || { echo "tests/setup.sh: failed: $*" >&2; tail -n 20 "$log" >&2; return 1; }
}

# Debian puts it where only root looks.
nginx_binary() {
  PATH=$PATH:/usr/sbin command -v nginx
}

has_venv() {
  python3 -c 'import ensurepip, venv' 2>/dev/null
}

has_slurm() {
  command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v slurmrestd >/dev/null &&
    command -v munged >/dev/null
}

install_system_packages() {
  local wanted=()
  command -v python3 >/dev/null || wanted+=(python3 python3-venv)
  command -v python3 >/dev/null && ! has_venv && wanted+=(python3-venv)
  command -v curl >/dev/null || wanted+=(curl)
  command -v cc >/dev/null || wanted+=(gcc libc6-dev)
  command -v npm >/dev/null || wanted+=(nodejs npm)
  command -v ip >/dev/null || wanted+=(iproute2)
  command -v unshare >/dev/null || wanted+=(util-linux)
  command -v dockerd >/dev/null || wanted+=(docker.io)
  has_slurm || wanted+=(slurm-wlm slurmrestd munge slurm-wlm-jwt-plugin)
  nginx_binary >/dev/null || wanted+=(nginx-light)
  [ ${#wanted[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then return; fi
  echo "tests/setup.sh: installing ${wanted[*]}"
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update && quietly apt-get install -y --no-install-recommends "${wanted[@]}" || true
  # From Debian 13 on, Docker's command line is a package of its own.
  command -v docker >/dev/null || quietly apt-get install -y --no-install-recommends docker-cli || true
}

# The stamp is a copy of what was asked for: a client is set up once, and again when that changes.
# python_environment DIR REQUIREMENTS MODULE TITLE
python_environment() {
  has_venv || { missing+=("python3 with venv (Debian: apt install python3-venv), for $4"); return; }
  local dir=$1 wanted=$2
  cmp -s "$wanted" "$dir/stamp" && "$dir/bin/python" -c "import $3" 2>/dev/null && return
  echo "tests/setup.sh: setting up $4"
  rm -rf "$dir"
  if quietly python3 -m venv "$dir" && quietly "$dir/bin/python" -m pip install --disable-pip-version-check \
    --no-input --no-deps --only-binary=:all: -r "$wanted" && quietly "$dir/bin/python" -c "import $3"; then
    cp "$wanted" "$dir/stamp"
  else
    missing+=("$4 (see above)")
  fi
}

node_client() {
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    missing+=("node and npm, for OpenAI's SDK for Node (Debian: apt install nodejs npm)")
    return
  fi
  local dir=$home/node wanted=$clients/package-lock.json
  cmp -s "$wanted" "$dir/stamp" && [ -d "$dir/node_modules/openai" ] && return
  echo "tests/setup.sh: setting up OpenAI's SDK for Node"
  rm -rf "$dir" && mkdir -p "$dir"
  cp "$clients/package.json" "$wanted" "$dir/"
  if quietly npm ci --prefix "$dir" --no-audit --no-fund --ignore-scripts; then
    cp "$wanted" "$dir/stamp"
  else
    missing+=("OpenAI's SDK for Node (see above)")
  fi
}

mkdir -p "$home"
install_system_packages
command -v curl >/dev/null || missing+=("curl")
command -v cc >/dev/null || missing+=("a linker (Debian: apt install gcc libc6-dev)")
command -v cargo >/dev/null || missing+=("cargo: Rust, from https://rustup.rs")
python_environment "$home/python" "$clients/requirements.txt" openai "OpenAI's SDK for Python"
python_environment "$home/mocker" "$engines/requirements.txt" dynamo.mocker "NVIDIA's mocker of engines"
node_client
nginx_binary >/dev/null || missing+=("nginx, for streams behind another proxy (Debian: apt install nginx-light)")
command -v ip >/dev/null && command -v unshare >/dev/null || missing+=("ip and unshare, for NVIDIA's mocker of engines")

command -v dockerd >/dev/null && command -v docker >/dev/null || missing+=("dockerd and docker, for containers (Debian: apt install docker.io)")
has_slurm || missing+=("Slurm (Debian: apt install slurm-wlm slurmrestd munge slurm-wlm-jwt-plugin)")

if [ ${#missing[@]} -gt 0 ]; then
  echo "tests/setup.sh: MISSING, so the tests that take it are skipped or fail:" >&2
  printf '  - %s\n' "${missing[@]}" >&2
  if [ "${CI:-}" = true ]; then exit 1; fi
fi
