#!/usr/bin/env bash
# Make .venv, jars/ and .setup/classes.jsa what requirements*.txt, pyproject.toml and scripts/jars.sha256 say. Run by `make setup`.
#
# Safe to run again and to kill: a step counts as done only when its stamp in .setup/ was written after it, and each
# stamp is a digest of what the step was made from. With nothing to do it takes well under a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DELTA=io.delta:delta-spark_4.1_2.13:4.4.0 # the same version as in pom.xml and requirements.txt
# Java compiles fast, not for speed: what runs for seconds ends sooner. With the usual room for what it has compiled.
SHORT_RUN="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# main [dev|demo]: dev brings also what tests, lint and types need; demo takes the tour in the end.
main() {
    mkdir -p .setup
    wait_for_other_setup
    check_make
    find_java
    find_python
    begin_fetching_jars
    install_packages
    [ "${1:-}" != dev ] || install_dev_packages
    write_find_spark_home
    install_project
    end_fetching_jars
    if [ "${1:-}" = demo ]; then
        demo
        return
    fi
    share_classes
    [ "${did_something:-no}" = yes ] && say "set up; try: make demo" || say "nothing to do"
}

say() { echo "setup: $*" >&2; }

stop() {
    echo "error: $*" >&2
    exit 1
}

# Two at once would clear each other's environment. Without flock (macOS) the user has to take care.
wait_for_other_setup() {
    command -v flock >/dev/null || return 0
    exec 9>.setup/lock
    flock --nonblock 9 || { say "waiting for another setup in this folder" && flock 9; }
}

check_make() {
    command -v make >/dev/null || stop "commitlake is run by make, which is missing; install GNU make (Debian: apt-get install make)"
}

find_java() {
    local version
    java=java
    if [ -n "${JAVA_HOME:-}" ]; then
        java=$JAVA_HOME/bin/java
        [ -x "$java" ] || stop "commitlake needs Java 17 or newer; JAVA_HOME is $JAVA_HOME, where bin/java is missing; install one and set JAVA_HOME"
    fi
    command -v "$java" >/dev/null || stop "commitlake needs Java 17 or newer; found none; install one (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME"
    # 1.8.0_412 is Java 8, 17.0.15 is 17.
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -1) || true
    [ -n "$version" ] || stop "commitlake needs Java 17 or newer; $(command -v "$java") does not say its version; install one and set JAVA_HOME"
    [ "$version" -ge 17 ] || stop "commitlake needs Java 17 or newer; found $version at $(command -v "$java"); install one and set JAVA_HOME"
}

find_python() {
    local candidate found=""
    for candidate in ${PYTHON:-python3.11 /usr/bin/python3.11 python3 python}; do
        command -v "$candidate" >/dev/null || continue
        # A version manager's stand-in may be there and not run.
        python_version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        found="${found:+$found, }$python_version at $(command -v "$candidate")"
        case $python_version in 3.11.*) python=$candidate && return ;; esac
    done
    stop "commitlake needs Python 3.11; found ${found:-none}; install 3.11 or name it: make setup PYTHON=/path/to/python3.11"
}

# is_done STEP DIGEST
is_done() { [ "$(cat ".setup/$1" 2>/dev/null)" = "$2" ]; }

done_with() { echo "$2" >".setup/$1.new" && mv ".setup/$1.new" ".setup/$1" && did_something=yes; }

digest() { { cat "$@" && echo "$python_version $PWD"; } | sha256 | cut -d' ' -f1; }

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

install_packages() {
    local wanted
    wanted=$(digest requirements.txt requirements-setup.txt)
    is_done packages "$wanted" && [ -x .venv/bin/python ] && return
    rm -f .setup/packages .setup/dev-packages .setup/project .setup/classes
    make_environment .venv
    say "installing the pinned packages of requirements.txt (half a gigabyte, a minute or so)"
    install_pinned .venv requirements.txt
    done_with packages "$wanted"
}

install_dev_packages() {
    local wanted
    wanted=$(digest requirements-dev.txt)
    is_done dev-packages "$wanted" && return
    # A file that says something else: others are there, or half of them. Begin from nothing.
    [ ! -e .setup/dev-packages ] || { rm -f .setup/packages && install_packages; }
    echo begun >.setup/dev-packages
    say "installing the pinned packages of requirements-dev.txt for tests, lint and types"
    install_pinned .venv requirements-dev.txt
    done_with dev-packages "$wanted"
}

# make_environment FOLDER: a new one, with what installs into it. Always from nothing: a killed installation leaves packages
# half there, the next takes them for whole, and packages that are no longer wanted would stay.
make_environment() {
    say "making $1 with Python $python_version"
    "$python" -m venv --clear "$1" ||
        stop "$python could not make a virtual environment; is its venv module installed (Debian: apt-get install python3.11-venv)?"
    pip_install "$1" --require-hashes -r requirements-setup.txt ||
        stop "the packages could not be installed, pip says above why; is a package index reachable?"
}

# install_pinned FOLDER FILE: uv needs a seventh of pip's time. It does not read pip's settings, so pip installs where these name
# another index or the way to it, and where uv fails.
install_pinned() {
    if ! "$1/bin/python" -m pip config list | grep -qE "\.(index-url|extra-index-url|no-index|proxy|trusted-host|client-cert)="; then
        uv_install "$1" "$2" >.setup/uv.log 2>&1 && return
        say "uv could not install them (.setup/uv.log says why); asking pip"
    fi
    pip_install "$1" --require-hashes -r "$2" ||
        stop "the packages could not be installed, pip says above why; is a package index reachable?"
}

# A file names all that its packages need, so none is asked what it needs: pyspark's source would be fetched for that, and again to
# be built. The wheel built of it is unpacked at once, so it is not compressed before; and what uv keeps of both is over a gigabyte.
uv_install() {
    uv_without_asking "$1" --require-hashes --config-settings-package pyspark:--build-option=--compression=stored -r "$2" &&
        { "$1/bin/uv" cache clean --quiet pyspark pyspark-client || true; }
}

uv_without_asking() {
    "$1/bin/uv" pip install --quiet --python "$1/bin/python" --no-deps --no-build-isolation "${@:2}"
}

# What builds a package that comes as source (pyspark) is in requirements-setup.txt: nothing is fetched without a pinned hash.
pip_install() {
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517 --no-build-isolation "${@:2}"
}

# Read by .venv/bin/spark-submit, spark-sql and pyspark. The one pip installs asks whatever python3 is on the PATH where
# Spark is, and that one does not know. The driver's JVM gets the archive of classes, as a command's does
# (jobs/launch/session.py), which halves the time its first classes take. Here and not in a profile: those have no absolute paths.
write_find_spark_home() {
    rm -f .venv/bin/find-spark-home # may be a link into uv's cache
    cat >.venv/bin/find-spark-home <<'SCRIPT'
#!/usr/bin/env bash
bin=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SPARK_HOME=$(cd "$bin"/../lib/python3.11/site-packages/pyspark && pwd)
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$bin/python}
classes=${bin%/.venv/bin}/.setup/classes.jsa
if [ -f "$classes" ]; then
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:SharedArchiveFile=$classes -Xlog:disable -Xlog:all=error:stderr"
fi
SCRIPT
}

install_project() {
    local wanted
    wanted=$(digest pyproject.toml)
    is_done project "$wanted" && [ -x .venv/bin/commitlake ] && return
    say "installing the commitlake command"
    uv_without_asking .venv --editable . >.setup/uv.log 2>&1 || pip_install .venv --no-deps --editable . ||
        stop "the commitlake command could not be installed, pip says above why"
    done_with project "$wanted"
}

# The network waits on one, the disk on the other: Maven runs beside the installation of the packages.
begin_fetching_jars() {
    jars_are_right jars && return
    say "fetching the Delta jars"
    rm -rf .setup/jars && mkdir .setup/jars
    maven=none
    command -v mvn >/dev/null || return 0
    # Replaces the shell that waits for it, so that it can be ended.
    (exec mvn --quiet --batch-mode --strict-checksums dependency:copy-dependencies \
        -DoutputDirectory="$PWD/.setup/jars" >.setup/maven.log 2>&1) &
    maven=$!
    trap 'kill $maven 2>/dev/null || true' EXIT
}

end_fetching_jars() {
    [ -n "${maven:-}" ] || return 0
    maven_has_fetched || fetch_with_spark ||
        stop "the Delta jars ($DELTA) could be fetched neither by Maven nor by Spark, which say above why; is a Maven repository reachable?"
    jars_are_right .setup/jars ||
        stop "the fetched Delta jars are not those of scripts/jars.sha256; see .setup/jars; nothing was put into jars/"
    rm -rf jars .setup/classes && mv .setup/jars jars
    did_something=yes
}

# jars_are_right FOLDER: exactly the wanted jars, each with the wanted content.
jars_are_right() {
    [ "$(ls "$1" 2>/dev/null | sort)" = "$(awk '{print $2}' scripts/jars.sha256 | sort)" ] || return 1
    (cd "$1" && sha256 --check --status ../"$([ "$1" = jars ] || echo ../)"scripts/jars.sha256)
}

maven_has_fetched() {
    [ "$maven" != none ] || { say "no Maven (mvn) here; asking Spark's own resolver" && return 1; }
    wait "$maven" && return
    tail -20 .setup/maven.log >&2
    say "Maven failed; asking Spark's own resolver"
    return 1
}

# Spark resolves a package when a session starts, into a folder of its own; its file names begin with the group.
fetch_with_spark() {
    local jar
    .venv/bin/python - "$DELTA" "$PWD/.setup/ivy" >.setup/spark.log 2>&1 <<'PYTHON' || { tail -40 .setup/spark.log >&2 && return 1; }
import sys
from pyspark.sql import SparkSession

package, folder = sys.argv[1:]
settings = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.jars.packages": package,
    "spark.jars.ivy": folder,
    # Only Delta's own jars: Spark ships the rest.
    "spark.jars.excludes": "org.*:*,com.*:*,javax.*:*,commons-*:*,io.airlift:*,io.unitycatalog:*",
}
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
builder.getOrCreate().stop()
PYTHON
    for jar in .setup/ivy/jars/io.delta_*.jar; do
        [ -f "$jar" ] && cp "$jar" ".setup/jars/${jar##*/io.delta_}"
    done
}

# Most of a command's first seconds go into reading Spark's classes; a JVM can keep them as it had them in memory.
share_classes() {
    classes_are_kept && return
    say "keeping Spark's classes ready, so that commands start faster (a minute)"
    keep_classes_of scripts/share_classes.py >.setup/classes.log 2>&1 ||
        say "that did not work, .setup/classes.log says why; commands work without"
    done_with classes "$classes_wanted"
}

# The tour loads the classes that share_classes.py would load, so the first one keeps them when it ends.
demo() {
    export SPARK_SUBMIT_OPTS=$SHORT_RUN
    if classes_are_kept; then
        exec 9>&- # the next setup need not wait for the tour
        exec .venv/bin/python scripts/demo.py
    fi
    keep_classes_of scripts/demo.py
    done_with classes "$classes_wanted"
}

classes_are_kept() {
    classes_wanted=$("$java" -version 2>&1 | cat - requirements.txt scripts/jars.sha256 scripts/share_classes.py | digest -)
    is_done classes "$classes_wanted"
}

# keep_classes_of SCRIPT: without the file commands are slower, that is all.
keep_classes_of() {
    rm -f .setup/classes.jsa
    SPARK_SUBMIT_OPTS="$SHORT_RUN -XX:ArchiveClassesAtExit=$PWD/.setup/classes.new -Xlog:disable" .venv/bin/python "$1"
    [ ! -f .setup/classes.new ] || mv .setup/classes.new .setup/classes.jsa
}

# setup_airflow.sh takes the steps from here.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi
