#!/usr/bin/env bash
# RocketMQ's own message store for the tests that open an export with it: its jars in .setup/rocketmq/. Run by `make test-slow`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

COPY=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies

are_right() { [ -d .setup/rocketmq ] && (cd .setup/rocketmq && sha256 --check --status ../../scripts/rocketmq.sha256); }

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

are_right && exit 0
if ! command -v mvn >/dev/null; then
    echo "rocketmq: no Maven (mvn) here, so no test opens an export with it; install it (Debian: apt-get install maven)" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
echo "rocketmq: fetching the jars (70 MB)" >&2
rm -rf .setup/rocketmq && mkdir -p .setup/rocketmq
mvn --quiet --batch-mode --strict-checksums "$COPY" -f tests/export/pom.xml -DincludeScope=runtime \
    -DoutputDirectory="$PWD/.setup/rocketmq" >.setup/rocketmq.log 2>&1 || {
    tail -20 .setup/rocketmq.log >&2
    echo "error: rocketmq-store could not be fetched, Maven says above why; is a Maven repository reachable?" >&2
    exit 1
}
are_right || {
    echo "error: the jars fetched into .setup/rocketmq are not those of scripts/rocketmq.sha256" >&2
    exit 1
}
