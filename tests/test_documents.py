"""What the documents say is what is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli import JOBS

PROJECT = Path(__file__).parent.parent


@pytest.mark.quick
def test_the_page_of_tables_has_the_columns_of_the_schemas() -> None:
    checked = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "document_tables.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.quick
def test_the_readme_lists_every_command() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z_]+)` \|", readme, re.MULTILINE)
    assert sorted(listed) == sorted(JOBS)


@pytest.mark.quick
def test_links_between_documents_lead_somewhere() -> None:
    for page in [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
