"""Redaction: secrets that each rule removes, texts that stay, and rules that fail."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled

from memtrace_otel.capture import config, drops, operation, use_config, use_redaction, variable_ref
from memtrace_otel.capture import redact_callback as callback
from memtrace_otel.capture.content import describe
from memtrace_otel.capture.redact import EDGE, OWN_SEARCHED, SEARCHED, Redaction, read_redaction
from memtrace_otel.capture.redact_callback import PAUSE, THREADS, CallbackRunner
from memtrace_otel.capture.redact_keys import read_keys
from memtrace_otel.capture.redact_patterns import NAMES, read_patterns
from tests.conftest import Recording
from tests.hang import guarded_against_hanging

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
KEY = "sk-proj-" + "a1B2c3D4" * 4
SLEEP = threading.Event()


@pytest.fixture(autouse=True)
def no_callback() -> Iterator[None]:
    yield
    use_redaction(None)


def redaction(patterns: str = "none", keys: str = "none", **options: object) -> Redaction:
    return Redaction(read_patterns(patterns), read_keys(keys), **options)  # type: ignore[arg-type]


def never_returns(text: str) -> str:
    SLEEP.wait(30)
    return text


def refuses(text: str) -> None:
    """A callback that lets nothing out."""


@pytest.mark.parametrize(
    ("rule", "secret", "around"),
    [
        ("api_key", KEY, "my key is {}, keep it"),
        ("api_key", "sk-ant-api03-" + "x" * 40, "{}"),
        ("api_key", "AKIAIOSFODNN7EXAMPLE", "aws={}"),
        ("api_key", "ghp_" + "a1" * 18, "({})"),
        ("api_key", "xoxb-1234567890-abcdef", "slack {}."),
        ("api_key", "AIza" + "b" * 35, "{} google"),
        ("api_key", "gsk_" + "a1" * 26, "groq {}"),
        ("api_key", "xai-" + "a1" * 40, "{}"),
        ("api_key", "pplx-" + "a1" * 24, "{}"),
        ("api_key", "r8_" + "a1" * 18, "replicate={}"),
        ("api_key", "pcsk_2a_" + "a1" * 30, "{}"),
        ("api_key", "tvly-dev-" + "a1" * 12, "{}"),
        ("api_key", "hvs." + "CAES" * 8, "vault {}"),
        ("api_key", "dapi" + "0af1" * 8, "databricks {}"),
        ("api_key", "dop_v1_" + "0af1" * 16, "{}"),
        ("api_key", "shpat_" + "0af1" * 8, "{}"),
        ("api_key", "ntn_" + "1a" * 20, "{}"),
        ("api_key", "lin_api_" + "1a" * 20, "{}"),
        ("api_key", "figd_" + "1a" * 20, "{}"),
        ("api_key", "123456789:AA" + "Hd" * 16, "bot {}"),
        ("api_key", "hooks.slack.com/services/T00000000/B00000000/XXXX", "https://{}"),
        ("api_key", "ya29.a0AfH6SMB" + "x1" * 12, "token {} expires"),
        ("api_key", "GOCSPX-" + "aB1-" * 7, "{}"),
        ("api_key", "AQ.Ab8RN6" + "x1" * 12, "gemini {}"),
        ("api_key", "xapp-1-A0123456789-1234567890-" + "ab12" * 8, "{}"),
        ("api_key", "whsec_" + "aB1+" * 8, "{}"),
        ("api_key", "dckr_pat_" + "aB1-" * 7, "docker login -p {}"),
        ("api_key", "glrt-" + "aB1-" * 5, "{}"),
        ("api_key", "glsa_" + "aB1c" * 8 + "_0a1b2c3d", "grafana {}"),
        ("api_key", "NRAK-" + "A1B2C3D4E" * 3, "{}"),
        ("api_key", "0a1b" * 9 + "NRAL", "license {}"),
        ("api_key", "secret_" + "aB1c" * 11, "notion {}"),
        ("api_key", "patAbCdEfGh123456." + "0a1b" * 16, "airtable {}"),
        ("api_key", "AbCdEfGh123456.atlasv1." + "aB1c" * 17, "terraform {}"),
        ("api_key", "MTA1NTY3ODkwMTIzNDU2Nzg5.GaBcDe." + "aB1-" * 7, "discord {}"),
        ("api_key", "discord.com/api/webhooks/1055678901234567890/" + "aB1-" * 17, "https://{}"),
        ("api_key", "abc8Q~" + "aB1~" * 9, "azure {}"),
        ("api_key", "SK" + "0a1b" * 8, "twilio {}"),
        ("api_key", "key-" + "0a1b" * 8, "mailgun {}"),
        ("api_key", "sq0atp-" + "aB1-" * 6, "square {}"),
        ("api_key", "access_token$production$" + "0a1b" * 4 + "$" + "0a1b" * 8, "{}"),
        ("api_key", "AGE-SECRET-KEY-1" + "QPZRY9X8" * 7, "{}"),
        ("api_key", "0a1b2c3d" * 4, "https://{}@o123.ingest.sentry.io/456"),
        ("curl_password", "s3cr3t", "curl -sS -u ana:{} https://h/x"),
        ("curl_password", "s3cr3t", "curl https://h/x --user 'ana:{}'"),
        ("jwt", JWT, "cookie was {} yesterday"),
        ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----", "before {} after"),
        ("private_key", "-----BEGIN OPENSSH PRIVATE KEY-----\nMIIB", "cut off {}"),
        ("bearer", "abcdef0123456789.-_", "curl -H 'Authorization: Bearer {}'"),
        ("bearer", "abcdef0123456789.-_", "Bearer\t{}"),
        ("url_password", "s3cr3t", "postgres://me:{}@host/db"),
        ("url_password", "pw", "smtp://bob@x.com:{}@h"),
        ("url_password", "hun/x", "postgres://u:{}@h/db, not a@b"),
        ("url_password", "hun@ter", "postgres://u:{}@h:5432/db"),
        ("url_password", "pw", "git+https://u:{}@example.org/o/r@main"),
        ("url_signature", "5f2a", "https://b.example/k?X-Amz-Algorithm=A&X-Amz-Signature={}&X-Amz-Expires=60"),
        ("url_signature", "a%2Fb%3D", "(https://b.example/k?sv=2024&sig={}#top)"),
        ("url_signature", "abc", '<a href="/k?Expires=1&amp;Signature={}">'),
        ("url_signature", "NOTAREALKEY", "/k?AWSAccessKeyId={}"),
        ("url_signature", "abc", "https://h/hook?token={} and so on"),
        ("url_signature", "abc", "https://h/hook?accessToken={}"),
        ("url_signature", "abc", "https://h/k?a=1;sig={}#b"),
        ("url_signature", "abc", "https://h/k?SE=1&SIG={}"),
        ("email", "ana.lima+x@mail.example.org", "write to {}, please"),
        ("credit_card", "4111 1111 1111 1111", "card {} expires"),
        ("iban", "DE89 3704 0044 0532 0130 00", "pay to {} now"),
        ("phone", "+351 912 345 678", "call {} tonight"),
        ("phone", "(415) 555-0132", "call {}"),
    ],
)
def test_built_in_rule_replaces_the_secret_by_a_note(rule: str, secret: str, around: str) -> None:
    redacted = redaction(rule).apply(around.format(secret))
    assert redacted.text == around.format(f"[redacted: {rule}]")
    assert redacted.reasons == (f"redacted:{rule}",)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("api_key", "a risk-adjusted sk-learn pipeline"),
        ("api_key", "a patient SKETCH of AC and MTV keys, secret_santa key-value AQ.A"),
        ("curl_password", "curl the hair -u, curl https://h:80/x --user-agent a:b"),
        ("jwt", "eyJust.a.word"),
        ("bearer", "the bearer of bad news, basic training"),
        ("url_password", "see https://example.org:8080/a@b"),
        ("url_password", "http://[::1]:8080/a@b mongodb://h1:27017,h2:27018/db?x=a@b"),
        ("url_password", "WSS://h:80/a@b ws://h/a:b@c git+https://h/a:b@c redis://h:6379/0?x=a@b file:///a:b@c"),
        ("url_password", "redis://h/1,https://h/a@b,s3://b/c"),
        ("url_password", "mongodb://h1:27017,h2:27018/a@b postgres://h1:5432/a,postgres://h2:5432/b?x=a@b"),
        ("url_signature", "https://h/k?config=a&design=b&tokens=5&orig=1&signatures=2 sig=3 token=4"),
        ("email", "meet @ana at 5 @ noon"),
        ("credit_card", "order 4111111111111112 of 2024-01-15 10:30:00"),
        ("iban", "AB12 CDEF GHIJ KLMN"),
        ("phone", "from 2024-01-15 10:30 to 2024-01-16, version 1.2.3, id 5551234567890"),
    ],
)
def test_similar_text_without_a_secret_stays(rule: str, text: str) -> None:
    assert redaction(rule).apply(text) == (text, ())


def test_expression_of_the_user_removes_its_match_or_its_named_group() -> None:
    own = redaction(r"\bE\d{6}\b;;seat (?P<seat>\d+[A-F])" + "\n" + r"email")
    redacted = own.apply("E123456 sits in seat 12C, ana@example.org")
    assert redacted.text == "[redacted: pattern] sits in seat [redacted: seat], [redacted: email]"
    assert set(redacted.reasons) == {"redacted:pattern", "redacted:seat", "redacted:email"}


def test_setting_replaces_the_default_and_may_name_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{KEY} ana@example.org"

    def read(patterns: str) -> str:
        monkeypatch.setenv("MEMTRACE_REDACT_PATTERNS", patterns)
        found = read_redaction()
        assert found is not None
        return found.apply(text).text

    assert read("") == "[redacted: api_key] ana@example.org"
    assert read("email") == f"{KEY} [redacted: email]"
    assert read("secrets, email") == "[redacted: api_key] [redacted: email]"
    assert read("none") == text


def test_settings_without_rules_switch_redaction_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_REDACT_PATTERNS", "none")
    monkeypatch.setenv("MEMTRACE_REDACT_KEYS", "none")
    assert read_redaction() is None


def test_values_of_secret_keys_are_removed_from_json_at_any_depth() -> None:
    call = {"arguments": json.dumps({"token": "abc", "city": "Lisbon"}), "auth": [{"dbPassword": 5, "ok": True}]}
    redacted = redaction(keys="secrets").apply(json.dumps(call))
    shown = json.loads(redacted.text)
    assert json.loads(shown["arguments"]) == {"token": "[redacted: token]", "city": "Lisbon"}
    assert shown["auth"] == [{"dbPassword": "[redacted: password]", "ok": True}]
    assert set(redacted.reasons) == {"redacted:token", "redacted:password"}


@pytest.mark.parametrize(
    "key", ["password", "DB_PASSWORD", "db-passwords", "userPassword", "user password", "PGPASSWORD"]
)
def test_a_key_matches_by_its_last_words(key: str) -> None:
    assert "hunter2" not in redaction(keys="password").apply(json.dumps({key: "hunter2"})).text


@pytest.mark.parametrize("key", ["password_hint", "max_tokens", "tokens", "tokenizer", "monkey"])
def test_value_of_another_key_stays(key: str) -> None:
    text = json.dumps({key: "x", "has_password": True, "password": None})
    assert redaction(keys="secrets").apply(text) == (text, ())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Input: {'user': 'u', 'password': 'it\\'s me', 'ok': 1}", "Input: {'user': 'u', 'password': #, 'ok': 1}"),
        ("OPENAI_API_KEY=abc python x.py", "OPENAI_API_KEY=# python x.py"),
        ("Authorization: Bearer short\nnext", "Authorization: #\nnext"),
        ('it said \\"token\\": \\"two words\\", so', 'it said \\"token\\": #, so'),
        ("x {'credentials': {'a': 'p } q', 'b': ['c']}, 'd': 1}", "x {'credentials': #, 'd': 1}"),
        ('{"a": 1, "password": "cut off in the mid', '{"a": 1, "password": #'),
        ("token: abc, and more", "token: #, and more"),
        ("password: correct horse\nnext", "password: #\nnext"),
        ("password=correct next", "password=# next"),
        ("password: correct horse, user: joe", "password: #, user: joe"),
        ("password    = correct horse", "password    = #"),
        ("password:\t    hunter2", "password:\t    #"),
        ("[apikey=abc]", "[apikey=#]"),
        ("X-APIKEY: abc", "X-APIKEY: #"),
        ("**API key:** `abc`, ok", "**API key:** #, ok"),
        ("password:\nuser: joe", "password:\nuser: joe"),
        ("DB_PASSWORD=a,b;c&d next", "DB_PASSWORD=# next"),
        ("Server=h;Password=a b;User=joe", "Server=h;Password=# b;User=joe"),  # quote it, or use `: `
        ("?user=a&password=abc&b=c", "?user=a&password=#&b=c"),
        ("if token == 5 and secret is None", "if token == 5 and secret is None"),
        ("Passwort: geheim 1\nnext", "Passwort: #\nnext"),
        ("my password is hunter2", "my password is hunter2"),  # prose is not understood
    ],
)
def test_value_after_a_secret_key_is_removed_from_other_text(text: str, left: str) -> None:
    shown = redaction(keys="secrets").apply(text).text
    for name in ("password", "passwort", "api_key", "authorization", "token", "credentials"):
        shown = shown.replace(f"[redacted: {name}]", "#")
    assert shown == left


def test_secrets_in_escapes_duplicate_keys_numbers_and_keys_of_json_are_removed() -> None:
    everything = redaction("secrets,credit_card,email", "secrets")
    assert "hidden" not in everything.apply('{"p\\u0061ssword": "hidden"}').text
    assert KEY not in everything.apply(f'{{"a": "{KEY}", "a": "x"}}').text
    assert "me:pw@" not in everything.apply('["https:\\/\\/me:pw@host"]').text
    assert json.loads(everything.apply('[4111111111111111, {"a@example.org": 1}]').text) == [
        "[redacted: credit_card]",
        {"[redacted: email]": 1},
    ]


HIDDEN = {"role": "user", "content": f"staging login:\npassword: hunter2-prod\nkey:\n{KEY}\n\tPIN: 4711"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([HIDDEN, {"role": "assistant", "content": "ok " * 3000}]),  # longer than what is of use
        json.dumps([HIDDEN, {"content": "ok " * (SEARCHED // 3)}]),  # longer than what is parsed
        f"Messages: {json.dumps(HIDDEN)}\nAnswer:",
        f"Messages: {json.dumps(json.dumps([json.dumps(HIDDEN)]))} Answer:",
        f"{json.dumps(HIDDEN)}\n{json.dumps(HIDDEN)}",
        'cut: {"a": "\\u0070assword: hunter2-prod", "url": "https:\\/\\/me:hunter2-prod@host"',
    ],
)
@pytest.mark.parametrize("patterns", ["secrets", r"secrets;;PIN: \d+"])
def test_secrets_after_escaped_line_breaks_are_removed(text: str, patterns: str) -> None:
    shown = redaction(patterns, "secrets").apply(text, 1900).text
    assert "hunter2" not in shown
    assert "sk-proj" not in shown
    assert patterns == "secrets" or "4711" not in shown


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ([["authorization", "Bearer S"], ["accept", "*/*"]], [["authorization", "#"], ["accept", "*/*"]]),
        ({"name": "password", "value": "S"}, {"name": "password", "value": "#"}),
        ([{"key": "db_api_key", "val": ["S"], "n": 1}], [{"key": "db_api_key", "val": "#", "n": 1}]),
        ({"value": {"S": "S"}, "header": "X-Auth-Token"}, {"value": "#", "header": "X-Auth-Token"}),
        ({"name": "city", "value": "Lisbon"}, {"name": "city", "value": "Lisbon"}),
        (["password", "email", "city"], ["password", "email", "city"]),
        (["What is my password", "I do not know"], ["What is my password", "I do not know"]),
        ({"name": "password", "value": None}, {"name": "password", "value": None}),
    ],
)
def test_value_beside_its_key_in_json_is_removed(content: object, left: object) -> None:
    shown = redaction("secrets", "secrets").apply(json.dumps(content, separators=(",", ":"))).text
    for name in ("password", "api_key", "auth_token", "authorization"):
        shown = shown.replace(f"[redacted: {name}]", "#")
    assert json.loads(shown) == left


@pytest.mark.parametrize("content", ["NO_CONTENT", "SPAN_ONLY"])
def test_value_of_an_attribute_with_a_secret_name_is_removed(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
    use_config(None)
    given = {"db.password": "S", "monkey": "S"}
    with operation(kind="other", system="test", tracer=recording.tracer, attributes=given) as op:
        op.set("api_key", "S")
        op.set("pin", 4711)
        op.set("auth-tokens", ["S", "S"])
        op.set("gen_ai.usage.input_tokens", 7)
    attributes = recording.spans()[0].attributes or {}
    expected = {
        "db.password": "[redacted: password]",
        "monkey": "S",
        "api_key": "[redacted: api_key]",
        "pin": 4711,
        "auth-tokens": "[redacted: auth_token]",
        "gen_ai.usage.input_tokens": 7,
    }
    assert {name: attributes.get(name) for name in expected} == expected


def test_key_of_the_user_matches_any_spelling() -> None:
    own = redaction(keys="date_of_birth, passport_numbers")
    assert own.apply('{"dateOfBirth": "x", "PASSPORT-NUMBER": 1}').text == (
        '{"dateOfBirth": "[redacted: date_of_birth]", "PASSPORT-NUMBER": "[redacted: passport_numbers]"}'
    )
    assert own.apply("date of birth: 3 May 1990").text == "date of birth: [redacted: date_of_birth]"


def test_backslashes_of_a_text_without_secrets_stay() -> None:
    text = r"C:\new\table.txt and \nabla \u2207, https:\/\/example.org"
    assert redaction("secrets,email", "secrets").apply(text) == (text, ())


def test_json_without_secrets_is_unchanged() -> None:
    text = '{ "a":1.50,  "b": "\\u00e9 \\n key: none" }'
    assert redaction("secrets", "secrets").apply(text) == (text, ())


def test_deep_json_is_searched_or_withheld() -> None:
    text = '{"password": "hunter2"}'
    for _ in range(6):
        text = json.dumps({"inner": text})
    assert "hunter2" not in redaction(keys="secrets").apply(text).text
    deep = "[" * 5000 + f'"{KEY}"' + "]" * 5000
    assert KEY not in redaction("secrets").apply(deep).text
    assert KEY not in redaction("secrets").apply("[" * 200 + f'"{KEY}"' + "]" * 200).text


def test_a_secret_across_the_cut_is_not_shown_in_part() -> None:
    for before in range(1900 - len(KEY), 1901):
        shown = redaction("secrets").apply("x" * (before - 1) + " " + KEY + " " + "y" * 9000, 1900)
        assert "proj-a1" not in shown.text[:1900]
    text = "x" * (SEARCHED - 10) + " " + KEY + "z" * 100
    shown = redaction("secrets").apply(text)
    assert "sk-" not in shown.text
    assert shown.reasons == ("truncated",)
    assert len(shown.text) == SEARCHED - EDGE


def test_expressions_of_the_user_search_a_bounded_part_of_a_text() -> None:
    shown = redaction(r"zz+").apply("a" * (OWN_SEARCHED + 10))
    assert shown.reasons == ("redacted:length",)
    assert shown.text == "a" * (OWN_SEARCHED - EDGE)  # the end may hold the first half of a match


@pytest.mark.parametrize(
    "expression",
    [
        *(r"(a+)+$", r"(?:a|a)*b", r"\w*\w*\w*!", r"(\d+)*x", r"( +)+$", r"(.*)*#", r"(?:xy|xy)*!"),
        *(r"^(?:aaa|aaaa)+$", r"^(?:aa|aaa)+$", r"^(?:a{4}|a{5})+$", r"^(?:xxx|xxxx)+$", r"^(?:a{20}|a{21})+$"),
    ],
)
def test_expression_with_exponential_time_is_refused(expression: str) -> None:
    with guarded_against_hanging():
        assert read_patterns(expression).problems


@pytest.mark.parametrize(
    "expression", [r"\bE\d{6}\b", r"seat (?P<seat>\d+[A-F])", r"[\w.]+@[\w.]+", r"\d+-\d+-\d+", r"a.*b"]
)
def test_ordinary_expression_is_accepted(expression: str) -> None:
    assert not read_patterns(expression).problems


REPEATED = (
    *(
        "a",
        "1",
        " ",
        "[",
        "'",
        "a.",
        "1-",
        "+1 ",
        "a@",
        "a@a.",
        "DE89 ",
        "A1B2 ",
        "\\",
        '\\"',
        "key ",
        "token",
        "Bearer ",
    ),
    *("eyJ", "eyJaaaaaaaa.", "sk-", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "://", "://a:", "://:@", "://a:@@"),
    *("://a:b@", "://a:1,b:", "://a:b/", "?sig=", "&a-", "&Token", "token:", "token=", '"token":', '"token": "'),
    *("'key': {", "password: \\\\\\", "password:\n", "password: a, ", "token: a;", "\\n", "curl -u", "curl -u a:"),
    *("MTA1", "0a1b", "pat", "NRAK-", "AQ.", "://0a1b2c3d@", "secret_", "ab1Q~", "\\npassword: ", "a b: ", "**"),
)


@pytest.mark.parametrize("piece", REPEATED)
def test_built_in_rules_take_linear_time(piece: str) -> None:
    everything = redaction("secrets,personal", "secrets")

    text = "x " + (piece * 400_000)[:400_000]
    with guarded_against_hanging():
        everything.apply(text)


@pytest.mark.parametrize("piece", ["a ", "token ", "aB", "1"])
def test_long_keys_take_linear_time(piece: str) -> None:
    text = json.dumps({(piece * 400_000)[:400_000]: "x", "name": (piece * 400_000)[:400_000], "value": "x"})
    with guarded_against_hanging():
        redaction("secrets,personal", "secrets").apply(text)


@pytest.mark.parametrize("setting", ["emial", "secrets,emial", "(unclosed", "email;;["])
def test_invalid_setting_withholds_every_content(
    setting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MEMTRACE_REDACT_PATTERNS", setting)
    with caplog.at_level(logging.WARNING, "memtrace_otel"):
        found = read_redaction()
    assert found is not None
    assert found.problems
    assert found.apply("anything") == ("", ("withheld",))
    assert setting not in caplog.text
    assert "no content of ours leaves" in caplog.text


def test_every_rule_can_be_named() -> None:
    assert not read_patterns(",".join(NAMES)).problems


def test_callback_runs_after_the_rules(content_on: None) -> None:
    use_redaction(lambda text: text.replace("Lisbon", "[a city]"))
    rules = config().redaction
    assert rules is not None
    assert rules.apply(f"Ana moved to Lisbon with {KEY}") == (
        "Ana moved to [a city] with [redacted: api_key]",
        ("redacted:api_key", "redacted:callback"),
    )
    assert rules.apply("nothing to do") == ("nothing to do", ())


def test_callback_stays_when_settings_are_read_again(content_on: None) -> None:
    use_redaction(refuses)
    use_config(None)
    rules = config().redaction
    assert rules is not None
    assert rules.apply("text") == ("", ("withheld",))


def broken(text: str) -> str:
    raise SystemExit(text)


def garbled(text: str) -> int:
    return len(text)


def test_late_callback_does_not_change_the_digest(content_on: None) -> None:
    answers: list[str | None] = ["Ana lives in Porto", None]
    use_redaction(lambda _: answers.pop())
    names = {describe("Ana lives in Porto", config(), inline=True).digest for _ in range(2)}
    assert len(names) == 1
    assert not answers
    assert names == {variable_ref("fact", "Ana lives in Porto").removeprefix("fact:")}


@pytest.mark.parametrize("callback", [broken, garbled, refuses])
def test_failing_callback_withholds_the_content(callback: object, caplog: pytest.LogCaptureFixture) -> None:
    before = drops["redaction_callback"]
    failing = redaction(callback=callback)
    for _ in range(3):
        assert failing.apply("a text of someone") == ("", ("withheld",))
    assert drops["redaction_callback"] == before + 3
    assert "someone" not in caplog.text


def test_hanging_callback_costs_few_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    SLEEP.clear()
    now, late = 1000.0, list[str]()
    monkeypatch.setattr(callback, "monotonic", lambda: now)
    monkeypatch.setattr(callback, "note_error", lambda where, error: late.append(type(error).__name__))
    hanging = redaction(callback=never_returns)
    assert all(hanging.apply(f"text {n}") == ("", ("withheld",)) for n in range(100))
    assert late == ["TimeoutError"] * THREADS
    now += PAUSE
    assert all(hanging.apply(f"more {n}") == ("", ("withheld",)) for n in range(100))
    assert late == ["TimeoutError"] * (THREADS + 1)
    SLEEP.set()
    for _ in range(1000):
        now += PAUSE
        if hanging.apply("again").text == "again":
            return
    pytest.fail("the callback is not asked again")


def test_callback_that_hangs_on_one_text_handles_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback, "WAIT", 2.0)
    SLEEP.clear()
    watched = CallbackRunner(lambda text: never_returns(text) if text == "bad" else text)
    assert watched("bad") is None
    assert [watched(f"text {n}") for n in range(20)] == [f"text {n}" for n in range(20)]
    SLEEP.set()


@pytest.mark.parametrize("logging_fails", [False, True])
def test_callback_is_called_again_after_failures(logging_fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        caller = sys._getframe(1)
        raise LookupError(caller.f_code.co_name)

    if logging_fails:
        monkeypatch.setattr(callback, "note_error", fail)
    watched = CallbackRunner(lambda text: fail() if text == "bad" else text)
    monkeypatch.setattr(callback, "WAIT", 2.0)
    assert {watched("bad") for _ in range(2 * THREADS)} == {None}
    assert watched("good") == "good"


def test_many_threads_share_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback, "WAIT", 60.0)
    watched, answers = CallbackRunner(lambda text: time.sleep(0.01) or text), list[str | None]()

    def calls() -> None:
        for _ in range(10):
            answers.append(watched("text"))
            time.sleep(0.01)

    threads = [threading.Thread(target=calls) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["text"] * 160


def test_callback_runs_without_instrumentation() -> None:
    assert CallbackRunner(lambda _: str(is_instrumentation_enabled()))("text") == "False"


def test_callback_is_loaded_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_REDACT_CALLBACK", f"{__name__}:refuses")
    found = read_redaction()
    assert found is not None
    assert found.apply("text") == ("", ("withheld",))
    for path in ("no_such_module_of_ours:f", f"{__name__}:KEY", "os:nothing", ":", "os"):
        monkeypatch.setenv("MEMTRACE_REDACT_CALLBACK", path)
        found = read_redaction()
        assert found is not None
        assert found.problems


def test_callback_works_in_a_forked_child() -> None:
    shouting = redaction(callback=str.upper)
    assert shouting.apply("a").text == "A"
    if (child := os.fork()) == 0:
        os._exit(0 if shouting.apply("b").text == "B" else 1)
    assert os.waitpid(child, 0)[1] == 0


PLANTED = "zq83920175"
FORMS = (
    json.dumps,
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: f"Input:\n{json.dumps(value)}\nEnd",
    lambda value: f"```json\n{json.dumps(value, indent=1)}\n```",
    lambda value: f"Input: {value!r} End",  # where a quote inside of a value of JSON cannot be told from its end
)
PYTHON = 4


def planted(chance: random.Random, quotes: bool, depth: int = 0) -> object:
    """A random value with PLANTED under secret keys, and KEY in any text; JSON may hold JSON."""

    def text() -> str:
        words = ["likes", "tea", '"', "\\", "\n", "'", "é", "}", "]", ",", ":", "=", "/", " "]
        return "".join(chance.choices(words, k=chance.randint(0, 6)))

    def secret() -> object:
        hidden = text() + PLANTED + text() if quotes else PLANTED
        return chance.choice([PLANTED, [PLANTED], {"value": PLANTED}, f"Bearer {PLANTED}", hidden])

    shape = 0 if depth > 3 else chance.randrange(5)
    if shape == 1:
        members = {chance.choice(["name", "note", "token_count"]): planted(chance, quotes, depth + 1) for _ in range(3)}
        return members | {chance.choice(["dbPassword", "x-api-key", "Authorization", "private key"]): secret()}
    if shape == 2:
        return [planted(chance, quotes, depth + 1) for _ in range(3)]
    if shape == 3:
        return json.dumps(planted(chance, quotes, depth + 1))
    if shape == 4:
        before = chance.choice([" ", "\n", "\t", "/"])
        after = chance.choice(["", f"\npassword:  {PLANTED}\n", f"\ttoken={PLANTED}"])
        return f"{text()}{before}{KEY} {text()}{after}"
    return chance.choice([text(), 1, 2.5, None, True])


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_planted_secrets_are_removed_from_random_values(form: int) -> None:
    chance, found = random.Random(form), redaction("secrets", "secrets")
    removed = 0
    for _ in range(1000):
        text = FORMS[form](planted(chance, form != PYTHON))
        shown = found.apply(text).text
        assert PLANTED not in shown, text
        assert KEY not in shown, text
        removed += shown != text
        if form < 2:
            json.loads(shown)
    assert removed > 300
