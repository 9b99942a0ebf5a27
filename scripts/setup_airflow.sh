#!/usr/bin/env bash
# Make .airflow/venv what requirements-airflow.txt says. Run by `make airflow`, after `make setup`.
#
# An environment of its own: the Spark provider brings pyspark-client, which writes over pyspark's own folder. Spark is not
# run from here; the DAGs call .venv/bin/spark-submit. Safe to run again and to kill, as setup.sh is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

main_airflow() {
    mkdir -p .setup .airflow
    wait_for_other_setup
    find_python
    install_airflow
    [ "${did_something:-no}" = yes ] && say "Airflow is set up; try: make airflow-demo" || say "nothing to do for Airflow"
}

install_airflow() {
    local wanted
    wanted=$(digest requirements-airflow.txt)
    is_done airflow "$wanted" && [ -x .airflow/venv/bin/airflow ] && return
    # From nothing, for the reasons setup.sh gives.
    rm -f .setup/airflow
    say "making .airflow/venv with Python $python_version"
    "$python" -m venv --clear .airflow/venv ||
        stop "$python could not make a virtual environment; is its venv module installed (Debian: apt-get install python3.11-venv)?"
    say "installing the pinned packages of requirements-airflow.txt (two thirds of a gigabyte, a minute or two)"
    # First the tool that builds the one package that comes as source (pyspark-client).
    awk '/^setuptools==/ {wanted = 1} wanted {print} wanted && !/\\$/ {exit}' requirements-airflow.txt >.setup/build-tool.txt
    pip_install_airflow -r .setup/build-tool.txt && pip_install_airflow -r requirements-airflow.txt ||
        stop "Airflow's packages could not be installed, pip says above why; is a package index reachable?"
    done_with airflow "$wanted"
}

pip_install_airflow() {
    .airflow/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
        --use-pep517 --no-build-isolation "$@"
}

main_airflow
