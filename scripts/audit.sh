#!/usr/bin/env bash
# Known vulnerabilities of the pinned packages, asked of PyPI by pip-audit. Run by `make audit`; not in .ci/run: the answer
# changes without a change here, and it needs a network that knows.
#
# Exit status 1 where one is known, and where a package could not be looked up: no answer is not a good one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

main_audit() {
    mkdir -p .setup
    wait_for_other_setup
    find_python
    install_audit
    local file failed=""
    for file in requirements*.txt; do
        say "audit of $file"
        # The files name everything, so nothing is resolved. --strict: a package that PyPI does not know of is an error.
        .setup/audit-venv/bin/pip-audit --progress-spinner off --strict --disable-pip --require-hashes -r "$file" || failed="$failed $file"
    done
    [ -z "$failed" ] || stop "vulnerable, or not known to be free of known vulnerabilities:$failed; pip-audit says above which. \
Take a newer version (the head of the Makefile tells how), or try again where PyPI's service of vulnerabilities is reached"
}

# An environment of its own: it pins another pip.
install_audit() {
    local wanted
    wanted=$(digest requirements-audit.txt requirements-setup.txt)
    is_done audit "$wanted" && [ -x .setup/audit-venv/bin/pip-audit ] && return
    rm -f .setup/audit
    make_environment .setup/audit-venv
    install_pinned .setup/audit-venv requirements-audit.txt
    done_with audit "$wanted"
}

main_audit
