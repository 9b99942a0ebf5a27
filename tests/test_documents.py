"""What the documents say is what is there."""

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from jobs.launch.cli import JOBS, application
from pipelines.store.snapshot import app_id
from pipelines.store.store import Store
from pipelines.views.read_only_sql import QuerySession
from schemas import TABLES, Table

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
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_page_of_tables_says_what_a_writer_must_do_and_a_reader_may_assume(table: Table) -> None:
    page = (PROJECT / "docs" / "tables.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### {table.name}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    for promise in ("A writer must", "A reader may assume"):
        assert section.count(f"**{promise}**") == 1, promise
    if table.numbered_by == "nothing":
        assert "Commits are not numbered." in section
    else:
        key = "" if table.numbered_by == "table" else "GROUP"
        assert f"Commits are numbered under `{app_id(table, key)}`." in section


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


def modules_with_examples() -> list[str]:
    paths = [path for folder in ("jobs", "pipelines", "schemas") for path in (PROJECT / folder).rglob("*.py")]
    with_examples = [path for path in sorted(paths) if ">>> " in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in with_examples]


@pytest.mark.quick
@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_of_docstrings_are_true(module: str) -> None:
    ran = doctest.testmod(importlib.import_module(module))
    assert ran.attempted > 0
    assert ran.failed == 0


def documents() -> list[Path]:
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def commands_of(page: Path) -> list[str]:
    """The commands in a document's code blocks, each on one line."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^    (?:\$ )?(?:\.venv/bin/)?commitlake (.+)$", text, re.MULTILINE)


@pytest.mark.quick
@pytest.mark.parametrize("command", [command for page in documents() for command in commands_of(page)])
def test_a_command_of_the_documents_is_one_its_job_takes(command: str) -> None:
    job_name, *arguments = shlex.split(command)
    assert job_name in JOBS
    jobs = typer.main.get_command(application())
    with jobs.make_context("commitlake", [job_name, *arguments]) as context:
        _, job, rest = jobs.resolve_command(context, [job_name, *arguments])
        job.make_context(job_name, rest, parent=context)


@pytest.mark.slow
def test_the_queries_of_the_cookbook_run(golden_a: Store) -> None:
    text = (PROJECT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    queries = re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(queries) > 10
    session = QuerySession(golden_a.spark, golden_a.snapshot())
    found = {}
    for query in queries:
        found[query] = session.rows(query.strip()).count()
    # Of a real broker's store most of them say something.
    assert sum(count > 0 for count in found.values()) >= 8
