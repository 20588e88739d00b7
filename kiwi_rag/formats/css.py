"""What CSS hides from the reader of a page, by tinycss2: declarations of an element, and rules of style sheets.

The answer is conservative. Any declaration that may hide an element counts, whatever overrides it, and a rule applies
to whatever its last simple selector fits, whatever stands before it. The time is linear in the length of the CSS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

MAX_CSS = 200_000
"""Characters of CSS that are read in a document: a megabyte takes seconds."""
_MAX_DEPTH = 8
_MAX_VALUE_TOKENS = 30
_MIN_CONTRAST = 0.15
"""Least difference of text and background, of 0 to 1 in a channel, at which a text can be read."""

_Color = tuple[float, ...]
_WHITE = (1.0, 1.0, 1.0)
_WORDS = {"display": {"none"}, "visibility": {"hidden", "collapse"}, "content-visibility": {"hidden"}}
# Properties that may leave nothing to see, whatever they are set to.
_CLIPPING = frozenset({"clip", "clip-path", "mask", "mask-image", "filter", "-webkit-clip-path", "-webkit-mask"})
_SHOWN = frozenset({"none", "auto", "initial", "inherit", "unset", "revert"})
# Least values that show something: of lengths in pixels, of other numbers as they are.
_LEAST = {"font-size": 4.0, "font": 4.0, "opacity": 0.2, "zoom": 0.2, "scale": 0.2, "z-index": 0.0}
_LEAST |= {f"{limit}{side}": 3.0 for limit in ("", "max-") for side in ("width", "height", "inline-size", "block-size")}
_SCALES = frozenset({"opacity", "zoom", "scale"})
# Properties that move a text, which is off the screen from so many pixels on.
_MOVES = frozenset({"left", "top", "right", "bottom", "text-indent", "translate", "inset", "letter-spacing"})
_MOVES |= {f"margin{side}" for side in ("", "-left", "-top", "-right", "-bottom")}
_OFF_SCREEN = 400.0
_ROTATIONS = frozenset({"matrix", "matrix3d", "rotatex", "rotatey", "rotate3d"})
_MATHS = frozenset({"calc", "min", "max", "clamp"})
_PIXELS = {"px": 1.0, "em": 16, "rem": 16, "ex": 8, "ch": 8, "lh": 20, "rlh": 20, "pt": 1.33, "pc": 16, "in": 96}
_PIXELS |= {"cm": 38, "mm": 3.8, "q": 0.95} | dict.fromkeys(
    ("vw", "vh", "vmin", "vmax", "svh", "dvh", "vi", "vb"), 10.0
)


class Effect(NamedTuple):
    """What declarations do: whether they hide the element, and its colors where they set them."""

    hides: bool = False
    color: _Color | None = None
    background: _Color | None = None

    def over(self, below: Effect) -> Effect:
        """Return this effect on an element that has the effect `below` already, or inherits it."""
        color, background = self.color or below.color, self.background or below.background
        return Effect(self.hides or below.hides, color, background)

    @property
    def is_unseen(self) -> bool:
        """Whether nobody sees the text: it is hidden, or nearly of the color of its background, which is white."""
        if self.hides or self.color is None:
            return self.hides
        behind = self.background or _WHITE
        return max(abs(one - other) for one, other in zip(self.color, behind, strict=True)) < _MIN_CONTRAST


@lru_cache(maxsize=1024)
def effect(declarations: str) -> Effect:
    """Return the effect of the declarations in an attribute ``style``."""
    from tinycss2 import parse_blocks_contents

    return _effect(parse_blocks_contents(declarations), {})


class StyleSheet:
    """The rules of style sheets, by the last simple selector: ``p``, ``.class``, ``#id``, ``[name]``, ``*``.

    ``is_whole`` is False if there was too much CSS to be read.
    """

    def __init__(self, css: str) -> None:
        self.is_whole = len(css) <= MAX_CSS
        self._effects: dict[str, Effect] = {}
        variables: dict[str, list[Any]] = {}
        pending = [(rule, frozenset[str](), 0) for rule in reversed(_rules(css[:MAX_CSS]))]
        while pending:
            rule, above, depth = pending.pop()
            if rule.type in {"qualified-rule", "at-rule"} and rule.content and depth < _MAX_DEPTH:
                keys = frozenset(_keys(rule.prelude, above)) if rule.type == "qualified-rule" else above
                pending += [(inner, keys, depth + 1) for inner in reversed(self._add(rule, keys, variables))]

    def __bool__(self) -> bool:
        return bool(self._effects)

    def effect(self, keys: Iterable[str]) -> Effect:
        """Return the effect of all rules on an element that these simple selectors fit."""
        found = Effect()
        for key in keys:
            found = self._effects[key].over(found) if key in self._effects else found
        return found

    def _add(self, rule: Any, keys: Iterable[str], variables: dict[str, list[Any]]) -> list[Any]:
        """Add the declarations of a rule, and return what else is in it."""
        from tinycss2 import parse_blocks_contents

        inner: list[Any] = parse_blocks_contents(rule.content)
        does = _effect(inner, variables)
        for key in keys if does != Effect() else ():
            self._effects[key] = does.over(self._effects.get(key, Effect()))
        return inner


def _rules(css: str) -> list[Any]:
    if not css.strip():
        return []
    from tinycss2 import parse_stylesheet

    rules: list[Any] = parse_stylesheet(css)
    return rules


def _keys(prelude: Iterable[Any], above: Iterable[str], depth: int = 0) -> Iterator[str]:
    """Yield the last simple selector of each selector in a list; `above` are those of the rule around it."""
    key, before = "", ""
    for token in prelude:
        sign = token.value if token.type in {"literal", "whitespace"} else ""
        if sign in {",", ">", "+", "~"} or (before.isspace() and not sign.isspace()):
            yield from (key,) if sign == "," else ()
            key = ""  # the one before was that of an ancestor
        if token.type == "ident" and before != ":":
            key = f".{token.value}" if before == "." else token.lower_value
        elif token.type == "hash":
            key = f"#{token.value}"
        elif token.type == "[] block":
            key = key or next((f"[{each.lower_value}]" for each in token.content if each.type == "ident"), "")
        elif token.type == "function" and depth < _MAX_DEPTH:
            yield from _keys(token.arguments, above, depth + 1)
        elif sign == "&":
            yield from above
        elif sign == "*" or (sign == before == ":"):
            key = key or sign
        before = sign
    yield key


def _effect(parts: Iterable[Any], variables: dict[str, list[Any]]) -> Effect:
    found = Effect()
    for part in parts:
        if part.type != "declaration":
            continue
        value = [token for token in _expanded(part.value, variables) if token.type not in {"whitespace", "comment"}]
        if part.name.startswith("--"):
            variables[part.name] = value[:_MAX_VALUE_TOKENS]
        else:
            found = _effect_of(part.lower_name, value).over(found)
    return found


def _expanded(value: Iterable[Any], variables: Mapping[str, list[Any]]) -> Iterator[Any]:
    """Yield tokens with variables replaced by their values, or by their fallback where they have none."""
    for token in value:
        if token.type == "function" and token.lower_name == "var":
            names = [each.value for each in token.arguments if each.type == "ident"]
            yield from variables.get(names[0] if names else "", token.arguments[2:])
        else:
            yield token


def _effect_of(name: str, value: Sequence[Any]) -> Effect:
    words = {token.lower_value for token in value if token.type == "ident"}
    if name in {"color", "-webkit-text-fill-color"}:
        color, alpha = _color(value)
        return Effect(alpha < _LEAST["opacity"], color)
    if name in {"background", "background-color", "background-image"}:
        color, alpha = _color(value)
        is_known = not any(token.type in {"function", "url"} for token in value) or color
        return Effect(background=(color if alpha else None) if is_known else (math.nan,) * 3)
    if words & _WORDS.get(name, set()):
        return Effect(hides=True)
    if name in _CLIPPING:
        return Effect(hides=bool(value) and not words & _SHOWN)
    return Effect(hides=_is_beyond(name, value) or (name == "transform" and any(map(_hides_by_transform, value))))


def _color(value: Sequence[Any]) -> tuple[_Color | None, float]:
    """Return the first color in a value as red, green and blue, and its alpha."""
    from tinycss2.color4 import parse_color

    for token in value:
        found = parse_color(token)
        if found is not None and found != "currentcolor":
            try:
                return tuple(found.to("srgb").coordinates), found.alpha
            except NotImplementedError:
                # Of the spaces that are not converted, the first coordinate is the lightness.
                lightness = found.coordinates[0] or 0.0
                return (lightness if lightness <= 1 else lightness / 100,) * 3, found.alpha
    return None, 1.0


def _hides_by_transform(function: Any) -> bool:
    """Return whether a function of ``transform`` may make something too small, or move it off the screen."""
    name = function.lower_name if function.type == "function" else ""
    if name.startswith("translate"):
        return _is_beyond("translate", function.arguments)
    return (name.startswith("scale") and _is_beyond("scale", function.arguments)) or name in _ROTATIONS


def _is_beyond(name: str, value: Sequence[Any]) -> bool:
    """Return whether the numbers in a value are below the least, or so large that the text is off the screen."""
    if name in _MOVES:
        return any(abs(number) >= _OFF_SCREEN for number in _numbers(value, 5.0))
    if name == "font":  # the weight, and the height of a line, have no unit
        value = [token for token in value if token.type != "number" or not token.value]
    percent = 0.01 if name in _SCALES else 0.16
    return name in _LEAST and any(number < _LEAST[name] for number in _numbers(value, percent))


def _numbers(value: Iterable[Any], percent: float, depth: int = 0) -> Iterator[float]:
    """Yield the numbers in a value, lengths in pixels; `percent` is what a hundredth is.

    Of an expression it is its terms, and 0 where it subtracts or divides.
    """
    for token in value:
        if token.type == "number":
            yield token.value
        elif token.type == "dimension":
            yield token.value * _PIXELS.get(token.lower_unit, 16)
        elif token.type == "percentage":
            yield token.value * percent
        elif token.type == "() block" or (token.type == "function" and token.lower_name in _MATHS):
            inner = token.arguments if token.type == "function" else token.content
            yield from _numbers(inner, percent, depth + 1) if depth < _MAX_DEPTH else (0.0,)
            if any(each.type == "literal" and each.value in "-/" for each in inner):
                yield 0.0
