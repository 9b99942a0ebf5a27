"""The two ways in which claims on due rows are looked up."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from pipelines.delay import deliver


@pytest.fixture(params=["few", "many"])
def few_or_many(request: pytest.FixtureRequest) -> Iterator[None]:
    """However few rows are due, their claims are looked up as where few are, or as where many are."""
    with patch.object(
        deliver, "MANY", 0 if request.param == "many" else deliver.MANY
    ):  # a test may undo its monkeypatch
        yield
