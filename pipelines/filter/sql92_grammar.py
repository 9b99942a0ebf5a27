"""Tokens and grammar of SQL92 filters, for the parser `lark` (docs/rocketmq/consume-filter-ha.md 4.2).

RocketMQ reads a selector as far as it goes and ignores the rest: `a = 1 garbage` is `a = 1`. Of the rest it reads only the
first token, so a character that begins no token is an error there and nowhere after it.
"""

from collections.abc import Collection
from functools import cache

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from pipelines.filter.errors import FilterSyntaxError

# Terminals in capitals stay in the tree, texts in quotes do not. Keywords are read as NAME; _keyword changes their type.
GRAMMAR = r"""
start: any_of

?any_of: all_of ("OR" all_of)*

?all_of: equality ("AND" equality)*

?equality: comparison
    | equality "=" comparison                                         -> equal
    | equality "<>" comparison                                        -> not_equal
    | equality "IS" "NULL"                                            -> is_null
    | equality "IS" "NOT" "NULL"                                      -> is_not_null

?comparison: unary
    | comparison (GREATER | AT_LEAST | LESS | AT_MOST) unary          -> ordered
    | comparison [NOT] (CONTAINS | STARTSWITH | ENDSWITH) STRING      -> search
    | comparison "BETWEEN" unary "AND" unary                          -> between
    | comparison "NOT" "BETWEEN" unary "AND" unary                    -> not_between
    | comparison "IN" "(" STRING ("," STRING)* ")"                    -> one_of
    | comparison "NOT" "IN" "(" STRING ("," STRING)* ")"              -> none_of

?unary: "+" unary
    | "-" unary                                                       -> negative
    | "NOT" unary                                                     -> negation
    | primary

?primary: STRING                                                      -> string
    | INTEGER                                                         -> integer
    | FLOAT                                                           -> float
    | "TRUE"                                                          -> true
    | "FALSE"                                                         -> false
    | "NULL"                                                          -> null
    | NAME                                                            -> name
    | "(" any_of ")"

NOT: "NOT"
CONTAINS: "CONTAINS"
STARTSWITH: "STARTSWITH"
ENDSWITH: "ENDSWITH"
GREATER: ">"
AT_LEAST: ">="
LESS: "<"
AT_MOST: "<="

NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(''|[^'])*'/
INTEGER: /0|[1-9][0-9]*[lL]?/
FLOAT.1: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/  // before INTEGER: the longer one counts

BLANK: /[ \t\n\r\f]+/
LINE_COMMENT: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT: /\/\*.*?\*\//s
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
KEYWORDS = {
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"
}  # fmt: skip
IN_WORDS = {
    "NAME": "a name",
    "STRING": "a string",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "$END": "the end",
}
FOUND_CHARS = 40


def read_tree(expression: str) -> Tree[Token]:
    """The tree of the longest selector that an expression begins with.

    Raises FilterSyntaxError when it begins with none, or a character in it or right after it begins no token.
    """
    parser = _parser().parse_interactive(expression)
    unread: Token | None = None
    try:
        for _ in parser.iter_parse():
            pass
    except UnexpectedCharacters as stop:
        start = stop.pos_in_stream or 0
        raise refused(expression, start, _in_words(parser.accepts()), expression[start:]) from None
    except UnexpectedToken as stop:
        unread = stop.token  # the selector may end before it
    try:
        return parser.feed_eof()
    except UnexpectedToken:
        expected = _in_words(parser.accepts())
        if unread is None:
            raise refused(expression, len(expression), expected) from None
        raise refused(expression, unread.start_pos or 0, expected, unread) from None


def refused(expression: str, start: int, expected: str, found: str = "") -> FilterSyntaxError:
    """The error for `found`, which begins at character `start` (from 0) of the expression; `expected` in words."""
    if not found:
        return FilterSyntaxError(f"expected {expected}; found the end")
    lines = expression[:start].split("\n")
    line = f"line {len(lines)}, " if "\n" in expression else ""
    shown = found if len(found) <= FOUND_CHARS else found[:FOUND_CHARS] + "…"
    return FilterSyntaxError(f'expected {expected}; found "{shown}" at {line}character {len(lines[-1]) + 1}')


@cache
def _parser() -> Lark:
    # The basic lexer: a token does not depend on what the parser expects.
    return Lark(
        GRAMMAR, parser="lalr", lexer="basic", lexer_callbacks={"NAME": _keyword}, propagate_positions=True
    )


def _keyword(name: Token) -> Token:
    word = name.upper()
    return name.update(type=word) if word in KEYWORDS else name


def _in_words(terminals: Collection[str]) -> str:
    """Terminals that the parser expects, as a list in words, words before signs: `a name, NOT or (`."""
    patterns = {terminal.name: terminal.pattern.value for terminal in _parser().terminals}
    words = {IN_WORDS.get(name) or patterns[name] for name in terminals}
    in_order = sorted(words, key=lambda word: (not word[0].isalpha(), word.isupper(), word))
    return " or ".join(filter(None, [", ".join(in_order[:-1]), in_order[-1]]))
