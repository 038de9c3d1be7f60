# shellcheck shell=bash
# Sourced by the scripts beside it: makes the virtual environment and puts it on PATH.
# HACPO_VENV: where it lies (.venv); HACPO_PYTHON: the interpreter that makes it.

TORCH="torch==2.13.0"

# ensure_venv [EXTRA]: installs only if pyproject.toml or the constraints have changed since.
ensure_venv() {
  local extra="${1:-}" python marker wanted
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
  # What is installed with an extra serves those who need none.
  for marker in "$VENV/.hacpo" "$VENV/.hacpo-dev"; do
    if [[ -f "$marker" && "$(<"$marker")" == "$wanted" && ("$marker" == *-dev || -z "$extra") ]]; then
      return 0
    fi
  done
  echo "Installing into $VENV (once, some minutes)"
  python -m pip install -qq --constraint infra/constraints.txt "$TORCH"
  python -m pip install -qq --constraint infra/constraints.txt --editable ".${extra:+[$extra]}"
  echo "$wanted" >"$VENV/.hacpo${extra:+-$extra}"
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
