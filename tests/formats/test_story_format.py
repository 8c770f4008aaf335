"""CNL line by line: what is a scene, what its text is, and what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from karat.errors import InputError
from karat.formats.story import parse_story, read_story, read_story_queries


def scenes(text: str) -> dict[str, str]:
    story = parse_story(text)
    assert story.errors == ()
    return dict(story.scenes)


def told(*lines: str) -> str:
    """The text of a scene that is told by these lines."""
    return scenes("\n".join(["Sc1 group begin", *lines, "Sc1 group end"]))["Sc1"]


def put(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("Anna quickly enters Village", "Anna enters Village."),
        ("Anna discovers SilverKey in Village", "Anna discovers SilverKey in Village."),
        ("Anna MEETS Marcus at Dawn with Joy", "Anna meets Marcus at Dawn with Joy."),
        ("Anna with Marcus enters Village", "Anna enters Village."),
        ("Anna dances", "Anna dances."),
        ('Marcus says "I am here" to Anna', "Marcus says I am here to Anna."),
        ('Anna meets Marcus with ""', "Anna meets Marcus."),
        ("Anna travels to", "Anna travels to."),
        ('"Old Anna" meets Marcus', "Old Anna meets Marcus."),
        ("Blueprint uses arc heros_journey", "Blueprint uses arc heros_journey."),
    ],
)
def test_an_event_is_told_as_a_sentence(line, event):
    assert told(line) == event


def test_quoted_words_are_neither_verbs_nor_modifiers():
    # else "is" would be the verb, and "with" would take Anna as its own
    assert told('Anna shouts "is"') == "Anna shouts is."
    assert told('Anna meets "with" Marcus') == "Anna meets with Marcus."


def test_a_quote_ends_the_word_before_it():
    assert told('Anna meets Marcus"the tall"') == "Anna meets Marcus the tall."


def test_backslashes_keep_a_quote_and_stay():
    assert told(r'Sc1 describes "she said \"no\""') == r"she said \"no\""


@pytest.mark.parametrize(
    "line",
    [
        "Anna is protagonist",
        "Anna has trait courage",
        "Sc1 includes character Anna",
        "Anna owns SilverKey",
        "Anna relates to Marcus as sibling",
        'Story requires "x"',
        "Beat midpoint mapped to Ch1.Sc2",
        "Tension at 0.5 is 4",
        "Dialogue D1 at Sc7",
        "D1 exchange begin",
        "D1 exchange end",
        "Subplot S1 type romance",
        "#hint: tell it slowly",
        "# a comment",
        "// Anna meets Marcus",
        "/* Anna meets Marcus */",
    ],
)
def test_what_describes_the_world_or_the_plan_is_no_event(line):
    assert told(line, "Anna enters Village") == "Anna enters Village."


def test_descriptions_outrank_events():
    assert told("Anna enters Village", 'Sc1 describes " Night. "', 'Sc1 describes "Rain."') == (
        "Night.\nRain."
    )


def test_an_empty_description_is_none():
    assert told("Anna enters Village", 'Sc1 describes " "') == "Anna enters Village."


@pytest.mark.parametrize("end", ["#hint: end", "#HINT:end", "#hint:   End"])
def test_a_note_ends_however_it_is_spaced(end):
    assert told("#hint: begin", 'an "open quote', end, "Anna enters X") == "Anna enters X."


def test_a_parent_scene_comes_first_and_leaves_its_child_scenes_out():
    text = """
    Sc1 group begin
      Anna meets Marcus
      Sc1.1 group begin
        Anna enters Village
      Sc1.1 group end
      Part group begin
        Marcus exits
        "Scene 9" group begin
          Rain begins
        "Scene 9" group end
      Part group end
    Sc1 group end
    """
    assert list(scenes(text).items()) == [
        ("Sc1", "Anna meets Marcus. Marcus exits."),
        ("Sc1.1", "Anna enters Village."),
        ("Scene 9", "Rain begins."),
    ]


@pytest.mark.parametrize(
    ("line", "is_scene"),
    [
        ("Finale has type scene", True),
        ("Finale has Type SCENE", True),
        ('Anna has type "scene"', True),  # whoever has it: the group around it
        ("Finale has type chapter", False),
        ("Finale has type", False),
    ],
)
def test_a_group_is_a_scene_if_it_says_so(line, is_scene):
    text = f"Finale group begin\n{line}\nFinale group end\nAnna enters X"
    assert list(scenes(text)) == (["Finale"] if is_scene else ["Document"])


def test_names_of_several_words_need_no_quotes():
    assert list(scenes("Scene 1.2 group begin\nA meets B\nScene 1.2 group end")) == ["Scene 1.2"]


def test_the_document_is_what_stands_outside_of_groups():
    text = "Anna meets Marcus\nScene_3 group begin\nAnna exits\nScene_3 group end\nRain begins"
    assert scenes(text) == {"Document": "Anna meets Marcus. Rain begins."}


def test_groups_may_be_nested_without_end():
    names = [f"G{number}" for number in range(20_000)]
    begin = "\n".join(f"{name} group begin" for name in names)
    end = "\n".join(f"{name} group end" for name in reversed(names))
    inside = "Sc1 group begin\nSc1 group end"
    assert scenes(f"{begin}\n{inside}\n{end}") == {"Sc1": ""}


def test_lines_may_end_as_in_windows():
    assert scenes("Sc1 group begin\r\nAnna enters X\r\nSc1 group end\r\n") == {
        "Sc1": "Anna enters X."
    }


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["#hint: begin", "Anna exits"], (2, "the note #hint is not closed")),
        (["/* open", "Anna exits"], (2, "the comment is not closed")),
        (
            ['Anna "meets" Marcus', "Sc1 group end"],
            (2, "a statement needs a verb, and a quoted string is none"),
        ),
        (['Anna says "x', "Sc1 group end"], (2, "a quoted string is not closed")),
    ],
)
def test_what_is_wrong_is_told_with_its_line(lines, error):
    story = parse_story("\n".join(["Sc1 group begin", *lines]))
    assert error in story.errors


BROKEN = 'Sc1 group begin\nAnna\nMarcus says "x\nAnna meets Marcus\nSc1 group end\n'


def test_a_broken_story_is_refused_with_its_first_line(tmp_path):
    with pytest.raises(InputError) as caught:
        read_story(put(tmp_path, BROKEN, "s.cnl"))
    assert str(caught.value) == (
        "s.cnl:2: a statement needs at least a subject and a verb; wrong lines in total: 2"
    )


def test_a_lenient_reader_goes_on_and_notes_every_line(tmp_path):
    corpus, notes = read_story(put(tmp_path, BROKEN, "s.cnl"), lenient=True)
    assert corpus.frame["text"].to_list() == ["Anna meets Marcus."]
    assert notes == [
        "s.cnl:2: a statement needs at least a subject and a verb",
        "s.cnl:3: a quoted string is not closed",
    ]


def test_a_scene_told_twice_has_its_first_place_and_its_last_text(tmp_path):
    scene = "{0} group begin\n{0} describes {1}\n{0} group end\n"
    text = scene.format("Sc1", "old") + scene.format("Sc2", "other") + scene.format("Sc1", "new")
    corpus, notes = read_story(put(tmp_path, text, "s.cnl"))
    assert corpus.frame.select("item_id", "text").rows() == [("Sc1", "new"), ("Sc2", "other")]
    assert notes == ["s.cnl: scene 'Sc1' occurs more than once; its last text counts"]


@pytest.mark.parametrize(
    "text", ["// nothing\n", "Scene_3 group begin\nAnna exits\nScene_3 group end"]
)
def test_a_story_without_anything_to_search_is_refused(text, tmp_path):
    with pytest.raises(InputError, match=r"s\.cnl: has no scene to search; name groups Sc1"):
        read_story(put(tmp_path, text, "s.cnl"))


@pytest.mark.parametrize(
    ("entry", "k"),
    [
        ('"topK": 3', 3),
        ('"k": 3', 3),
        ('"topK": "3"', 3),
        ('"topK": 3.0', 3),
        ('"topK": null, "k": 4', 4),
        ('"topK": 0', None),
        ('"topK": -2', None),
        ('"topK": "many"', None),
        ('"topK": 2.5', None),
        ('"topK": true', None),
        ('"topK": 0, "k": 4', None),  # the first that is there is meant
    ],
)
def test_a_cut_off_that_is_none_is_left_to_the_default(entry, k, tmp_path):
    path = put(tmp_path, f'[{{"query": "x", {entry}}}]', "q.json")
    assert [one.k for one in read_story_queries(path)] == [k]


def test_entries_that_ask_nothing_are_kept_as_blanks(tmp_path):
    path = put(tmp_path, '["a", " ", null, 7, [], {"q": "b", "id": ""}, {"id": "z"}]', "q.json")
    assert [(one.query_id, one.text) for one in read_story_queries(path)] == [
        *(("q_1", "a"), ("q_2", ""), ("q_3", ""), ("q_4", ""), ("q_5", "")),
        *(("q_6", "b"), ("z", "")),
    ]


@pytest.mark.parametrize(
    ("gold", "relevant"),
    [
        ('"relevant": ["Sc1", "Sc1", 7]', {"Sc1", "7"}),
        ('"relevant": null, "ground_truth": ["Sc2"]', {"Sc2"}),
        ('"relevant": [], "answers": ["Sc2"]', set()),
        ('"relevant": "Sc1"', set()),
        ('"relevantIds": ["sc1"]', {"sc1"}),
    ],
)
def test_the_first_gold_that_is_there_counts(gold, relevant, tmp_path):
    path = put(tmp_path, f'[{{"query": "x", {gold}}}]', "q.json")
    assert read_story_queries(path)[0].relevant == relevant


def test_two_queries_of_one_id_are_refused(tmp_path):
    path = put(tmp_path, '[{"id": "q_2", "query": "x"}, "y"]', "q.json")
    with pytest.raises(InputError, match=r"q\.json: query id 'q_2' occurs twice"):
        read_story_queries(path)
