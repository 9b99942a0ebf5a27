#!/usr/bin/env bash
# Make dist/ what the executors of a cluster need. Run by `make package`, after `make setup`; again: nothing to do.
#
#   commitlake.zip               schemas/, pipelines/ and jobs/, for spark.submit.pyFiles
#   commitlake-packages.tar.gz   what they import, for spark.archives: unpacked, and put on the executors' PYTHONPATH. Plain
#                                folders, so the machines need nothing but a Python 3.11, wherever it lies.
#   standalone.conf, …           for each kind of cluster, spark-conf/cluster.conf and what is different there
#
# Executors on another platform than this one: make package PLATFORM=manylinux_2_28_aarch64
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# What the code imports on executors, and what that imports in turn; in the versions of requirements.txt. Spark's own Python
# is on every executor already, and what only a driver uses (the command line, charts, checks) stays at home.
ON_EXECUTORS="delta-spark importlib-metadata zipp lark lz4 numpy pandas python-dateutil pytz tzdata pyarrow tenacity"
PLATFORM=${PLATFORM:-}

main_package() {
    mkdir -p .setup dist
    wait_for_other_setup
    find_python
    pack_packages
    pack_code
    write_profiles
    say "dist/ holds $(cd dist && ls | tr '\n' ' ')"
}

pack_packages() {
    local wanted
    wanted=$(digest requirements.txt scripts/package.sh <(echo "$PLATFORM"))
    is_done executor-packages "$wanted" && [ -f dist/commitlake-packages.tar.gz ] && return
    rm -rf .setup/executor-packages build/packages && mkdir -p build
    say "collecting the executors' packages"
    pinned $ON_EXECUTORS >.setup/executors.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
        --only-binary=:all: ${PLATFORM:+--platform "$PLATFORM" --python-version 3.11} \
        --target build/packages -r .setup/executors.txt ||
        stop "the executors' packages could not be collected, pip says above why; is a package index reachable?"
    # Their own tests are a tenth of it.
    tar -C build/packages --exclude='*/tests' --exclude='./bin' -czf dist/commitlake-packages.tar.gz.new . &&
        mv dist/commitlake-packages.tar.gz.new dist/commitlake-packages.tar.gz
    done_with executor-packages "$wanted"
}

# pinned NAME…: their lines of requirements.txt, with version and hashes. A name that is not pinned there is left out only
# when nothing needs it any more, so it is an error.
pinned() {
    local name
    for name in "$@"; do
        grep -q "^$name==" requirements.txt || stop "requirements.txt has no $name; fix ON_EXECUTORS in scripts/package.sh"
        awk -v name="$name==" 'index($0, name) == 1 {wanted = 1} wanted {print} wanted && !/\\$/ {exit}' requirements.txt
    done
}

# A wheel is a zip with the code at its top; Spark wants the ending.
pack_code() {
    rm -rf build/wheel build/lib
    .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheel . ||
        stop "the code could not be packed, pip says above why"
    mv build/wheel/commitlake-*.whl dist/commitlake.zip
}

write_profiles() {
    local cluster
    for cluster in standalone yarn kubernetes; do
        cat spark-conf/cluster.conf <(echo) "spark-conf/$cluster.conf" >"dist/$cluster.conf"
    done
}

main_package
