"""What Spark, Delta and py4j do not document is used in one folder only."""

import re

import pytest

from tests.conftest import PROJECT

INTERNALS = PROJECT / "pipelines" / "spark_internals"
PRIVATE = re.compile(
    r"""\._(?:jvm|jsparkSession|jc|jdf|sc|gateway|active_spark_context)\b|\bpy4j\.\w+ import|\borg\.apache\.|\bio\.delta\."""
)


@pytest.mark.quick
def test_private_names_are_used_in_spark_internals_only() -> None:
    files = [file for folder in ("pipelines", "jobs") for file in (PROJECT / folder).rglob("*.py")]
    assert any(PRIVATE.search(file.read_text()) for file in files if INTERNALS in file.parents)
    found = [
        f"{file.relative_to(PROJECT)}:{number} {line.strip()}"
        for file in files
        if INTERNALS not in file.parents
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert found == []
