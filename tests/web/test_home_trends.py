"""What the first page says beside a trend: the last value, and what changed since when."""

from __future__ import annotations

import re

from karat.store import Store


def test_a_trend_says_since_when_it_changed_and_by_how_much(own):
    # The same scores again: nothing changed since the evaluation before.
    with Store.open(own.app.state.settings.store) as store:
        old = store.baseline("1")
        for _ in range(2):
            store.save([old.scores], old.report)
    page = own.get("/?system=old&measure=RR").text
    (told,) = re.findall(r'<p class="small muted" title="([^"]+)">(.*?)</p>', page)
    assert told[0] == "Change since the previous evaluation: 0.0000"
    assert re.sub("<[^>]+>", "", told[1]) == "no change since the previous evaluation"


def test_without_an_evaluation_to_compare_with_there_is_no_change(client):
    # The last of these is on other gold.
    assert "since the evaluation before" not in client.get("/?system=old&measure=RR").text
