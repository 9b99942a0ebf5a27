"""Listeners, checkers and selectors that fail in odd ways fail their message alone."""

from collections.abc import Callable

import pytest

from tests.life import B, Life

LISTENERS = "tests.consume.odd_listeners:"


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["surrogate", "badstr", "sysexit", "strdelay"])
def test_a_listener_that_fails_fails_its_message_alone(life: Callable[..., Life], listener: str) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("dispatch", B)
    done = one.run("consume", B + 1, "--group", "g", "--topic", "T", "--listener", LISTENERS + listener)
    assert "Please see the stack trace below" not in done.stderr, done
    assert done.exit_status == 0, done
    assert done.result["failed"] == 1, done


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "exit_status"), [("df_int", 0), ("df_str", 1), ("df_void", 1)])
def test_a_dataframe_listeners_columns_of_other_types(
    life: Callable[..., Life], listener: str, exit_status: int
) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("dispatch", B)
    done = one.run("consume", B + 1, "--group", "g", "--topic", "T", "--listener", LISTENERS + listener)
    assert done.exit_status == exit_status, done
    assert ("the listener returned" in done.stderr) == (exit_status == 1), done


def test_a_checker_that_exits_says_unknown(life: Callable[..., Life]) -> None:
    one = life()
    one.put(B, {"topic": "T", "transaction": "true", "producer_group": "p"})
    done = one.run("check_transactions", B + 60_000, "--checker", LISTENERS + "check_raise")
    assert done.exit_status == 0, done
    assert done.result["unknown"] == 1, done


def test_a_selector_that_raises_text_that_is_none(life: Callable[..., Life]) -> None:
    one = life()
    done = one.run(
        "put_messages",
        B,
        "--input",
        one.input({"topic": "T", "body": "b"}),
        "--selector",
        LISTENERS + "sel_raise",
    )
    assert done.exit_status == 2, done
