"""Stories in CNL: one statement a line, groups as chapters and scenes.

Parses a story into its scenes and their texts; what is wrong with a line is noted and
the rest still read, as the language's own tools do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SCENE = re.compile(r"(^|[.\s])(?:sc|scene)\s*\d+(?:\.\d+)*$", re.IGNORECASE | re.ASCII)
_NOTE = re.compile(
    r"#(example|hint|style|avoid|voice|subtext|sensory|pacing|reference|context|contrast|reveal)"
    r":\s*(.*)",
    re.IGNORECASE,
)
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
    """The scenes in story order, and what was wrong with which line."""

    scenes: tuple[Scene, ...]
    errors: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Statement:
    subject: str
    verb: str
    objects: tuple[str, ...]
    modifiers: dict[str, str]

    def event(self) -> str:
        told = [word for pair in self.modifiers.items() for word in pair]
        return " ".join((self.subject, self.verb, *self.objects, *told)) + "."


@dataclass
class _Group:
    name: str
    line: int = 0
    is_scene: bool = False
    statements: list[_Statement] = field(default_factory=list)
    children: list[_Group] = field(default_factory=list)


def parse_story(text: str) -> Story:
    """Read a story; a scene that is told twice has its last text in both places."""
    root, errors = _parse(text)
    scenes = [(group.name, _text(_told(group))) for group in _scenes(root)]
    if not scenes:
        scenes = [("Document", _text(root.statements))]
    last = dict(scenes)
    return Story(tuple(Scene(name, last[name]) for name, _ in scenes), tuple(errors))


def is_scene_name(name: str) -> bool:
    """Whether a group of this name is a scene without saying so."""
    return _SCENE.search(name) is not None


def _scenes(group: _Group) -> Iterator[_Group]:
    for child in group.children:
        if child.is_scene or is_scene_name(child.name):
            yield child
        yield from _scenes(child)


def _told(group: _Group) -> list[_Statement]:
    """A scene's statements with those of its groups that are no scenes themselves."""
    told = list(group.statements)
    for child in group.children:
        if not (child.is_scene or is_scene_name(child.name)):
            told.extend(_told(child))
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
    for number, line in _lines(text):
        tokens = _tokens(line)
        if tokens is None:
            errors.append((number, "a quoted string is not closed"))
        elif len(tokens) > 2 and tokens[-2].lower() == "group" and tokens[-1].lower() == "begin":
            group = _Group(" ".join(tokens[:-2]), number)
            open_groups[-1].children.append(group)
            open_groups.append(group)
        elif len(tokens) > 2 and tokens[-2].lower() == "group" and tokens[-1].lower() == "end":
            name = " ".join(tokens[:-2])
            if open_groups[-1].name == name and len(open_groups) > 1:
                open_groups.pop()
            else:
                errors.append((number, f"group {name!r} ends here but is not the one open"))
        elif len(tokens) < 2:
            errors.append((number, "a statement needs at least a subject and a verb"))
        else:
            _add(open_groups[-1], _statement(tokens))
    errors.extend((group.line, f"group {group.name!r} is not closed") for group in open_groups[1:])
    return root, errors


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, past comments and notes."""
    until: str | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if until is not None:
            closed = "*/" in line if until == "*/" else line.lower() == until
            until = None if closed else until
            continue
        note = _NOTE.match(line)
        if note and note[2].strip().lower() == "begin":
            until = f"#{note[1].lower()}: end"
        elif line.startswith("/*"):
            until = None if "*/" in line else "*/"
        elif line and not line.startswith(("//", "#")):
            yield number, line


def _tokens(line: str) -> list[str] | None:
    """Words and quoted strings; None if a quote stays open."""
    tokens: list[str] = []
    word, quoted, begun = "", False, False
    characters = iter(line)
    for character in characters:
        if quoted and character == "\\":
            word += character + next(characters, "")
        elif character == '"':
            quoted, begun = not quoted, True
        elif character.isspace() and not quoted:
            if word or begun:
                tokens.append(word)
            word, begun = "", False
        else:
            word += character
    if word or begun:
        tokens.append(word)
    return None if quoted else tokens


def _statement(tokens: list[str]) -> _Statement:
    known = (i for i in range(1, len(tokens)) if tokens[i].lower() in _VERBS)
    at = next(known, 1)
    objects: list[str] = []
    modifiers: dict[str, str] = {}
    rest = iter(tokens[at + 1 :])
    for token in rest:
        value = next(rest, None) if token.lower() in _MODIFIERS else None
        if value is None:
            objects.append(token)
        else:
            modifiers[token.lower()] = value
    return _Statement(tokens[0], tokens[at].lower(), tuple(objects), modifiers)


def _add(group: _Group, statement: _Statement) -> None:
    group.statements.append(statement)
    if statement.verb == "has" and len(statement.objects) > 1 and statement.objects[0] == "type":
        group.is_scene = " ".join(statement.objects[1:]).lower() == "scene"
