#!/usr/bin/env bash
# From a checkout to a running platform and its first table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
bash infra/quickstart.sh [--smoke | --config FILE]   start everything, run a grid, follow it
bash infra/quickstart.sh --stop | --status

  --smoke        configs/embedded/smoke.yaml: two steps of everything
  --config FILE  another grid; the default is configs/embedded/grid.yaml

Environment: HACPO_HOME (.hacpo), HACPO_PREFECT_PORT (4200), HACPO_MLFLOW_PORT (5000),
HACPO_GPUS (UUIDs; default: all, `none` for the CPU), HACPO_SLOTS (without GPUs: experiments at
the same time, one a core), HACPO_VENV (.venv), HACPO_PYTHON.
END
}

action=run
parameters=()
while (($#)); do
  case "$1" in
    --stop | --status) action="${1#--}" ;;
    --smoke) parameters=(-p config=configs/embedded/smoke.yaml) ;;
    --config)
      [[ -f "${2:-}" ]] || { echo "--config: no such file: ${2:-}" >&2; exit 2; }
      parameters=(-p "config=$2")
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown argument $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

if [[ "$action" != run ]]; then
  # What was started with another HACPO_VENV is stopped with it, too.
  recorded="${HACPO_HOME:-.hacpo}/env"
  if [[ -z "${HACPO_VENV:-}" && -f "$recorded" ]]; then
    HACPO_VENV="$(source "$recorded" && echo "$HACPO_VENV")"
  fi
  python="${HACPO_VENV:-.venv}/bin/python"
  [[ -x "$python" ]] || { echo "Nothing was ever started here: there is no $python"; exit 0; }
  exec "$python" infra/services.py "$action"
fi

source infra/install.sh
ensure_venv ""
python infra/services.py start
# shellcheck disable=SC1091
source "${HACPO_HOME:-.hacpo}/env"

echo "For prefect and hacpo commands in your shell: source ${HACPO_HOME:-.hacpo}/env"
echo "\$ prefect deployment run hacpo-grid ${parameters[*]:-}"
# The older bash of macOS takes an empty array for an unset one.
created="$(prefect deployment run hacpo-grid ${parameters[@]+"${parameters[@]}"})" || { echo "$created" >&2; exit 1; }
flow_run="$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' <<<"$created" | head -n 1)"
exec python -m flows.follow "$flow_run"
