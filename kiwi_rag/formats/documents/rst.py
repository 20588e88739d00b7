"""reStructuredText, as Sphinx reads it, line by line: a section for each title and for each description of an object.

Roles are their text, and directives their arguments and content. Comments, targets, options and what only controls the
page (``index``, ``highlight``, ``toctree``, ``raw`` and the like) are not shown, so they are left out. Forms:
https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html and Sphinx's directives and domains.

docutils is not used: it gives the first line of a node at best, takes Sphinx's directives and roles for errors, and is
ten times slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kiwi_rag.formats.outcome import HeadingPath, ParsedDocument
from kiwi_rag.model import RenderedLine

_ADORNMENT = re.compile(r"(?!(?:\.\.|::|__)[ \t]*$)([!-/:-@\[-`{-~])\1*[ \t]*$")
_EXPLICIT = re.compile(r"( *)\.\.(?:[ \t]+(.*))?$")
_DIRECTIVE = re.compile(r"(?:\|[^|]{1,80}\|[ \t]+)?([A-Za-z][\w.+:-]*?)[ \t]?::(?:[ \t]+(.*))?$")
_REFERENCE = re.compile(r"\[[^\]]{1,80}\][ \t]+\S")  # a footnote or a citation
_OPTION = re.compile(r" *:(?:(caption|alt|synopsis|header)|[A-Za-z][\w -]*):(?:[ \t]+(.*))?$")
_OBJECT = re.compile(
    r"\w+:(?!currentmodule|module|namespace|default-domain)[\w-]+|(?:auto)?(?:class|function|method|exception|attribute"
    r"|data|decorator|property|module)|staticmethod|classmethod|decoratormethod|describe|object|option|cmdoption|envvar"
    r"|confval|setting|django-admin(?:-option)?|templatetag|templatefilter|fieldlookup|macro|type|opcode"
)
_ROLE_NAME = r":[A-Za-z][\w.+-]{0,40}(?::[A-Za-z][\w.+-]{0,40}){0,3}:"
_ROLE = re.compile(
    rf"{_ROLE_NAME}`([^`]{{1,500}})`|(?<![`\w:])`(?:([^`<>]{{0,400}}?)[ \n]?<([^`<>]{{1,400}})>|([^`]{{1,400}}))`__?"
)
_REPLACE = re.compile(r"^ {0,20}\.\. \|([^|\n]{1,60})\| replace::[ \t]+(\S.{0,100})$", re.MULTILINE)
_SUBSTITUTION = re.compile(r"\|(\w(?:[^|\n]{0,60}\w)?)\|_{0,2}")
_TARGET = re.compile(r"\s*<[^<>]*>$")
_HIDDEN = frozenset({
    *("meta", "index", "highlight", "highlightlang", "currentmodule", "module", "py:currentmodule", "py:module", "raw"),
    *("toctree", "contents", "default-role", "role", "tabularcolumns", "sectnum", "testsetup", "testcleanup", "title"),
    *("default-domain", "sectionauthor", "codeauthor", "program", "cssclass", "rst-class", "target-notes", "todolist"),
    *("spelling", "spelling:word-list", "todo", "include"),
})  # fmt: skip
_VERBATIM = frozenset({
    *("code-block", "code", "sourcecode", "parsed-literal", "doctest", "testcode", "testoutput", "prompt", "console"),
    *("literalinclude", "math", "productionlist", "graphviz", "digraph", "mermaid", "ipython", "plot", "uml"),
    *("csv-table", "jupyter-execute"),
})  # fmt: skip
_NAMED = frozenset({
    *("note", "warning", "tip", "important", "caution", "danger", "error", "hint", "attention", "deprecated"),
    *("seealso", "versionadded", "versionchanged", "versionremoved", "deprecated-removed"),
})  # fmt: skip
_LABELS = {"versionadded": "Added in version", "versionchanged": "Changed in version", "seealso": "See also",
           "versionremoved": "Removed in version", "deprecated": "Deprecated since version"}  # fmt: skip
_OBJECT_LEVEL = 100
_FAR = 1 << 30


def parse(text: str, form: str) -> ParsedDocument:
    """Return reStructuredText as sections of the kind ``section``, with the first title."""
    page = _Page(text.expandtabs(8).split("\n"), dict(_REPLACE.findall(text)))
    page.read()
    return page.headings.document(form, page.title, page.rendered)


def is_rst(head: str) -> bool:
    """Return whether a text begins like reStructuredText: it has titles, and directives, targets or roles."""
    lines = head.split("\n")[:400]
    marked = any(re.match(rf" *\.\. (?:[A-Za-z][\w:-]*::|_[^_ ].*:)|.{{0,200}}?{_ROLE_NAME}`[^`]+`", e) for e in lines)
    return marked and any(_title_lines(lines, number) for number in range(len(lines)))


def _title_lines(lines: Sequence[str], number: int) -> int:
    """Return how many lines the title that begins at a line (from 0) has: 2, or 3 with an overline; 0 if none does."""
    above = lines[number - 1] if number else ""
    line, *below = (*lines[number : number + 3], "", "")[:3]
    if above.strip() and not _is_explicit_end(above):
        return 0
    if _is_rule(line) and below[0].strip() and below[1].rstrip() == line.rstrip() and len(line.strip()) > 1:
        return 3
    is_text = line[:1].strip() and not _EXPLICIT.match(line)
    return 2 if is_text and _is_rule(below[0]) and _long_enough(line, below[0]) and not _is_rule(line) else 0


def _is_explicit_end(line: str) -> bool:
    return line.startswith(".. ") or line.startswith("__ ")


def _is_rule(line: str) -> bool:
    return bool(line) and _ADORNMENT.match(line) is not None


def _long_enough(title: str, rule: str) -> bool:
    return len(rule.rstrip()) >= min(len(title.rstrip()), 4)


@dataclass(slots=True)
class _Page:
    """The rendered lines of a page so far.

    Each stretch that is not plain prose lasts while lines are indented further than its first: ``hidden`` and
    ``verbatim`` hold that indent, and ``objects`` those of the descriptions that are open. ``options`` is the indent of
    a directive whose options may follow, ``signature`` that of a description with more signatures, and ``prose`` holds
    the last lines as they are written.
    """

    lines: Sequence[str]
    replaced: Mapping[str, str]
    rendered: list[RenderedLine] = field(default_factory=list)
    headings: HeadingPath = field(default_factory=HeadingPath)
    title: str = ""
    styles: list[str] = field(default_factory=list)
    hidden: int = _FAR
    verbatim: int = _FAR
    options: int = _FAR
    signature: int = _FAR
    objects: list[int] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Render all lines."""
        number = 0
        while number < len(self.lines):
            number += self._title(number) or self._line(number)
        self._end_prose()

    def _title(self, number: int) -> int:
        """Render a title; return how many lines it has."""
        count = _title_lines(self.lines, number)
        if not count:
            return 0
        self._end_prose()
        self.hidden = self.verbatim = self.options = self.signature = _FAR
        self.objects = []
        text = self.lines[number + (count == 3)].strip()
        style = self.lines[number + count - 1][0] + "=" * (count == 3)
        if style not in self.styles:
            self.styles.append(style)
        text = self._plain(text)
        self.headings.open(self.styles.index(style), text, len(self.rendered) + 1)
        self.title = self.title or text
        for at in range(number, number + count):
            self._show(text if at == number + (count == 3) else "", at)
        return count

    def _line(self, number: int) -> int:
        line = self.lines[number]
        if not line.strip():
            self._blank(number)
            return 1
        indent = len(line) - len(line.lstrip(" "))
        self._dedent(indent)
        if indent > self.hidden:
            return 1
        if indent > self.options and (option := _OPTION.match(line)):
            self._show(" " * indent + option[2] if option[1] and option[2] else "", number)
        elif indent > self.verbatim:
            self._show(line, number)
        elif indent > self.signature:  # one more signature of the same object
            self._show(" " * indent + self._plain(line.strip()), number)
        elif explicit := _EXPLICIT.match(line):
            self._explicit(indent, explicit[2] or "", number)
        elif line.startswith("__ "):
            pass
        else:
            self.options = _FAR
            self._prose(line, number)
        return 1

    def _blank(self, number: int) -> None:
        self.options = self.signature = _FAR
        self._show("", number)

    def _dedent(self, indent: int) -> None:
        """Close what ends at a line of this indent."""
        for name in ("hidden", "verbatim", "options", "signature"):
            if indent <= getattr(self, name):
                setattr(self, name, _FAR)
        while self.objects and indent <= self.objects[-1]:
            self._end_prose()
            self.headings.close(_OBJECT_LEVEL + self.objects.pop(), len(self.rendered) + 1)

    def _explicit(self, indent: int, text: str, number: int) -> None:
        """Render what begins with two dots: a directive, a footnote; or, hidden, a comment or a target."""
        self._end_prose()
        directive = _DIRECTIVE.match(text)
        if directive is None or (text.startswith("|") and directive[1] == "replace"):
            if _REFERENCE.match(text):
                self._prose(" " * indent + text, number)
            elif text or (number + 1 < len(self.lines) and self.lines[number + 1].strip()):
                self.hidden = indent  # an empty comment above a blank line has no content
            return
        name, argument = directive[1].lower(), directive[2] or ""
        self.options = indent
        if name in _HIDDEN or (name == "only" and "html" not in argument):
            self.hidden = indent
        elif _OBJECT.fullmatch(name):
            self.signature = indent
            self._open_object(indent, argument, number)
        elif name in _VERBATIM:
            self.verbatim = indent if name != "literalinclude" else _FAR
            self._show(" " * indent + argument if name == "literalinclude" else "", number)
        else:
            label = _LABELS.get(name, name.capitalize()) if name in _NAMED else ""
            words = argument if name not in {"only", "image", "figure", "container"} else ""
            joint = " " if label.endswith("ersion") else ": "
            self._prose(" " * indent + joint.join(filter(None, (label, words))).strip(), number)

    def _open_object(self, indent: int, signature: str, number: int) -> None:
        text = self._plain(signature.rstrip("\\").strip())
        if not self.objects or self.objects[-1] != indent:
            self.objects.append(indent)
        if text:
            self.headings.open(_OBJECT_LEVEL + indent, text, len(self.rendered) + 1)
        self._show(" " * indent + text, number)

    def _prose(self, line: str, number: int) -> None:
        self.prose.append(line)
        self.rendered.append(RenderedLine(line, number + 1))
        if line.rstrip().endswith("::"):
            self.verbatim = len(line) - len(line.lstrip(" "))

    def _end_prose(self) -> None:
        """Render the roles and links in the prose above: they may go on over a line end."""
        if not self.prose:
            return
        texts = self._plain("\n".join(self.prose)).split("\n")
        if self.prose[-1].rstrip().endswith("::"):
            texts[-1] = texts[-1].rstrip().removesuffix(":").removesuffix(" :")
        first = len(self.rendered) - len(self.prose)
        for at, text in enumerate(texts, start=first):
            self.rendered[at] = self.rendered[at]._replace(text=text)
        self.prose = []

    def _show(self, text: str, number: int) -> None:
        self._end_prose()
        if text or self.verbatim < _FAR or (self.rendered and self.rendered[-1].text):
            self.rendered.append(RenderedLine(text.rstrip(), number + 1))

    def _plain(self, text: str) -> str:
        r"""Return prose with roles, links and substitutions as their text, and as many line ends; ``\ `` is nothing."""
        if "`" in text:
            text = _ROLE.sub(_role_text, text)
        if self.replaced and "|" in text:
            text = _SUBSTITUTION.sub(lambda name: self.replaced.get(name[1], name[0]), text)
        return text.replace("\\ ", "").replace("\\*", "*") if "\\" in text else text


def _role_text(match: re.Match[str]) -> str:
    words = match[1] or match[2] or match[3] or match[4]
    bare = _TARGET.sub("", words) if match[1] and words.endswith(">") else words
    # "~" shows the last part of a name alone, and "!" makes no link; the whole name says more.
    bare = (bare or words).lstrip("~!")
    bare = f"RFC {bare}" if match[0].startswith(":rfc:") else bare
    return bare + "\n" * (match[0].count("\n") - bare.count("\n"))
