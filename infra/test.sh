#!/usr/bin/env bash
# The test suite; ends with pytest's line. Arguments go to pytest.
#   bash infra/test.sh             fast tests
#   bash infra/test.sh --all       also slow, vllm, postgres and browser; refuses unexpected skips
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source infra/install.sh

if [[ "${1:-}" != --all ]]; then
  ensure_venv dev
  exec python -m pytest -m "not slow and not vllm and not postgres and not browser" "$@"
fi
shift
ensure_venv all

source infra/chromium.sh
source infra/postgres.sh
ensure_chromium
report="$(mktemp)"
trap 'stop_postgres; rm -f "$report"' EXIT
start_postgres
outcome=0
# Two files at a time, each process with one thread: most of the slow tests wait for servers.
export OMP_NUM_THREADS=1
python -m pytest -n 2 --dist loadfile --junitxml="$report" "$@" || outcome=$?
python infra/skips.py "$report" infra/expected_skips.txt || outcome=1
exit "$outcome"
