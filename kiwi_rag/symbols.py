r"""Names of definitions and files: what a passage of a document defines, and which names a query holds.

The symbols of a passage follow from its path, its headings and its text alone: functions, types, variables, tables and
keys that it defines, and, of a file's first passage, the names of the file. They are indexed beside the ordinary terms,
as terms of their own that begin with `kiwi_rag.lexical.SYMBOL`, whole and by their last components, case-folded:
``Store.applyMigrations`` is ``·applymigrations`` and ``·store·applymigrations``.

Definitions are recognised in the text by the forms that most languages share (a keyword before the name, or
parameters and a body behind it), because a passage may hold several definitions and its heading names at most one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath

from kiwi_rag.lexical import SYMBOL, term_frequencies
from kiwi_rag.model import ItemRef, ItemType, Passage

MAX_COMPONENTS = 4
"""Components of a name that are indexed: the last ones. Longer names are compared whole when they are ranked."""
MAX_NAMES = 16
"""Names of one query that are looked up."""
MAX_LENGTH = 64
"""Characters of one component."""
CODE, HEADING, FILE, TEXT = 1.0, 0.95, 0.9, 0.7
"""How much a definition in code, one that only a heading tells, the name of a file, and a title or key in a text count,
as shares of the same bonus."""

_SEPARATOR = re.compile(r"::|->|[./\\#:]")
_PROSE = frozenset({"section", "front-matter", "context", "drivers", "options", "decision", "consequences", "diagram"})
_KEYS = frozenset({"definition", "schema", "message", "channel", "endpoint", "info"})
_PLAIN = frozenset({"", ".txt", ".text", ".log", ".rst", ".adoc", ".html", ".md"})
_INDEXES = frozenset({"__init__", "index", "mod"})

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|async|sealed|open|override|"
    r"inline|partial|readonly|volatile|pub(?:\([\w ]+\))?|unsafe|extern|virtual|data|native|synchronized)[ \t]+)"
)
_PARAMETERS = r"[ \t]*(?:<[^()\n]*>)?[ \t]*\((?:[^(){};]|\([^(){};]*\))*+\)"
_STATEMENT = r"(?:if|for|while|switch|catch|with|return|new|throw|await|else|yield|case|delete|assert|echo|print)\b"
_NAME = r"(?!(?:function|async|if|for|while|switch|catch|return)\b)[A-Za-z_$#~][\w$:]*"
_TYPE = r"[\w$.:<>\[\],?*&@]++(?:[ ][\w$.:<>\[\],?*&@]++){0,3}?"
_DEFINITION = re.compile(
    rf"""
    ^(?:
      [ \t]*+{_MODIFIERS}*+(?:(?:case[ ])?class|interface|enum(?:[ ]class)?|@interface|record|struct|trait|protocol
        |namespace|module|object|def|function[ ]?\*?|func|fun|fn|type|typedef|macro|const[ ]enum
        |companion[ ]object)[ \t]+
        (?:\([^()\n]*\)[ \t]*)?(?:self\.)?(?P<keyword>[A-Za-z_$][\w$.:]*+)(?![ \t]*(?:[,}}]|as\b|from\b))
    | (?:export[ ](?:default[ ]|declare[ ])?)?(?:const|let|var|val|static)[ \t]+(?:mut[ ])?(?P<variable>{_NAME})
        (?=[ \t]*[:=;,<\n])
    | (?P<assigned>[A-Za-z_][\w.$]*+)[ \t]*(?::[^=\n]+)?=(?![=>])
    | [ \t]++{_MODIFIERS}+(?:[\w$<>\[\],.?]++(?:[ ][\w$<>\[\],.?]++){{0,3}}?[ \t]+)?(?P<field>[\w$]+)[ \t]*[=;:]
    | [ \t]*+{_MODIFIERS}*+(?!{_STATEMENT})(?:{_TYPE}[ \t]+[*&]*)?(?P<method>{_NAME}){_PARAMETERS}
        (?:\s*+(?::|->|=>|throws\b)[^;{{}}()=\n]+|\s++const\b|\s++noexcept\b|\s++override\b)*+\s*\{{
    | [ \t]*+{_MODIFIERS}*+(?!{_STATEMENT}){_TYPE}[ \t]+[*&]*(?P<typed>{_NAME}){_PARAMETERS}
        (?:[ \t\n]*throws\b[^;{{}}()=\n]+)?[ \t]*;
    | [ \t]++{_MODIFIERS}*+(?P<declared>{_NAME})\??{_PARAMETERS}[ \t]*:[^;{{}}()=\n]+;
    | [ \t]*+(?i:create)[ \t]+(?i:(?:or[ ]replace|temp|temporary|unlogged|materialized|unique|global|local)[ \t]+)*
        (?i:table|view|function|procedure|type|index|trigger|schema|sequence|domain)[ \t]+(?i:if[ ]not[ ]exists[ \t]+)?
        [\"`\[]?(?P<relation>[\w$.]+)
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""What an import lists, as in ``import { type A, type B }``, is not defined there. A method without a body counts where
a type stands before its name or behind its parameters. Else it is a call."""
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_NAMED_HEADING = re.compile(r"`?((?:[\w$~.#/-]|::|->)+)(?:\(.*)?`?")
_OPERATION_ID = re.compile(r"operationId[\"']?[ \t]*:[ \t]*[\"']?([\w.-]+)")
_SIGNATURE = re.compile(r"([\w$.:~-]+)(?:<[^()]*>)?\(")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that a passage defines, by its components, the outermost first.

    ``share`` is how much it counts, ``least`` how many of the last components must be named: of ``index.ts`` both.
    """

    components: tuple[str, ...]
    share: float
    least: int = 1


@dataclass(frozen=True, slots=True)
class QueryName:
    """A name in a query. ``called``: the calls of it are asked for; ``exact``: its letters' case counts."""

    components: tuple[str, ...]
    called: bool = False
    exact: bool = False

    @property
    def term(self) -> str:
        """The term that passages with this symbol are indexed by."""
        return _term(self.components[-MAX_COMPONENTS:])

    def match(self, symbols: Iterable[Symbol]) -> float:
        """Return how well the best of a passage's symbols matches, from 0 to 1: its share, less in another case."""
        return max(map(self._match, symbols), default=0.0)

    def _match(self, symbol: Symbol) -> float:
        end = symbol.components[-len(self.components) :] if len(self.components) >= symbol.least else ()
        if end == self.components:
            return symbol.share
        return 0.0 if self.exact or _folded(end) != _folded(self.components) else 0.95 * symbol.share


def passage_terms(ref: ItemRef, passage: Passage) -> tuple[Counter[str], int]:
    """Return the terms that a passage is indexed by, with their frequencies, and its length for BM25.

    The symbols of a document's passage are among the terms, once each, and do not count in the length.
    """
    frequencies = term_frequencies(passage.indexed_text)
    length = frequencies.total()
    if ref.item_type is ItemType.DOCUMENT:
        frequencies.update(index_terms(passage_symbols(ref.item_id, passage)))
    return frequencies, length


@lru_cache(maxsize=2048)
def passage_symbols(path: str, passage: Passage) -> tuple[Symbol, ...]:
    """Return the names that a passage of the file at `path` defines; none of a file that it includes."""
    if passage.file:
        return ()
    folders, file = _path_components(path)
    names = list(_file_symbols(folders, file)) if passage.ordinal == 0 else []
    heading = [_code_name(one) for one in passage.heading]
    has_package = passage.kind not in _PROSE | _KEYS and bool(passage.heading) and "." in passage.heading[0]
    module = () if has_package else folders if file[0] in _INDEXES else (*folders, file[0])
    outer, own = tuple(name for one in heading for name in one), heading[-1][-1:] if heading else ()
    is_signature = bool(heading) and "(" in passage.heading[-1]
    for components, share in _definitions(path, passage):
        above = outer[: len(outer) - len(own)] if is_signature or components[:1] == own else outer
        qualified = (*module, *above, *components)
        # A constructor has the name of its type, which counts more.
        is_constructor = is_signature and components == above[-1:]
        names.append(Symbol(tuple(one for one, _ in groupby(qualified)), FILE if is_constructor else share))
    return tuple(dict.fromkeys(names))


def _definitions(path: str, passage: Passage) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the names that a passage defines, each below those that its indentation puts it into, and their shares."""
    last = passage.heading[-1:]
    if passage.kind in _PROSE | _KEYS:
        # Short entries of YAML and JSON share a passage, whose heading lists their names.
        listed = [name for heading in last for name in heading.split(", ")] if passage.kind in _KEYS else last
        named = (_NAMED_HEADING.fullmatch(text) for text in (*listed, *_HEADING.findall(passage.text)))
        names = [*(match[1] for match in named if match), *_OPERATION_ID.findall(passage.text)]
        yield from ((_components(name), TEXT) for name in names if name in passage.text and _components(name))
        return
    # All pieces of a long definition have its heading. The name is in the first of them, and where it calls itself.
    declared = (_code_name(heading)[-1:] for heading in last)
    yield from ((name, HEADING) for name in declared if name and name[0] in passage.text)
    outer: list[tuple[int, str]] = []
    for match in _DEFINITION.finditer(passage.text) if PurePosixPath(path).suffix.lower() not in _PLAIN else ():
        indent = len(match[0]) - len(match[0].lstrip(" \t"))
        outer = [(at, name) for at, name in outer if at < indent]
        if components := _components(match[match.lastgroup or 0]):  # none of a lone "#"
            yield (*(name for _, name in outer), *components), CODE
            outer.append((indent, components[-1]))


def _code_name(heading: str) -> tuple[str, ...]:
    """Return the components of the name that a heading is, or the signature of; none of a heading of several words."""
    signature = _SIGNATURE.search(heading)
    name = signature[1] if signature else heading
    return () if not name or " " in name else _components(name)


def _path_components(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders of a path, and its file's name split at the dots; neither of them has empty parts."""
    *folders, name = path.split("/")
    return tuple(filter(None, folders)), tuple(filter(None, name.split("."))) or (name,)


def _file_symbols(folders: tuple[str, ...], file: tuple[str, ...]) -> Iterator[Symbol]:
    """Yield a file's path, and the same without each of its suffixes; of a package's main file that of its folder."""
    for count in range(len(file), 0, -1):
        yield Symbol((*folders, *file[:count]), CODE if count == len(file) else FILE, count)
    if folders and file[0] in _INDEXES:
        yield Symbol(folders, FILE)


def _components(name: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATOR.split(name) if part)


def _folded(components: Iterable[str]) -> tuple[str, ...]:
    return tuple(component.casefold() for component in components)


def _term(components: Iterable[str]) -> str:
    # Whatever is no letter, digit or underscore becomes a character that every tokenizer keeps within a term.
    return SYMBOL + SYMBOL.join(re.sub(r"\W", "¬", component[:MAX_LENGTH]) for component in _folded(components))


def index_terms(symbols: Iterable[Symbol]) -> set[str]:
    """Return the terms that a passage with these symbols is indexed by."""
    ends = ((s.components, n) for s in symbols for n in range(min(s.least, MAX_COMPONENTS), MAX_COMPONENTS + 1))
    return {_term(components[-length:]) for components, length in ends}


_WORD = re.compile(r"[@\w$~](?:[\w$./\\:#@+~-]|->)*(\((?!e?s\)))?")  # "file(s)" is no call
_NEAR = 8
"""Words on each side of a name that tell what is asked of it."""
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?|v?\d[\d.]*\w*|\w+://.*|www\..*|.*@.*\..*", re.DOTALL)
_MARKED = re.compile(r"\w_\w|::|->|\w#\w|\\\w|[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}|[\w)]\.\w")
_SUFFIX = re.compile(r"\.\w{1,12}$")
_KIND_WORDS = """
class interface struct enum record trait type function method constructor module package macro constant variable table
view schema component decorator file operation property field key setting option symbol
"""
_CALL_WORDS = "call calls calling caller callers called invoke invokes invoked invocation invocations"
_USE_WORDS = "use uses using used usage usages reference references"
_DEFINITION_WORDS = "defined declared implemented located defines definition declaration implementation"
_KINDS, _CALLS, _DEFINED = (frozenset(w.split()) for w in (_KIND_WORDS, _CALL_WORDS, _DEFINITION_WORDS))
_USES = _CALLS.union(_USE_WORDS.split())
_COMMENT_LINE = re.compile(r"^[ \t]*(?:/?\*|//|#|--).*", re.MULTILINE)
_FILLERS = _KINDS | {"the", "a", "an", "is", "are", "of", "to", "for", "named", "all", "code", "every"}


def query_names(text: str) -> tuple[QueryName, ...]:
    """Return the names that a query holds.

    A name is what is written as one (an inner capital, ``_``, ``.``, ``/``, ``::``, ``#`` or ``()``), the only word, or
    what the definition or the calls are asked for of. Within other words the case of its letters counts, because
    "Node.js" is not ``node.js``.
    """
    words = [(match[0].rstrip("(.:/\\#-"), bool(match[1])) for match in _WORD.finditer(text)]
    lowered, names = [word.lower() for word, _ in words], list[QueryName]()
    for place, (word, is_call) in enumerate(words):
        marked = is_call or _is_marked(word)
        called, asked = _asked(lowered[max(place - _NEAR, 0) : place], lowered[place + 1 : place + 1 + _NEAR], marked)
        free = asked or called or len(words) == 1
        if (marked or free) and lowered[place] not in _FILLERS | _USES | _DEFINED and (parts := _components(word)):
            names.append(QueryName(parts, called, exact=not free))
    return tuple(dict.fromkeys(names))[:MAX_NAMES]


def _asked(before: list[str], after: list[str], marked: bool) -> tuple[bool, bool]:
    """Return whether the calls or the definition is asked for of a word between others; of a common one at the end."""
    behind = next((word for word in after if word not in _FILLERS), "")
    leading = next((word for word in reversed(before) if word not in _FILLERS), "")
    if not marked and behind and behind not in _DEFINED | _CALLS:
        return False, False
    calls = _USES if marked else _CALLS
    questioned = bool({"who", "what", "which", "where", "callers", "calls", "usages"}.intersection(before[:3]))
    called = questioned and (leading in calls or (leading == "where" and behind in calls))
    is_kind = bool(before) and before[-1] in _KINDS and (len(before) < 3 or leading in _DEFINED | {"where"})
    is_kind |= not leading and len(after) == 1 and after[0] in _KINDS
    defined = leading in _DEFINED or (leading in {"where", "where's"} and behind in _DEFINED) or is_kind
    return called, defined and not called


def _is_marked(word: str) -> bool:
    """Whether a word is written as names are and words are not; "client/server" is no path."""
    if _ABBREVIATION.fullmatch(word):
        return False
    is_path = "/" in word and (word.count("/") > 1 or _SUFFIX.search(word) is not None)
    return is_path or ("/" not in word and _MARKED.search(word) is not None)


def symbol_terms(text: str) -> tuple[str, ...]:
    """Return the terms of the names whose definitions a query asks for."""
    return tuple(dict.fromkeys(name.term for name in query_names(text) if not name.called))


def match_names(names: Iterable[QueryName], path: str, passage: Passage) -> float:
    """Return how well a passage matches the best of a query's names: by what it defines, or by what it calls."""
    symbols = passage_symbols(path, passage)
    shares = (_call(name.components[-1], symbols, passage) if name.called else name.match(symbols) for name in names)
    return max(shares, default=0.0)


def _call(name: str, symbols: Iterable[Symbol], passage: Passage) -> float:
    """Return 1 for a passage that calls `name`, less if it defines it too or calls it in comments alone, else 0."""
    call = re.compile(rf"(?<![\w$]){re.escape(name)}[ \t]*(?:<[^()\n]*>)?\(")
    calls, in_code = len(call.findall(passage.text)), call.search(_COMMENT_LINE.sub("", passage.text))
    defines = any(symbol.components[-1] == name for symbol in symbols)
    return 0.0 if calls <= defines else 0.5 if defines else 1.0 if in_code else 0.75
