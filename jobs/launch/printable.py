"""Text for a terminal: what rows and files hold may be meant to move the cursor, or to set a window's title."""

import unicodedata

# Line ends and tabs of our own sentences.
_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text, with control characters as they are written in code.

    >>> printable("a\\x1b[2Jb\\u202ec\\n")
    'a\\\\x1b[2Jb\\\\u202ec\\n'
    """
    return "".join(character if _is_harmless(character) else _escaped(character) for character in text)


def _is_harmless(character: str) -> bool:
    return character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
