"""Text for a terminal: rows and files may hold control characters that move the cursor or set a window's title."""

import unicodedata

# The control characters that commitlake's own sentences use.
_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text, with control characters escaped as in Python's source.

    >>> printable("a\\x1b[2Jb\\u202ec\\n")
    'a\\\\x1b[2Jb\\\\u202ec\\n'
    """
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def _is_harmless(character: str) -> bool:
    return character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
