#!/usr/bin/env bash
# A browser for the tests of the report's page: the one that is there, else Debian's chromium. Run by `make test-slow` and `make test-all`.
set -euo pipefail

command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "browser: installing chromium" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2
    exit 0
fi
echo "error: the tests of the report's page need a browser called chromium; found none; install it (Debian: apt-get install chromium)" >&2
exit 1
