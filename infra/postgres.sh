# shellcheck shell=bash
# Sourced: where PostgreSQL's programs are, installed if need be; and a server of its own for the
# tests, unless HACPO_TEST_POSTGRES_URL names one.

POSTGRES_FOLDER=""

# ensure_postgres: sets POSTGRES_BIN.
ensure_postgres() {
  POSTGRES_BIN="$(postgres_bin)"
  if [[ -z "$POSTGRES_BIN" ]]; then
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
      echo "PostgreSQL is needed here: install it (Debian: postgresql)" >&2
      return 1
    fi
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y postgresql >/dev/null
    POSTGRES_BIN="$(postgres_bin)"
  fi
}

start_postgres() {
  local bin port
  [[ -z "${HACPO_TEST_POSTGRES_URL:-}" ]] || return 0
  ensure_postgres
  bin="$POSTGRES_BIN"
  POSTGRES_FOLDER="$(mktemp -d)"
  port="$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
  if [[ "$(id -u)" == 0 ]]; then chown postgres "$POSTGRES_FOLDER"; fi
  as_postgres "$bin/initdb" -D "$POSTGRES_FOLDER/data" -U hacpo -A trust -E UTF8 >/dev/null
  as_postgres "$bin/pg_ctl" -D "$POSTGRES_FOLDER/data" -l "$POSTGRES_FOLDER/log" -w start \
    -o "-p $port -c listen_addresses=127.0.0.1 -c fsync=off -k $POSTGRES_FOLDER" >/dev/null
  as_postgres "$bin/createdb" -h 127.0.0.1 -p "$port" -U hacpo hacpo
  export HACPO_TEST_POSTGRES_URL="postgresql://hacpo@127.0.0.1:$port/hacpo"
}

stop_postgres() {
  [[ -n "$POSTGRES_FOLDER" ]] || return 0
  as_postgres "${POSTGRES_BIN:-}/pg_ctl" -D "$POSTGRES_FOLDER/data" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$POSTGRES_FOLDER"
}

# PostgreSQL refuses to run as root.
as_postgres() {
  if [[ "$(id -u)" == 0 ]]; then
    (cd / && runuser -u postgres -- "$@")
  else
    "$@"
  fi
}

postgres_bin() {
  local initdb
  for initdb in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
    if [[ -x "$initdb" ]]; then
      dirname "$(readlink -f "$initdb")"
      return
    fi
  done
}
