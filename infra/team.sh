#!/usr/bin/env bash
# The team's stack on one machine without Docker, to try it: PostgreSQL, an S3 server, Prefect and
# MLflow with passwords, workers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
bash infra/team.sh start [--workers N]   start what does not run; N workers (1) share the slots
bash infra/team.sh stop | status

Everything listens on loopback and lies under HACPO_HOME (.hacpo). Passwords are taken from the
environment (infra/env.example), else made and kept in HACPO_HOME/team.env. The S3 server keeps its
objects in memory, until it is stopped; S3_ENDPOINT (with S3_ACCESS_KEY, S3_SECRET_KEY) names a
lasting one instead.

Environment: HACPO_HOME, HACPO_PREFECT_PORT (4200), HACPO_MLFLOW_PORT (5000), HACPO_POSTGRES_PORT
(5432), HACPO_S3_PORT (9000), HACPO_SLOTS (experiments at the same time: one a core), HACPO_VENV.
END
}

source infra/postgres.sh
case "${1:-}" in
  start)
    source infra/install.sh
    ensure_venv team
    ensure_postgres
    ;;
  stop | status)
    # What was started with another HACPO_VENV is stopped with it, too.
    recorded="${HACPO_HOME:-.hacpo}/env"
    if [[ -z "${HACPO_VENV:-}" && -f "$recorded" ]]; then
      HACPO_VENV="$(source "$recorded" && echo "$HACPO_VENV")"
    fi
    export PATH="${HACPO_VENV:-.venv}/bin:$PATH"
    ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
HACPO_POSTGRES_BIN="${HACPO_POSTGRES_BIN:-$(postgres_bin)}" exec python infra/team.py "$@"
