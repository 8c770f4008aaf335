"""Safe by default: who is let in, who may write, and what no page, log or header may hold."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest

from karat.errors import UsageError
from karat.web.settings import Settings

from .conftest import BASE, client_of

TOKEN = "correct-horse-battery-staple"
PAGES = ["/", "/evaluations/1", "/compare?ids=1,2", "/explore", "/label", "/new"]
API = ["/api/evaluations", "/api/reports/1/rows", "/api/comparisons?ids=1,2", "/api/openapi.json"]


@pytest.fixture
def guarded(saved):
    with client_of(store=str(saved / "history.db"), token=TOKEN) as client:
        yield client


def csrf_of(client, path="/"):
    return re.search(r'data-csrf="([^"]+)"', client.get(path).text)[1]


# Where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "workbench.example", ""])
def test_an_address_that_others_reach_is_refused_without_a_token(host):
    with pytest.raises(UsageError, match="token"):
        Settings(host=host)
    assert Settings(host=host, token=TOKEN).host == host


LOOPBACK = {
    "127.0.0.1": "127.0.0.1",
    "127.8.8.8": "127.8.8.8",
    "localhost": "localhost",
    "::1": "::1",
    "LOCALHOST": "localhost",
    "localhost.": "localhost",
    "127.1": "127.0.0.1",
    "127.8.2056": "127.8.8.8",
    "0x7f.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0:0:0:0:0:0:0:1": "::1",
    "[::1]": "::1",
    "::ffff:127.0.0.1": None,
}


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_needs_no_token(host):
    settings = Settings(host=host)
    assert settings.token is None
    # What a browser makes of the address is a name that is answered.
    assert LOOPBACK[host] is None or LOOPBACK[host] in settings.names


@pytest.mark.parametrize("host", ["0", "0x0", "localhost.example", "128.1", "::ffff:0.0.0.0"])
def test_what_only_looks_like_this_machine_needs_one(host):
    with pytest.raises(UsageError, match="token"):
        Settings(host=host)


@pytest.mark.parametrize("token", ["", "two words", "line\nfeed", "pässword"])
def test_a_token_that_no_header_can_hold_is_refused(token):
    with pytest.raises(UsageError, match="token may only have"):
        Settings(token=token)


def test_settings_show_neither_token_nor_store():
    shown = repr(Settings(token=TOKEN, store="postgresql://ann:secret@db.example/karat"))
    assert TOKEN not in shown
    assert "secret" not in shown


# The name it is asked by


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8000",
        "127.0.0.1@evil.example",
        "localhost/evil",
        "localhost#",
        "",
        "[::1",
        "127.0.0.1:port",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/evaluations", "/assets/karat.css"])
def test_a_name_that_is_not_ours_is_refused(client, host, path):
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 400
    assert "--allow-host" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9", "LOCALHOST", "[::1]:8000"])
def test_the_names_of_this_machine_are_ours(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


def test_further_names_are_ours_once_they_are_allowed(saved):
    store = str(saved / "history.db")
    with client_of(store=store, allowed_hosts=("Workbench.example",)) as client:
        assert client.get("/", headers={"Host": "workbench.example:8000"}).status_code == 200
        assert client.get("/", headers={"Host": "other.example"}).status_code == 400


# The token


@pytest.mark.parametrize("path", [*PAGES, *API])
def test_nothing_is_shown_without_the_token(guarded, path):
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    for told in ("d-q1", "question q2", "history.db", "0.5556", "main</bdi>"):
        assert told not in answer.text


@pytest.mark.parametrize("path", [*PAGES, *API])
def test_the_token_in_a_header_opens_everything(guarded, path):
    answer = guarded.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN],
)
def test_anything_but_the_token_opens_nothing(guarded, header):
    assert guarded.get("/api/evaluations", headers={"Authorization": header}).status_code == 401


def test_a_wrong_token_is_refused_even_with_a_session(guarded):
    assert guarded.get(f"/?token={TOKEN}").status_code == 303
    assert guarded.get("/").status_code == 200
    wrong = guarded.get("/api/evaluations", headers={"Authorization": "Bearer no"})
    assert wrong.status_code == 401


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address(guarded):
    answer = guarded.get(f"/compare?ids=1,2&token={quote(TOKEN)}&primary=RR")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/compare?ids=1%2C2&primary=RR"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert "Max-Age=604800" in cookie
    assert "Secure" not in cookie
    assert guarded.get(answer.headers["location"]).status_code == 200
    assert guarded.get("/api/evaluations").status_code == 200


def test_over_tls_the_cookie_stays_there(guarded):
    answer = guarded.get(f"https://127.0.0.1:8000/?token={TOKEN}")
    assert "Secure" in answer.headers["set-cookie"].split("; ")
    told = {"X-Forwarded-Proto": "https"}
    answer = guarded.get(f"/?token={TOKEN}", headers=told)
    assert "Secure" not in answer.headers["set-cookie"]


def test_whoever_logs_out_is_out_whatever_was_kept(guarded):
    kept = guarded.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    assert 'action="/logout"' in guarded.get("/").text
    other_site = guarded.post("/logout", headers={"Origin": "http://evil.example"})
    assert other_site.status_code == 403
    assert guarded.get("/").status_code == 200
    answer = guarded.post("/logout", headers={"Origin": BASE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert guarded.get("/").status_code == 401
    assert guarded.get("/", headers={"Cookie": kept}).status_code == 401


def test_without_a_token_there_is_nothing_to_log_out_of(client):
    assert "/logout" not in client.get("/").text


def test_a_token_in_the_address_of_the_api_opens_nothing(guarded):
    assert guarded.get(f"/api/evaluations?token={TOKEN}").status_code == 401


def test_the_form_takes_the_token_and_leads_on(guarded):
    form = guarded.get("/evaluations/2")
    assert form.status_code == 401
    assert 'name="next" value="/evaluations/2"' in form.text
    sent = {"token": TOKEN, "next": "/evaluations/2"}
    answer = guarded.post("/login", data=sent, headers={"Origin": BASE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/evaluations/2")
    assert guarded.get("/evaluations/2").status_code == 200


def test_the_form_says_when_the_token_is_wrong_and_repeats_nothing(guarded):
    answer = guarded.post("/login", data={"token": "wrong-one", "next": "/"})
    assert answer.status_code == 401
    assert "Wrong token" in answer.text
    assert "wrong-one" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "asked",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: b=c", ""],
)
def test_the_form_leads_nowhere_else(guarded, asked):
    answer = guarded.post("/login", data={"token": TOKEN, "next": asked})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("site", "status"),
    [("same-origin", 303), ("cross-site", 403), ("same-site", 403), (None, 403)],
)
def test_a_form_whose_browser_hides_its_origin_counts_if_it_is_ours(guarded, site, status):
    """As browsers send forms of pages with ``Referrer-Policy: no-referrer``."""
    headers = {"Origin": "null"} | ({"Sec-Fetch-Site": site} if site else {})
    answer = guarded.post("/login", data={"token": TOKEN, "next": "/"}, headers=headers)
    assert answer.status_code == status


def test_another_site_cannot_send_the_form(guarded):
    headers = {"Origin": "http://evil.example"}
    answer = guarded.post("/login", data={"token": TOKEN, "next": "/"}, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "asked",
    [
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Sec-Fetch-Site": "cross-site"}},
        {"params": {"x": "y" * 9000}},
        {},
    ],
)
def test_no_refusal_hands_out_a_session(guarded, asked):
    answer = guarded.get("/", **asked)
    assert answer.status_code >= 400
    assert "set-cookie" not in answer.headers
    assert guarded.get("/").status_code == 401


@pytest.mark.parametrize("cookie", ["x", "x.y", ".", "a" * 3000, "x." + "0" * 64, '"'])
def test_a_session_cannot_be_made_up(guarded, cookie):
    headers = {"Cookie": f"karat_8000={cookie}"}
    assert guarded.get("/", headers=headers).status_code == 401


def test_a_session_of_another_server_is_worth_nothing(saved, guarded):
    with client_of(store=str(saved / "history.db"), token="another-token") as other:
        cookie = other.get("/?token=another-token").headers["set-cookie"].partition(";")[0]
    assert guarded.get("/", headers={"Cookie": cookie}).status_code == 401


def test_the_session_of_a_page_without_token_is_worth_nothing_with_one(client, guarded):
    cookie = client.get("/").headers["set-cookie"].partition(";")[0]
    assert guarded.get("/", headers={"Cookie": cookie}).status_code == 401


def test_only_style_sheets_and_scripts_are_open(guarded):
    assert guarded.get("/assets/karat.css").status_code == 200
    assert guarded.get("/assets/api.js").status_code == 200
    assert guarded.get("/login").status_code == 401


# Headers


@pytest.mark.parametrize("path", [*PAGES, *API, "/nothing", "/api/nothing", "/assets/karat.css"])
def test_every_answer_has_the_headers(client, path):
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]
    assert "server" not in headers
    policy = dict(
        one.strip().partition(" ")[::2] for one in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["base-uri"] == policy["frame-ancestors"] == policy["font-src"] == "'none'"
    assert policy["connect-src"] == policy["form-action"] == "'self'"
    assert re.fullmatch(r"'nonce-[\w-]{22}'", policy["script-src"])
    assert policy["style-src"] == policy["script-src"]
    assert policy["img-src"] == "'self' data:"


@pytest.mark.parametrize("path", [*PAGES, *API])
def test_nothing_with_data_is_kept_by_a_browser(client, path):
    assert client.get(path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [*PAGES, "/nothing"])
def test_a_page_runs_only_what_has_the_nonce_of_its_answer(client, path):
    answers = [client.get(path) for _ in range(2)]
    nonces = [
        re.search(r"'nonce-([\w-]+)'", one.headers["content-security-policy"])[1] for one in answers
    ]
    assert nonces[0] != nonces[1]
    for answer, nonce in zip(answers, nonces, strict=True):
        scripts = re.findall(r"<script\b([^>]*)>", answer.text)
        assert scripts
        for script in scripts:
            plain = 'type="application/json"' in script
            assert plain or f'nonce="{nonce}"' in script
        assert all(
            f'nonce="{nonce}"' in one for one in re.findall(r"<link rel=.style[^>]*>", answer.text)
        )
        assert "<style" not in answer.text
        assert not re.search(r"<[^>]*\s(style|on\w+)=", answer.text)
        assert "javascript:" not in answer.text


def test_a_failure_of_ours_has_the_headers_and_tells_nothing(client, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("secret-of-the-machine-room")

    monkeypatch.setattr("karat.web.pages._page", fail)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "secret-of-the-machine-room" not in answer.text
    assert "content-security-policy" in answer.headers
    assert "secret-of-the-machine-room" in caplog.text


# Writes


def test_a_page_may_write(own):
    headers = {"X-Karat-CSRF": csrf_of(own), "Origin": BASE, "Sec-Fetch-Site": "same-origin"}
    answer = own.post("/api/evaluations/1/tags", json={"tags": ["a"]}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Karat-CSRF": ""}, 403),
        ({"X-Karat-CSRF": "0" * 64}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=json"}, 415),
        ({"Cookie": "karat_8000=other"}, 403),
    ],
)
def test_whoever_is_no_page_of_ours_may_not_write(own, headers, status):
    sent = {"X-Karat-CSRF": csrf_of(own), "Content-Type": "application/json", **headers}
    body = json.dumps({"tags": ["evil"]})
    answer = own.post("/api/evaluations/1/tags", content=body, headers=sent)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert own.get("/api/evaluations/1").json()["tags"] == ["main"]


def test_a_write_without_a_session_is_refused(own):
    other = csrf_of(own)
    own.cookies.clear()
    answer = own.post(
        "/api/evaluations/1/tags", json={"tags": ["a"]}, headers={"X-Karat-CSRF": other}
    )
    assert answer.status_code == 403


def test_the_token_of_one_session_is_worth_nothing_in_another(own):
    first = csrf_of(own)
    own.cookies.clear()
    assert csrf_of(own) != first
    answer = own.post(
        "/api/evaluations/1/tags", json={"tags": ["a"]}, headers={"X-Karat-CSRF": first}
    )
    assert answer.status_code == 403


def test_a_program_with_the_token_may_write(saved, tmp_path, own):
    store = own.app.state.settings.store
    with client_of(store=store, token=TOKEN) as client:
        path, body = "/api/evaluations/1/tags", {"tags": ["by-program"]}
        assert client.post(path, json=body).status_code == 401
        answer = client.post(path, json=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200


def test_a_session_with_the_token_still_needs_the_pages_own(own):
    with client_of(store=own.app.state.settings.store, token=TOKEN) as client:
        client.get(f"/?token={TOKEN}")
        path, body = "/api/evaluations/1/tags", {"tags": ["a"]}
        assert client.post(path, json=body).status_code == 403
        headers = {"X-Karat-CSRF": csrf_of(client)}
        assert client.post(path, json=body, headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_no_other_way_of_writing_gets_past(own, method):
    assert own.request(method, "/api/evaluations/1").status_code in (403, 405, 415)


def test_other_sites_may_link_here_and_embed_nothing(client):
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=linked).status_code == 200
    for mode in ("no-cors", "cors", "websocket"):
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
        assert client.get("/api/evaluations", headers=headers).status_code == 403


# Sizes


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(own, chunked):
    body = json.dumps({"tags": ["x" * 1_100_000]}).encode()
    sent = (body[at : at + 50_000] for at in range(0, len(body), 50_000)) if chunked else body
    headers = {"X-Karat-CSRF": csrf_of(own), "Content-Type": "application/json"}
    answer = own.post("/api/evaluations/1/tags", content=sent, headers=headers)
    assert ("content-length" in answer.request.headers) is not chunked
    assert answer.status_code == 413
    assert "1,000,000" in answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30])
def test_a_length_that_is_no_number_is_refused(own, length):
    headers = {"X-Karat-CSRF": csrf_of(own), "Content-Type": "application/json"}
    answer = own.post(
        "/api/evaluations/1/tags", content=b"{}", headers={**headers, "Content-Length": length}
    )
    assert answer.status_code == 413


def test_a_body_in_pieces_that_is_small_is_read_whole(own):
    body = json.dumps({"tags": ["in-pieces"]}).encode()
    headers = {"X-Karat-CSRF": csrf_of(own), "Content-Type": "application/json"}
    sent = (body[at : at + 3] for at in range(0, len(body), 3))
    answer = own.post("/api/evaluations/1/tags", content=sent, headers=headers)
    assert answer.json()["tags"] == ["in-pieces", "main"]


def test_an_address_or_headers_that_are_too_long_are_refused(client):
    assert client.get("/?search=" + "x" * 9000).status_code == 414
    assert client.get("/", headers={"X-Long": "x" * 40_000}).status_code == 431
    assert client.get("/", headers={f"X-{at}": "x" for at in range(120)}).status_code == 431


def test_what_is_refused_is_repeated_briefly_and_without_control_characters(client):
    long = "x" * 3000
    for path in (f"/?{long}=1", f"/?system={long}", f"/{long}", f"/api/trend?measure={long}"):
        answer = client.get(path)
        assert answer.status_code in (400, 404)
        assert "x" * 201 not in answer.text
    for path in ("/no%1b[31mthing%07", "/api/no%c2%9bthing", "/?a%e2%80%aeb=1"):
        answer = client.get(path)
        assert answer.status_code in (400, 404)
        told = answer.json()["error"] if path.startswith("/api") else answer.text
        assert "\ufffd" in told
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(told)


# Files


@pytest.mark.parametrize(
    "name",
    [
        "../settings.py",
        "..%2fsettings.py",
        "%2e%2e/%2e%2e/pyproject.toml",
        "....//app.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "karat.css%00.txt",
        "KARAT.CSS",
        "",
        ".",
        "api.js/../app.py",
        "\\..\\app.py",
        "C:\\boot.ini",
        "x" * 5000,
    ],
)
def test_no_path_from_a_request_reaches_the_file_system(client, name):
    answer = client.get(f"/assets/{name}")
    assert answer.status_code == 404
    assert "import" not in answer.text


@pytest.mark.parametrize(
    "path", ["/evaluations/../../etc/passwd", "/evaluations/1%2f..", "/label/..%2f"]
)
def test_a_path_in_place_of_a_number_is_no_number(client, path):
    assert client.get(path).status_code in (400, 404)


def test_an_asset_is_kept_for_good_under_its_own_digest_only(client):
    page = client.get("/").text
    address = re.search(r'href="(/assets/karat.css\?v=\w+)"', page)[1]
    assert "immutable" in client.get(address).headers["cache-control"]
    assert client.get("/assets/karat.css?v=old").headers["cache-control"] == "no-cache"
    answer = client.get(address)
    again = client.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert answer.headers["content-type"].startswith("text/css")


# Secrets


def test_the_password_of_a_store_is_in_no_answer():
    store = "postgresql://ann:s3cret-word@127.0.0.1:9/karat?connect_timeout=1"
    with client_of(store=store, token=TOKEN) as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for path in [*PAGES, *API]:
            answer = client.get(path, headers=headers)
            for secret in ("s3cret-word", TOKEN, "ann:"):
                assert secret not in answer.text
                assert secret not in str(answer.headers)
        assert answer.status_code in (200, 503)


def test_a_token_sent_to_a_server_without_one_leaves_the_address_too(client):
    answer = client.get("/?token=anything&system=old")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?system=old")


def test_a_program_that_may_not_write_is_told_how_it_may(saved):
    """As the page on labelling shows it, with the token and without."""
    body = {"rater": "Ana"}
    with client_of(store=str(saved / "history.db")) as client:
        refused = client.post("/api/label-sets/1/undo", json=body)
    assert refused.status_code == 403
    assert "send Authorization: Bearer TOKEN to a workbench started" in refused.text
    with client_of(store=str(saved / "history.db"), token=TOKEN) as client:
        told = {"Authorization": f"Bearer {TOKEN}"}
        answer = client.post("/api/label-sets/1/undo", json=body, headers=told)
    # The way in is open; it is the set that is not there.
    assert answer.status_code == 404
