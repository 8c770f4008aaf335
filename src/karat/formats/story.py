"""Stories: a CNL story as a corpus of scenes, ``retrieval_queries`` JSON as an eval set.

Queries are an array, or stand under ``retrieval_queries`` or ``corpora``; each is an object or a
text. A query without an id gets ``q_`` and its position, counted from 1. The second half of the
module parses CNL, a language of statements (subject, verb, objects) in nested groups.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.evalset import (
    JudgedItem,
    JudgedQuery,
    gold_keys,
    queries_to_write,
    take_first,
    take_grades,
    take_negatives,
)
from karat.formats.files import Input, open_input, write_lines
from karat.formats.json_records import JsonRecord, frame_of, from_text, read_json
from karat.formats.registry import Head, Kind

# The id of the only scene of a story that has none.
WHOLE = "Document"

_OUTER = ("retrieval_queries", "retrievalQueries")
_TEXT = ("query", "q", "text")
_GOLD = ("relevant", "relevant_ids", "relevantIds", "answers", "ground_truth")
_K = ("topK", "k")
_DEFAULT_GRADE = 1.0
_MOST_DIGITS = 9


class StoryQuery(NamedTuple):
    """One entry of ``retrieval_queries``; a blank or unreadable one has no text."""

    query_id: str
    text: str
    relevant: frozenset[str]
    k: int | None


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for the keys of story queries, a JSON array, and for CNL if a corpus is read."""
    if head.content == "text":
        is_cnl = head.suffix == ".cnl" or _GROUP.search(head.text) is not None
        return kind == "corpus" and is_cnl
    return True


def read_story(path: str | Path, *, lenient: bool = False) -> tuple[Corpus, list[str]]:
    """Read a CNL story's scenes with notes on them; ``lenient`` notes broken lines and reads on."""
    file = open_input(path)
    story = parse_story(file.text())
    corpus = _corpus_of(story, file, lenient=lenient)
    notes = [f"{file.name}:{line}: {problem}" for line, problem in story.errors]
    if story.implicit:
        notes.append(f"{file.name}: no group is a scene, so all text outside groups is {WHOLE!r}")
    for name in _duplicates(name for name, _ in story.scenes):
        notes.append(f"{file.name}: scene {name!r} occurs more than once; its last text counts")
    return corpus, notes


def read_story_queries(path: str | Path) -> list[StoryQuery]:
    """Read all entries of ``retrieval_queries``, including blank and unreadable ones."""
    file = open_input(path)
    queries = []
    for number, entry in enumerate(_entries(file), 1):
        readable = entry if isinstance(entry, (str, dict)) else ""
        query = _judged_query(readable, number, file.name)
        relevant = frozenset(item.item_id for item in query.gold if item.grade >= _DEFAULT_GRADE)
        k = query.attributes.get("k")
        queries.append(StoryQuery(query.query_id, query.text, relevant, k))
    for name in _duplicates(query.query_id for query in queries if query.text):
        raise InputError(
            f"query id {name!r} occurs twice; give every query an id of its own", where=file.name
        )
    return queries


def _duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def read_corpus(file: Input) -> Corpus:
    """Read the scenes of a CNL story, in story order."""
    return _corpus_of(parse_story(file.text()), file)


def _corpus_of(story: Story, file: Input, *, lenient: bool = False) -> Corpus:
    """Return one item per scene id: at its first position, with its last text."""
    if story.errors and not lenient:
        (line, problem), *more = story.errors
        remaining = f"; wrong lines in total: {len(more) + 1}" if more else ""
        raise InputError(problem + remaining, where=file.name, line=line)
    if story.implicit and not story.scenes[0][1]:
        raise InputError(
            "has no scene to search; name groups Sc1 or Scene 2, or say NAME has type scene",
            where=file.name,
        )
    rows = [{"item_id": name, "text": text} for name, text in dict(story.scenes).items()]
    frame = frame_of(rows, ("item_id", "text"), where=file.name)
    return Corpus.from_frame(frame, source=file.source)


def read_judged_queries(file: Input, *, texts: bool) -> Iterator[JudgedQuery]:
    """Yield the queries with their relevant scenes; a query's own cut-off is its ``k``."""
    for number, entry in enumerate(_entries(file), 1):
        yield _judged_query(entry, number, file.name)


def _entries(file: Input) -> list[Any]:
    value = read_json(file)
    if isinstance(value, dict) and isinstance(value.get("corpora"), dict):
        value = value["corpora"]
    if isinstance(value, dict):
        value = next((value[name] for name in _OUTER if name in value), None)
    if isinstance(value, list):
        return value
    raise InputError(
        'no list of queries; expected an array or {"retrieval_queries": […]}', where=file.name
    )


def _judged_query(entry: Any, number: int, where: str) -> JudgedQuery:
    what, record = f"query {number}", JsonRecord(None, {}, where)
    remaining = dict(record.as_object({"query": entry} if isinstance(entry, str) else entry, what))
    name = remaining.pop("id", None)
    query_id = f"q_{number}" if name in (None, "") else record.as_id(name, f"the id of {what}")
    text, items = take_first(remaining, _TEXT), take_first(remaining, _GOLD)
    relevant = [
        JudgedItem(record.as_id(item, f"a relevant id of {what}"), _DEFAULT_GRADE)
        # As in the language's own tools, gold that is not a list counts as none.
        for item in (items if isinstance(items, list) else [])
    ]
    gold = [*take_grades(remaining, relevant, record), *take_negatives(remaining, record)]
    k = _parse_k(take_first(remaining, _K))
    remaining = {key: value for key, value in remaining.items() if key not in _K}
    if k is not None:
        remaining["k"] = k
    return JudgedQuery(
        None, query_id, text.strip() if isinstance(text, str) else "", gold, remaining
    )


def _parse_k(value: Any) -> int | None:
    """Return a cut-off given as a number or text; None unless it is a whole number above 0."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _MOST_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 < value < 10**_MOST_DIGITS and value == int(value) else None


def write_eval_set(queries: Queries | None, gold: Gold | None, path: str | Path) -> None:
    """Write queries, gold or both to one file."""
    entries = []
    for query in queries_to_write(queries, gold):
        entry: dict[str, Any] = {"id": query.query_id, "query": query.text}
        if gold is not None:
            entry |= gold_keys(query.gold, "relevant", _DEFAULT_GRADE)
        entry |= {
            "topK" if key == "k" else key: from_text(v) for key, v in query.attributes.items()
        }
        entries.append({key: v for key, v in entry.items() if v is not None and v != {}})
    text = json.dumps({"retrieval_queries": entries}, ensure_ascii=False, indent=2)
    write_lines(text.split("\n"), path)


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write items as scenes, with one ``describes`` per line of their texts."""
    lines: list[str] = []
    for name, text in corpus.frame.select("item_id", "text").iter_rows():
        quoted = [f'  "{name}" describes "{part.strip()}"' for part in text.split("\n")]
        unsafe = '"' in name + text or "\\" in name + text or name != " ".join(name.split())
        if unsafe or any(part != part.strip() for part in text.split("\n")):
            raise InputError(
                f"item {name!r} holds quotes, backslashes or outer white space, which a CNL "
                "story cannot carry; write jsonl, csv or parquet",
                where=str(path),
            )
        kind = [] if _SCENE.search(name) else [f'  "{name}" has type scene']
        lines += [f'"{name}" group begin', *kind, *quoted, f'"{name}" group end', ""]
    write_lines(lines[:-1], path)


# The CNL parser.

_GROUP = re.compile(r"^\s*\S.*\sgroup\s+begin\s*$", re.M)
_SCENE = re.compile(r"(^|[.\s])(?:sc|scene)\s*\d+(?:\.\d+)*\Z", re.IGNORECASE | re.ASCII)
_NOTE = re.compile(
    r"#(example|hint|style|avoid|voice|subtext|sensory|pacing|reference|context|contrast|reveal)"
    r":\s*(.*)",
    re.IGNORECASE,
)
# Lines that plan the story: beats, tension, dialogues, subplots; a quoted string has no word.
_PLANNING = re.compile(
    r".* exchange (?:begin|end)|beat \S* mapped to .*|tension at \S* is .*|dialogue \S* at .*"
    r"|subplot \S* type .*"
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
# Statements with these verbs describe the world; all others are events.
_STATE_WORDS = "is has group includes requires forbids must owns relates references describes"
_STATE_VERBS = frozenset(_STATE_WORDS.split())


@dataclass(frozen=True)
class Story:
    """The scenes in story order, each an id and a text, and the broken lines with their errors.

    ``implicit`` means that no group is a scene: everything outside of groups is the only one.
    """

    scenes: tuple[tuple[str, str], ...]
    errors: tuple[tuple[int, str], ...]
    implicit: bool = False


@dataclass(frozen=True)
class _Statement:
    subject: str
    verb: str
    objects: tuple[str, ...]
    modifiers: dict[str, str]

    def event(self) -> str:
        modifiers = [word for pair in self.modifiers.items() if pair[1] for word in pair]
        return " ".join((self.subject, self.verb, *self.objects, *modifiers)) + "."


@dataclass
class _Group:
    name: str
    line: int = 0
    has_scene_type: bool = False
    statements: list[_Statement] = field(default_factory=list)
    children: list[_Group] = field(default_factory=list)

    @property
    def is_scene(self) -> bool:
        return self.has_scene_type or _SCENE.search(self.name) is not None

    def groups(self, includes: Callable[[_Group], bool]) -> Iterator[_Group]:
        """Yield this group and those inside it that are included, parents before children."""
        waiting = [self]
        while waiting:
            group = waiting.pop()
            yield group
            waiting.extend(child for child in reversed(group.children) if includes(child))


class _Token(NamedTuple):
    """A word or a quoted string; ``word`` is the verb or keyword, "" for a quoted string."""

    text: str
    word: str


def parse_story(text: str) -> Story:
    """Parse a story; a scene that occurs twice has its last text in both places."""
    root, errors = _parse(text)
    groups = [group for group in root.groups(lambda child: True) if group.is_scene]
    scenes = [(group.name, _text(_statements(group))) for group in groups if group is not root]
    implicit = not scenes
    if implicit:
        scenes = [(WHOLE, _text(root.statements))]
    last = dict(scenes)
    return Story(tuple((name, last[name]) for name, _ in scenes), tuple(errors), implicit)


def _statements(scene: _Group) -> list[_Statement]:
    """Return a scene's statements, with those of its groups that are not scenes themselves."""
    groups = scene.groups(lambda child: not child.is_scene)
    return [statement for group in groups for statement in group.statements]


def _text(statements: list[_Statement]) -> str:
    described = [s.objects[0].strip() for s in statements if s.verb == "describes" and s.objects]
    text = "\n".join(described)
    if text.strip():
        return text
    return " ".join(s.event() for s in statements if s.verb not in _STATE_VERBS)


def _parse(text: str) -> tuple[_Group, list[tuple[int, str]]]:
    root = _Group("")
    open_groups = [root]
    errors: list[tuple[int, str]] = []
    for number, line in _lines(text, errors):
        tokens = _tokens(line)
        if tokens is None:
            errors.append((number, "a quoted string is not closed"))
            continue
        words = [token.word for token in tokens]
        name = " ".join(token.text for token in tokens[:-2])
        if words[2:] and words[-2:] == ["group", "begin"]:
            group = _Group(name, number)
            open_groups[-1].children.append(group)
            open_groups.append(group)
        elif words[2:] and words[-2:] == ["group", "end"]:
            if open_groups[-1].name == name and len(open_groups) > 1:
                open_groups.pop()
            else:
                errors.append((number, f"group {name!r} ends here but is not the open group"))
        elif _PLANNING.fullmatch(" ".join(words)) is None:
            _add(open_groups[-1], tokens, number, errors)
    errors.extend((group.line, f"group {group.name!r} is not closed") for group in open_groups[1:])
    return root, sorted(errors)


def _lines(text: str, errors: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments and notes; one that is not closed is an error."""
    until, since, construct = "", 0, ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        note = _NOTE.match(line)
        mark = note[2].strip().lower() if note else ""
        if until == "*/":
            until = "" if "*/" in line else until
        elif until:
            closed = note is not None and note[1].lower() == until and mark == "end"
            until = "" if closed else until
        elif note and mark == "begin":
            until, since, construct = note[1].lower(), number, f"the note #{note[1]}"
        elif line.startswith("/*"):
            until, since, construct = "" if "*/" in line else "*/", number, "the comment"
        elif line and not line.startswith(("//", "#")):
            yield number, line
    if until:
        errors.append((since, f"{construct} is not closed"))


def _tokens(line: str) -> list[_Token] | None:
    """Return the words and quoted strings; None if a quote is not closed."""
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(line):
        if match[0] == '"':
            return None
        quoted, word = match[1], match[2]
        tokens.append(_Token(quoted, "") if word is None else _Token(word, word.lower()))
    return tokens


def _add(
    group: _Group, tokens: Sequence[_Token], number: int, errors: list[tuple[int, str]]
) -> None:
    """Add a statement to its group; ``NAME has type scene`` makes the group a scene."""
    if len(tokens) < 2:
        errors.append((number, "a statement needs at least a subject and a verb"))
        return
    at = next((i for i in range(1, len(tokens)) if tokens[i].word in _VERBS), 1)
    if not tokens[at].word:
        errors.append((number, "a statement needs a verb, and a quoted string is none"))
        return
    objects: list[str] = []
    modifiers: dict[str, str] = {}
    remaining = iter(tokens[at + 1 :])
    for token in remaining:
        value = next(remaining, None) if token.word in _MODIFIERS else None
        if value is None:
            objects.append(token.text)
        else:
            modifiers[token.word] = value.text
    verb = tokens[at].word
    group.statements.append(_Statement(tokens[0].text, verb, tuple(objects), modifiers))
    if verb == "has" and objects and objects[0].lower() == "type":
        group.has_scene_type = " ".join(objects[1:]).strip().lower() == "scene"
