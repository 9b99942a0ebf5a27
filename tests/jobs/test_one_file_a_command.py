"""jobs/ has one file a command, and what starts them is in jobs/launch/ and knows none of them."""

import ast
import re
import tomllib

import pytest

from jobs.launch.cli import JOBS
from tests.conftest import PROJECT

pytestmark = pytest.mark.quick

LINES_OF_A_STORY = 60


def test_every_file_is_a_command() -> None:
    files = {file.stem for file in (PROJECT / "jobs").glob("*.py")}
    assert files - {"__init__"} == set(JOBS)


def test_what_starts_the_commands_imports_none_of_them() -> None:
    imports_a_command = re.compile(
        r"^\s*(?:from|import) jobs\.(?!launch\b)|^\s*from jobs import", re.MULTILINE
    )
    files = list((PROJECT / "jobs" / "launch").glob("*.py"))
    assert files
    assert [file.name for file in files if imports_a_command.search(file.read_text())] == []


def test_a_command_is_told_in_sixty_lines_besides_its_options() -> None:
    lines = {}
    for name in JOBS:
        tree = ast.parse((PROJECT / "jobs" / f"{name}.py").read_text())
        (command,) = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        lines[name] = (command.end_lineno or 0) - command.body[0].lineno + 1
    assert {name: count for name, count in lines.items() if count > LINES_OF_A_STORY} == {}


def test_every_folder_of_the_program_is_installed() -> None:
    listed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    tops = ("pipelines", "jobs", "schemas", "dags")
    found = [path.parent for top in tops for path in (PROJECT / top).rglob("__init__.py")]
    assert sorted(listed) == sorted(".".join(path.relative_to(PROJECT).parts) for path in found)
