# shellcheck shell=bash
# Sourced: Debian's Chromium for the browser tests, unless HACPO_CHROMIUM names one.

ensure_chromium() {
  if [[ -n "${HACPO_CHROMIUM:-}" ]] || command -v chromium >/dev/null; then return 0; fi
  if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "the browser tests need Chromium: install it, or set HACPO_CHROMIUM to one" >&2
    return 1
  fi
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null
}
