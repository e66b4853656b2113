"""Redaction by pattern: the built-in rules for secrets and personal data, and regular expressions of the user.

The prefixes of secrets are those that the services document; detect-secrets and gitleaks list most of them, too.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

OWN = "pattern"
"""Name of a user's rule without a named group."""
_TRIAL, _TRIALS = 0.2, 2.0  # seconds of the processor for one search of a trial, and for all
_LONGEST = 2048  # characters
_LITERAL = re.compile(r"(?<!\\)[^\W_]+")
_LITERALS = 8
_NAMES = re.compile(r"\w+(?:\s*,\s*\w+)*")


def note(rule: str) -> str:
    """The text in the place of a removed secret."""
    return f"[redacted: {rule}]"


def _runs_away(pattern: re.Pattern[str]) -> bool:
    """Whether an expression takes more than quadratic time on a simple text.

    Python cannot stop a running expression, so the texts grow: the first search that takes too long is soon over.
    """
    spent = 0.0
    for piece in dict.fromkeys(("a", "1", " ", "a1", "a ", ".", *_LITERAL.findall(pattern.pattern)[:_LITERALS])):
        length = 8
        while length <= _LONGEST:
            text = (piece * length)[:length] + "\0"
            started = time.thread_time()
            pattern.search(text)
            took = time.thread_time() - started
            spent += took
            if took > _TRIAL or spent > _TRIALS:
                return True
            length += 1 + length // (20 if length < 512 else 4)
    return False


def any_in(hints: tuple[str, ...], text: str) -> bool:
    """Whether one of `hints` is in `text`."""
    for hint in hints:  # noqa: SIM110  # half the time of any(...), and this runs on every content
        if hint in text:
            return True
    return False


@dataclass(frozen=True, slots=True)
class PatternRule:
    """Removes the matches of a regular expression: the named group that matched, or the whole match without one.

    A text without any of the `hints` cannot match, so the expression is not tried on it. `check` may refuse a match.
    """

    name: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    check: Callable[[str], bool] | None = None

    def apply(self, text: str, found: Counter[str]) -> str:
        """Return `text` with a note in the place of each match; the matches are counted under the name of the rule."""
        if self.hints and not any_in(self.hints, text):
            return text

        def replace(match: re.Match[str]) -> str:
            whole, group = match[0], match.lastgroup if self.pattern.groupindex else None
            part = match[group] if group else whole
            if not part or (self.check is not None and not self.check(part)):
                return whole
            name = group or self.name
            found[name] += 1
            if not group:
                return note(name)
            start, end = match.start(group) - match.start(), match.end(group) - match.start()
            return whole[:start] + note(name) + whole[end:]

        return self.pattern.sub(replace, text)


def _luhn(text: str) -> bool:
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [d * 2 - 9 * (d > 4) for d in digits[-2::-2]]
    return 13 <= len(digits) <= 19 and (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _iban(text: str) -> bool:
    plain = text.replace(" ", "")
    return 15 <= len(plain) <= 34 and int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _digits(text: str) -> bool:
    return 8 <= sum(c.isdigit() for c in text) <= 15


# Every expression is bounded or starts at a border that its own body cannot cross: time is linear in the text.
_API_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # (expression, hints): OpenAI, Anthropic, OpenRouter; Stripe
    (r"sk-[\w-]{20,}", ("sk-",)),
    (r"(?:sk|rk)_(?:live|test)_\w{16,}|whsec_[\w+/=]{16,}", ("_live_", "_test_", "whsec_")),
    # GitHub; GitLab; Docker
    (r"gh[opsur]_\w{30,}|github_pat_\w{22,}", ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_")),
    (r"gl(?:pat|rt|dt|ft|cbt|ptt)-[\w-]{20,}", ("glpat-", "glrt-", "gldt-", "glft-", "glcbt-", "glptt-")),
    (r"dckr_[op]at_[\w-]{20,}", ("dckr_",)),
    # AWS; Google; Azure AD
    (r"(?:AKIA|ASIA)[A-Z0-9]{16}\b", ("AKIA", "ASIA")),
    (r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|AQ\.[\w-]{20,}", ("AIza", "ya29.", "GOCSPX-", "AQ.")),
    (r"[\w~.-]{3}\dQ~[\w~.-]{31,40}", ("Q~",)),
    # Slack; Discord; Telegram; Twilio; Mailgun; SendGrid
    (r"xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|hooks\.slack\.com/services/[\w/]{20,}", ("xox", "xapp-", "hooks.slack.com")),
    (r"[MNO][DTjz][\w-]{21,24}\.[\w-]{6}\.[\w-]{27,40}", ("MD", "MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")),
    (r"(?:canary\.|ptb\.)?discord(?:app)?\.com/api/webhooks/\d{1,20}/[\w-]{20,}", ("/api/webhooks/",)),
    (r"\d{8,10}:AA[\w-]{32,34}", (":AA",)),
    (r"(?:SK|AC)[0-9a-f]{32}\b", ("SK", "AC")),
    (r"(?:pub)?key-[0-9a-zA-Z]{32}\b", ("key-",)),
    (r"SG\.[\w-]{16,64}\.[\w-]{16,64}", ("SG.",)),
    # Grafana; New Relic; Sentry; Databricks; DigitalOcean; Terraform; Vault
    (r"gl(?:sa|c)_[\w+/=]{20,}", ("glsa_", "glc_")),
    (
        r"NR(?:AK|II|JS|RA|IQ)-[\w-]{16,}|[0-9a-f]{36}NRAL\b|sntry[su]_[\w+/=-]{20,}|[0-9a-f]{32}(?=@[\w.-]{1,253}/\d)",
        ("NRAK-", "NRII-", "NRJS-", "NRRA-", "NRIQ-", "NRAL", "sntry", "://"),
    ),
    (r"dapi[0-9a-f]{32}\b|do[opr]_v1_[0-9a-f]{40,}", ("dapi", "_v1_")),
    (r"\w{14}\.atlasv1\.[\w=-]{40,}|hv[sbr]\.[\w-]{20,}", (".atlasv1.", "hvs.", "hvb.", "hvr.")),
    # Shopify; Square; PayPal
    (r"shp(?:at|ca|pa|ss)_[0-9a-f]{32}\b", ("shpat_", "shpca_", "shppa_", "shpss_")),
    (r"sq0[a-z]{3}-[\w-]{22,}|EAAA[\w-]{56,}", ("sq0", "EAAA")),
    (r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}", ("access_token$",)),
    # Notion; Airtable; Linear; Figma; npm; PyPI
    (r"ntn_\w{30,}|secret_[A-Za-z0-9]{40,}|lin_api_\w{30,}|figd_[\w-]{30,}", ("ntn_", "secret_", "lin_api_", "figd_")),
    (r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", ("pat",)),
    (r"npm_\w{36}\b|pypi-[\w-]{50,}", ("npm_", "pypi-")),
    # Hugging Face, Mem0, LangSmith, Groq, xAI, Perplexity, Replicate, Pinecone, Tavily; age
    (
        r"hf_\w{30,}|m0-\w{30,}|lsv2_[a-z]{2}_\w{30,}|gsk_\w{30,}|xai-[\w-]{30,}",
        ("hf_", "m0-", "lsv2_", "gsk_", "xai-"),
    ),
    (r"pplx-\w{30,}|r8_\w{30,}|pcsk_\w{30,}|tvly-[\w-]{20,}", ("xai-", "pplx-", "r8_", "pcsk_", "tvly-")),
    (r"AGE-SECRET-KEY-1[0-9A-Z]{40,}", ("AGE-SECRET-KEY-",)),
)
_KEY_BLOCK = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PORT = r"\d{1,5}(?:[/?#,]|\Z)"
_PASSWORD = rf"(?!{_PORT})(?:[^\s/\"'<>]+|[^\s\"'<>]{{1,512}}?)(?=@)"  # up to the last @ before the path
_SIGNED_BY = (
    r"(?:[\w.%-]{0,64}[._-])?(?:[Ss]ig|SIG|[Ss]ignature|[Tt]oken)|[\w.%-]{0,64}(?:Signature|Token)|AWSAccessKeyId"
)
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"  # of a host name


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    expression: str
    hints: tuple[str, ...] = ()
    check: Callable[[str], bool] | None = None


_BUILT_IN = {
    "private_key": _BuiltIn(rf"-----BEGIN {_KEY_BLOCK}(?s:.*?)(?:-----END {_KEY_BLOCK}|\Z)", ("PRIVATE KEY",)),
    "api_key": _BuiltIn(
        rf"(?<![\w-])(?:{'|'.join(key for key, _ in _API_KEYS)})",
        tuple(hint for _, hints in _API_KEYS for hint in hints),
    ),
    "jwt": _BuiltIn(r"(?<![\w.-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", ("eyJ",)),
    "bearer": _BuiltIn(
        r"(?i)\b(?:bearer|basic)[ \t]{1,4}(?P<bearer>[\w.~+/-]{16,}={0,2})",
        ("earer ", "EARER ", "asic ", "earer\t", "EARER\t", "asic\t"),
    ),
    "url_password": _BuiltIn(rf"(?<=://)[^\s/:\[]*:(?P<url_password>{_PASSWORD})", ("://",)),
    "curl_password": _BuiltIn(
        r"""\bcurl[ \t][^\n]{0,500}?(?<=\s)(?:-u[ =]?|--user[ =])["']?[^\s:"']{1,64}:(?P<curl_password>[^\s"']+)""",
        ("curl ", "curl\t"),
    ),
    "url_signature": _BuiltIn(
        rf"""[?&;](?:amp;)?(?:{_SIGNED_BY})=(?P<url_signature>[^\s&#"'<>\\]+)""",
        ("ig=", "SIG=", "ignature=", "oken=", "AWSAccessKeyId="),
    ),
    "email": _BuiltIn(rf"(?<![\w.+-])[\w.+-]{{1,64}}@(?:{_LABEL}\.){{1,8}}[^\W\d_]{{2,24}}(?!\w)", ("@",)),
    "credit_card": _BuiltIn(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])", check=_luhn),
    "iban": _BuiltIn(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)", check=_iban),
    "phone": _BuiltIn(
        r"(?<![\w+.-])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4})(?![\w-])",
        check=_digits,
    ),
}
GROUPS = {
    "secrets": ("private_key", "api_key", "jwt", "bearer", "url_password", "curl_password", "url_signature"),
    "personal": ("email", "credit_card", "iban", "phone"),
}
NAMES = (*GROUPS, *_BUILT_IN)
"""Names for the setting: groups first, then single rules."""


class Patterns:
    """The rules of one setting, in their order. `own`: the user wrote some of the rules.

    `problems` gives the numbers of the items that are not understood, never their text.
    """

    def __init__(self, rules: tuple[PatternRule, ...], *, own: bool = False, problems: tuple[str, ...] = ()) -> None:
        self.rules, self.own, self.problems = rules, own, problems
        self._always = any(not rule.hints for rule in rules)
        self._hints = tuple(hint for rule in rules for hint in rule.hints)

    def may_occur(self, text: str) -> bool:
        """Whether a rule may find something in `text`: fast, never wrongly False."""
        return self._always or any_in(self._hints, text)

    def apply(self, text: str, found: Counter[str]) -> str:
        """Return `text` with a note in the place of each match of a rule."""
        for rule in self.rules:
            text = rule.apply(text, found)
        return text


def read_patterns(setting: str) -> Patterns:
    """Read a setting: items between line ends or `;;`, each a comma-separated list of names or a regular expression."""
    names: set[str] = set()
    own: list[PatternRule] = []
    problems: list[str] = []
    items = [item.strip() for item in setting.replace("\n", ";;").split(";;")]
    for number, item in enumerate(filter(None, items), 1):
        if _NAMES.fullmatch(item):
            named = {name.strip() for name in item.split(",")} - {"none"}
            names.update(*(GROUPS.get(name, (name,)) for name in named))
            if not named <= {*NAMES}:
                problems.append(f"item {number} names no rule; there are {', '.join(NAMES)}")
            continue
        try:
            rule = PatternRule(OWN, re.compile(item))
        except (re.error, RecursionError, OverflowError):
            problems.append(f"item {number} is not a regular expression")
            continue
        if _runs_away(rule.pattern):
            problems.append(f"item {number} can take for ever: bound its repetitions")
            continue
        own.append(rule)
    rules = [
        PatternRule(name, re.compile(rule.expression), rule.hints, rule.check)
        for name, rule in _BUILT_IN.items()
        if name in names
    ]
    return Patterns((*rules, *own), own=bool(own), problems=tuple(problems))
