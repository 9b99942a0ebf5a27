#!/usr/bin/env bash
# Jars for the tests alone, in .setup/NAME/: scripts/test_jars.sh NAME POM, run by `make test-slow` and `make test-all`.
#
#   hdfs      a small HDFS, for the tests of several writers at once: tests/scenes/pom.xml
#   rocketmq  RocketMQ's own message store, for the tests that open an export with it: tests/export/pom.xml
#
# Maven fetches what the POM names; scripts/NAME.sha256 has the content of each jar. Again: nothing to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=$1 pom=$2
folder=.setup/$name

are_right() { [ -d "$folder" ] && (cd "$folder" && sha256 --check --status "../../scripts/$name.sha256"); }

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

are_right && exit 0
if ! command -v mvn >/dev/null; then
    echo "$name: there is no Maven (mvn) here, so tests with $name are left out; install it (Debian: apt-get install maven)" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
echo "$name: fetching the jars (tens of megabytes)" >&2
rm -rf "$folder" && mkdir -p "$folder"
mvn --quiet --batch-mode --strict-checksums -f "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$PWD/$folder" >"$folder.log" 2>&1 || {
    tail -20 "$folder.log" >&2
    echo "error: the jars that $pom names could not be fetched, Maven says above why; is a Maven repository reachable?" >&2
    exit 1
}
are_right || {
    echo "error: the jars fetched into $folder are not those of scripts/$name.sha256" >&2
    exit 1
}
