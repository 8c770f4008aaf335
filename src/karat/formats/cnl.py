"""Stories in CNL: one statement a line, groups as chapters and scenes.

Parses a story into its scenes and their texts; what is wrong with a line is noted and
the rest still read, as the language's own tools do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# The one scene of a story that has none.
WHOLE = "Document"

_SCENE = re.compile(r"(^|[.\s])(?:sc|scene)\s*\d+(?:\.\d+)*\Z", re.IGNORECASE | re.ASCII)
_NOTE = re.compile(
    r"#(example|hint|style|avoid|voice|subtext|sensory|pacing|reference|context|contrast|reveal)"
    r":\s*(.*)",
    re.IGNORECASE,
)
# A quoted string, a word, or a quote that is never closed.
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s"]+)|"')
_VERB_WORDS = """
is has relates includes references describes requires forbids must owns applies targets meets
discovers enters travels decides faces threatens destroys disappears approaches continues
resolves foreshadows remembers interacts arrives wants fears loves hates seeks avoids confronts
escapes returns transforms reveals hides promises betrays saves abandons creates begins ends
causes prevents exits speaks reacts observes uses mapped linked involves starts touchpoint says
"""
_VERBS = frozenset(_VERB_WORDS.split())
_MODIFIER_WORDS = "as to at from with about during because despite before after in by"
_MODIFIERS = frozenset(_MODIFIER_WORDS.split())
# Statements that describe the world instead of telling what happens.
_STATE_WORDS = "is has group includes requires forbids must owns relates references describes"
_NO_EVENTS = frozenset(_STATE_WORDS.split())


@dataclass(frozen=True)
class Scene:
    """One scene: its id and the text that stands for it in a search."""

    scene_id: str
    text: str


@dataclass(frozen=True)
class Story:
    """The scenes in story order, and what was wrong with which line.

    ``implicit`` says that no group is a scene: what stands outside of groups is the only one.
    """

    scenes: tuple[Scene, ...]
    errors: tuple[tuple[int, str], ...]
    implicit: bool = False


@dataclass(frozen=True)
class _Statement:
    subject: str
    verb: str
    objects: tuple[str, ...]
    modifiers: dict[str, str]

    def event(self) -> str:
        told = [word for pair in self.modifiers.items() if pair[1] for word in pair]
        return " ".join((self.subject, self.verb, *self.objects, *told)) + "."


@dataclass
class _Group:
    name: str
    line: int = 0
    says_scene: bool = False
    statements: list[_Statement] = field(default_factory=list)
    children: list[_Group] = field(default_factory=list)

    @property
    def is_a_scene(self) -> bool:
        return self.says_scene or is_scene_name(self.name)


class _Token(NamedTuple):
    text: str
    quoted: bool

    @property
    def word(self) -> str:
        """What can be a verb or another word of the language: never what is quoted."""
        return "" if self.quoted else self.text.lower()


def parse_story(text: str) -> Story:
    """Read a story; a scene that is told twice has its last text in both places."""
    root, errors = _parse(text)
    scenes = [(group.name, _text(_told(group))) for group in _scenes(root)]
    implicit = not scenes
    if implicit:
        scenes = [(WHOLE, _text(root.statements))]
    last = dict(scenes)
    return Story(tuple(Scene(name, last[name]) for name, _ in scenes), tuple(errors), implicit)


def is_scene_name(name: str) -> bool:
    """Whether a group of this name is a scene without saying so."""
    return _SCENE.search(name) is not None


def _scenes(root: _Group) -> Iterator[_Group]:
    """Every scene below a group, a parent before its children."""
    waiting = root.children[::-1]
    while waiting:
        group = waiting.pop()
        if group.is_a_scene:
            yield group
        waiting.extend(group.children[::-1])


def _told(scene: _Group) -> list[_Statement]:
    """A scene's statements with those of its groups that are no scenes themselves."""
    told: list[_Statement] = []
    waiting = [scene]
    while waiting:
        group = waiting.pop()
        told.extend(group.statements)
        waiting.extend(child for child in reversed(group.children) if not child.is_a_scene)
    return told


def _text(statements: list[_Statement]) -> str:
    described = [s.objects[0].strip() for s in statements if s.verb == "describes" and s.objects]
    text = "\n".join(described)
    if text.strip():
        return text
    return " ".join(s.event() for s in statements if s.verb not in _NO_EVENTS)


def _parse(text: str) -> tuple[_Group, list[tuple[int, str]]]:
    root = _Group("")
    open_groups = [root]
    errors: list[tuple[int, str]] = []
    for number, line in _lines(text, errors):
        tokens = _tokens(line)
        words = [token.word for token in tokens or ()]
        if tokens is None:
            errors.append((number, "a quoted string is not closed"))
        elif words[2:] and words[-2:] == ["group", "begin"]:
            group = _Group(_name(tokens), number)
            open_groups[-1].children.append(group)
            open_groups.append(group)
        elif words[2:] and words[-2:] == ["group", "end"]:
            if open_groups[-1].name == _name(tokens) and len(open_groups) > 1:
                open_groups.pop()
            else:
                what = f"group {_name(tokens)!r} ends here but is not the one open"
                errors.append((number, what))
        elif not _is_header(words):
            _add(open_groups[-1], tokens, number, errors)
    errors.extend((group.line, f"group {group.name!r} is not closed") for group in open_groups[1:])
    return root, sorted(errors)


def _name(tokens: Sequence[_Token]) -> str:
    return " ".join(token.text for token in tokens[:-2])


def _is_header(words: Sequence[str]) -> bool:
    """Whether a line plans the story (beats, tension, dialogues, subplots) instead of telling it.

    >>> _is_header("beat midpoint mapped to ch2.sc1".split()), _is_header(["anna", "enters"])
    (True, False)
    """
    first, last = words[:1], words[-2:]
    return (
        (len(words) > 2 and last in (["exchange", "begin"], ["exchange", "end"]))
        or (len(words) > 4 and first == ["beat"] and words[2:4] == ["mapped", "to"])
        or (len(words) > 4 and first == ["tension"] and words[1] == "at" and words[3] == "is")
        or (len(words) > 3 and first == ["dialogue"] and words[2] == "at")
        or (len(words) > 3 and first == ["subplot"] and words[2] == "type")
    )


def _lines(text: str, errors: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that say something, past comments and notes; one that stays open is an error."""
    until, since, what = "", 0, ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        note = _NOTE.match(line)
        told = note[2].strip().lower() if note else ""
        if until == "*/":
            until = "" if "*/" in line else until
        elif until:
            closed = note is not None and note[1].lower() == until and told == "end"
            until = "" if closed else until
        elif note and told == "begin":
            until, since, what = note[1].lower(), number, f"the note #{note[1]}"
        elif line.startswith("/*"):
            until, since, what = "" if "*/" in line else "*/", number, "the comment"
        elif line and not line.startswith(("//", "#")):
            yield number, line
    if until:
        errors.append((since, f"{what} is not closed"))


def _tokens(line: str) -> list[_Token] | None:
    """Words and quoted strings; None if a quote stays open."""
    tokens: list[_Token] = []
    for found in _TOKEN.finditer(line):
        if found[0] == '"':
            return None
        quoted = found[2] is None
        tokens.append(_Token(found[1] if quoted else found[2], quoted))
    return tokens


def _add(
    group: _Group, tokens: Sequence[_Token], number: int, errors: list[tuple[int, str]]
) -> None:
    """Put a statement into its group; where it says what the group is, believe it."""
    if len(tokens) < 2:
        errors.append((number, "a statement needs at least a subject and a verb"))
        return
    at = next((i for i in range(1, len(tokens)) if tokens[i].word in _VERBS), 1)
    if tokens[at].quoted:
        errors.append((number, "a statement needs a verb, and a quoted string is none"))
        return
    objects, modifiers = _objects(tokens[at + 1 :])
    group.statements.append(_Statement(tokens[0].text, tokens[at].word, objects, modifiers))
    if tokens[at].word == "has" and objects and objects[0].lower() == "type":
        group.says_scene = " ".join(objects[1:]).strip().lower() == "scene"


def _objects(tokens: Sequence[_Token]) -> tuple[tuple[str, ...], dict[str, str]]:
    """What follows a verb: objects, and modifiers with the token after each."""
    objects: list[str] = []
    modifiers: dict[str, str] = {}
    rest = iter(tokens)
    for token in rest:
        value = next(rest, None) if token.word in _MODIFIERS else None
        if value is None:
            objects.append(token.text)
        else:
            modifiers[token.word] = value.text
    return tuple(objects), modifiers
