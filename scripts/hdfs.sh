#!/usr/bin/env bash
# A small HDFS for the tests of several writers at once: its jars in .setup/hdfs/. Run by `make test-slow` and `make test-all`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

JARS=(
    # Hadoop's version is that of the client Spark ships.
    org.apache.hadoop:hadoop-client-minicluster:3.4.2
    # Of these it loads a class or two.
    junit:junit:4.13.2
    org.mockito:mockito-core:4.11.0
)
COPY=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy

are_right() { [ -d .setup/hdfs ] && (cd .setup/hdfs && sha256 --check --status ../../scripts/hdfs.sha256); }

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

are_right && exit 0
if ! command -v mvn >/dev/null; then
    echo "hdfs: no Maven (mvn) here, so the tests on HDFS are left out; install it (Debian: apt-get install maven)" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
echo "hdfs: fetching the jars (40 MB)" >&2
rm -rf .setup/hdfs && mkdir -p .setup/hdfs
for jar in "${JARS[@]}"; do
    mvn --quiet --batch-mode --strict-checksums "$COPY" -Dartifact="$jar" -DoutputDirectory="$PWD/.setup/hdfs" >.setup/hdfs.log 2>&1 || {
        tail -20 .setup/hdfs.log >&2
        echo "error: $jar could not be fetched, Maven says above why; is a Maven repository reachable?" >&2
        exit 1
    }
done
are_right || {
    echo "error: the jars fetched into .setup/hdfs are not those of scripts/hdfs.sha256" >&2
    exit 1
}
