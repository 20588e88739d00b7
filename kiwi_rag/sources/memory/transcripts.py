"""Transcripts of AI clients as exchanges: which files there are, and what is new in one since it was last read.

A transcript is read line by line, from the position that the last reading returned, in batches. It may grow meanwhile:
a last line without its line break is left for the next reading, and so is the last exchange, as long as nothing says
that it is finished. A position is never after the last exchange of a file. So an exchange that is read before it is
complete is read again, under the same id, and replaces what was stored of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Self

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model.exchanges import Exchange
from kiwi_rag.sources.memory.transcript_formats import FORMATS, State, UnusableMessage
from kiwi_rag.storage.safe_open import open_below, read_below, unreadable

LINE_BYTES = 16 << 20
"""Size of a line from which it is skipped: results of tools and images are in lines of several megabytes."""
MESSAGE_CHARS = 200_000
"""Length from which a message is cut."""
BATCH_EXCHANGES, BATCH_CHARS = 200, 4_000_000
"""What a batch ends at, whichever comes first."""
SKIPPED_LINES = 1000
"""How many lines of a batch are reported, at most."""
_HEAD_BYTES = 1 << 20
_CHECKED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Transcript:
    """A file with the transcript of a session.

    Parameters
    ----------
    client
        Its client, a key of `FORMATS`.
    root
        The folder of the client's transcripts.
    path
        Its path below `root`; no link is followed on it.
    """

    client: str
    root: Path
    path: str

    @property
    def key(self) -> str:
        """What its position is stored under."""
        return f"{self.client}/{self.root.name}/{self.path}"

    def __str__(self) -> str:
        return str(self.root / self.path)

    @property
    def changed_ns(self) -> int:
        """When it last changed, in nanoseconds since 1970; 0 where it is gone."""
        with suppress(OSError):
            return (self.root / self.path).lstat().st_mtime_ns
        return 0

    def is_of(self, project: Path) -> bool:
        """Return whether its session began in a project's folder or in one below it."""
        folder = self._first_folder()
        return folder is not None and _is_below(folder, project)

    def is_of_another(self, project: Path) -> bool:
        """Return whether its first lines say that its session began outside of a project's folder."""
        folder = self._first_folder()
        return folder is not None and not _is_below(folder, project)

    def _first_folder(self) -> PurePath | None:
        """Return the folder that the first lines name; None where they name none, or cannot be read."""
        try:
            data, _ = read_below(self.root, self.path, _HEAD_BYTES)
        except (FileNotFoundError, SourceUnreadable):
            return None
        for line in data.splitlines():
            with suppress(ValueError, RecursionError, AttributeError):
                entry = json.loads(line)
                for part in (entry, entry.get("payload") or {}):
                    if isinstance(folder := part.get("cwd"), str):
                        return PurePath(folder)
        return None


def _is_below(folder: PurePath, project: Path) -> bool:
    return any(folder.is_relative_to(one) for one in (project, project.resolve()))


def find_transcripts(client: str, folder: Path, project: Path | None = None) -> Sequence[Transcript]:
    """Return a client's transcripts, the one that changed last at the end.

    Parameters
    ----------
    client
        A key of `FORMATS`.
    folder
        The client's folder, such as ``~/.claude``.
    project
        If given, only transcripts of sessions that began in this folder or below it.
    """
    found = []
    for root, pattern in _places(client, folder):
        for path in root.glob(pattern):
            one = Transcript(client, root, path.relative_to(root).as_posix())
            if _is_session(path) and (project is None or (_may_be_of(one, project) and one.is_of(project))):
                found.append(one)
    return sorted(found, key=lambda one: (one.changed_ns, one.path))


def transcript_at(client: str, folder: Path, path: str) -> Transcript:
    """Return the transcript at a path that was given to Kiwi, such as a hook's ``transcript_path``.

    Raises
    ------
    UsageError
        When there is no transcript of the client in its folder at this path.
    """
    for root, pattern in _places(client, folder):
        for base in (root, root.resolve()):
            below = PurePath(path).relative_to(base) if PurePath(path).is_relative_to(base) else PurePath()
            is_deep = len(below.parts) == len(PurePath(pattern).parts) and ".." not in below.parts
            if is_deep and below.match(pattern) and "\0" not in path and _is_session(below):
                return Transcript(client, root, below.as_posix())
    title = FORMATS[client].title
    raise UsageError(f"{path[:300]!r} is no transcript of {title} in {folder}", hint="kiwi memory import FILE")


def _places(client: str, folder: Path) -> Iterator[tuple[Path, str]]:
    for name, pattern in FORMATS[client].folders.items():
        yield folder / name, pattern


def _is_session(path: PurePath) -> bool:
    return not path.name.startswith("agent-")  # older releases of Claude Code wrote those of sub-agents there, too


def _may_be_of(transcript: Transcript, project: Path) -> bool:
    """Return whether a transcript may be of a project, by the name of its folder where that tells it."""
    if transcript.client != "claude":
        return True
    return any(transcript.path.startswith(_folder_name(one)) for one in (project, project.resolve()))


def _folder_name(project: Path) -> str:
    """Return what the names of Claude Code's folders for a project, and for folders below it, begin with."""
    return re.sub(r"[^a-zA-Z0-9]", lambda found: "-" * (1 + (found[0] > "\uffff")), str(project))[:200]


@dataclass(frozen=True, slots=True)
class TranscriptPosition:
    """Where the reading of a transcript goes on.

    Parameters
    ----------
    offset, line
        Where the first exchange begins that has yet to be read, or may grow; how many lines are before it.
    end
        Size of the file when everything up to its end was read; 0 where something was left.
    digest
        Of bytes that were read, by which a file is recognised that was replaced.
    state
        What the lines before said about later ones.
    """

    offset: int = 0
    line: int = 0
    end: int = 0
    digest: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready; `of` reads it."""
        return asdict(self)

    @classmethod
    def of(cls, data: object) -> Self:
        """Return the position that `data` describes; the beginning of the file where it describes none."""
        names = {one.name: type(one.default) if isinstance(one.default, int | str) else dict for one in fields(cls)}
        if isinstance(data, Mapping) and all(type(data.get(name)) is kind for name, kind in names.items()):
            return cls(**{name: data[name] for name in names})
        return cls()


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line of a transcript that was not read, or what ends at it was not stored whole, and why."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TranscriptBatch:
    """The next exchanges of a transcript, the position after them, and whether there are no more.

    ``cut`` names messages that were too long. With ``unfinished`` one exchange was left, which may still grow.
    """

    exchanges: Sequence[Exchange]
    position: TranscriptPosition
    skipped: Sequence[SkippedLine] = ()
    cut: Sequence[SkippedLine] = ()
    is_last: bool = True
    unfinished: bool = False


def read_transcript(
    transcript: Transcript,
    position: TranscriptPosition,
    *,
    finished: bool = False,
    last_answer: str = "",
) -> TranscriptBatch:
    """Return the next exchanges of a transcript; it blocks.

    Parameters
    ----------
    position
        What the last reading returned; of a file that was replaced or truncated since, everything is read again.
    finished
        Whether the last exchange of the file is complete, so that it is returned, too.
    last_answer
        What the assistant said last, as a hook gets it: the file may not have it yet. Needs `finished`.

    Raises
    ------
    SourceUnreadable
        When the file is gone or cannot be read, is no regular file, or a link stands on the way to it.
    """
    try:
        file, entry = open_below(transcript.root, transcript.path)
        with file:
            if not _is_read(file, position):
                position = TranscriptPosition()
            if position.end == entry.st_size > 0:
                return TranscriptBatch((), position)
            reader = _Reader(transcript, position)
            is_last = reader.read(file)
            if is_last and finished:
                reader.finish(last_answer)
            reached, unfinished = reader.reached(file), is_last and reader.has_open
            return TranscriptBatch(reader.exchanges, reached, reader.skipped, reader.cut, is_last, unfinished)
    except OSError as error:
        raise unreadable(str(transcript), error) from error


def _is_read(file: BinaryIO, position: TranscriptPosition) -> bool:
    """Return whether a file begins with the bytes that were read up to a position."""
    return position.digest == _digest(file, max(position.offset, position.end))


def _digest(file: BinaryIO, size: int) -> str:
    """Return a digest of the first and of the last bytes before an offset; of fewer where the file is shorter."""
    parts = []
    for at in (0, max(0, size - _CHECKED_BYTES)):
        file.seek(at)
        parts.append(file.read(min(size, _CHECKED_BYTES)))
    return hashlib.sha256(b"".join(parts)).hexdigest()


class _Reader:
    """Joins the lines of a transcript to exchanges, from a position to the end of the file or of a batch."""

    def __init__(self, transcript: Transcript, position: TranscriptPosition) -> None:
        self.exchanges: list[Exchange] = []
        self.skipped: list[SkippedLine] = []
        self.cut: list[SkippedLine] = []
        self._transcript = transcript
        self._position = position
        self._state: State = {"file": PurePath(transcript.path).stem, **position.state}
        self._line, self._end, self._chars = position.line, position.offset, 0
        self._open: Exchange | None = None
        self._answer: list[str] = []
        self._length = 0
        self._model: dict[str, str] = {}
        self._is_whole = False
        self._seen: set[str] = set()

    def read(self, file: BinaryIO) -> bool:
        """Read a batch; return whether it ends with the file."""
        for offset, data in self._lines(file):
            self._take(data, TranscriptPosition(offset, self._line - 1, state=dict(self._state)))
            if len(self.exchanges) >= BATCH_EXCHANGES or self._chars >= BATCH_CHARS:
                return False
        self._is_whole = self._open is None
        return True

    def _take(self, line: bytes, position: TranscriptPosition) -> None:
        """Take a line, which begins at a position."""
        try:
            said = FORMATS[self._transcript.client].read(_parsed(line), self._state)
        except _UnusableLine as error:
            self._note(self.skipped, str(error))
        except UnusableMessage as error:  # what follows it answers no earlier message
            self._begin(None, position)
            self._note(self.skipped, str(error))
        else:
            if isinstance(said, Exchange):
                self._begin(said, position)
            elif said and self._length <= MESSAGE_CHARS:
                self._answer.append(said)
                self._length += len(said)
                self._model = {"model": self._state["model"]} if "model" in self._state else {}

    def finish(self, last_answer: str) -> None:
        """Take the last exchange of the file, which stays the next one to read."""
        if last_answer.strip() and last_answer.strip() not in self._answer[-1:]:
            self._answer.append(last_answer.strip())
        self._close()
        self._is_whole = True

    def reached(self, file: BinaryIO) -> TranscriptPosition:
        """Return the position after what was taken."""
        end = self._end if self._is_whole else 0
        return replace(self._position, end=end, digest=_digest(file, max(self._position.offset, end)))

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the bytes of each line; of one that is too long, only its beginning."""
        file.seek(self._end)
        while (data := file.readline(LINE_BYTES)) and (length := _length_of_line(file, data)):
            offset, self._end, self._line = self._end, self._end + length, self._line + 1
            yield offset, data

    def _begin(self, exchange: Exchange | None, position: TranscriptPosition) -> None:
        self._close()
        self._position = position
        if exchange and exchange.id not in self._seen:  # a session that is resumed may repeat lines
            self._open = exchange
            self._seen.add(exchange.id)

    @property
    def has_open(self) -> bool:
        """Whether an exchange is open in which anything was said; a command without an answer is the client's."""
        one = self._open
        return one is not None and bool(self._answer or (one.user_message and "command" not in one.metadata))

    def _close(self) -> None:
        """Take the exchange that is open, if anything was said in it."""
        opened = self._open if self.has_open else None
        answer, model = "\n\n".join(self._answer), self._model
        self._open, self._answer, self._length, self._model = None, [], 0, {}
        if opened is None:
            return
        if max(len(answer), len(opened.user_message)) > MESSAGE_CHARS:
            self._note(self.cut, f"exchange {opened.id} has a message of over {MESSAGE_CHARS:,} characters")
        message, answer = opened.user_message[:MESSAGE_CHARS], answer[:MESSAGE_CHARS]
        metadata = {**opened.metadata, **model}
        self.exchanges.append(replace(opened, user_message=message, assistant_message=answer, metadata=metadata))
        self._chars += len(answer) + len(message)

    def _note(self, noted: list[SkippedLine], reason: str) -> None:
        if len(noted) < SKIPPED_LINES:
            noted.append(SkippedLine(str(self._transcript), self._line, reason))


class _UnusableLine(Exception):
    """A line is no JSON object that is read; the text says why."""


def _length_of_line(file: BinaryIO, data: bytes) -> int:
    """Return the length of the line that begins with `data`; 0 where it has no end yet."""
    length = len(data)
    while not data.endswith(b"\n"):
        if not (data := file.readline(1 << 20)):
            return 0
        length += len(data)
    return length


def _parsed(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a line, an empty one for an empty line."""
    if not line.endswith(b"\n"):
        raise _UnusableLine(f"the line is longer than {LINE_BYTES >> 20} MB")
    if not line.strip():
        return {}
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _UnusableLine("the line is not JSON") from error
    if not isinstance(entry, Mapping):
        raise _UnusableLine("the line is not a JSON object")
    return entry
