"""English words that comparison treats specially: stop words, numbers, endings, ways to deny and to abstain."""

from __future__ import annotations

import re

_STOP = """
a an the and or but nor so if then than that this these those there here it its is are was were be been being am do
does did doing done have has had having will would shall should can could may might must of in on at to from by for
with about into onto over under after before during between through out up down off as not no i me my mine we us our
you your he him his she her hers they them their who whom whose which what when where why how many much some any each
all both very just also too only own same such more most other t ll re ve m d don really quite get got gets getting
went go goes going said say says mentioned according answer memory memories based user like likely kind type types
please quick question remember remind recall tell now currently days
"""
STOP_WORDS = frozenset(_STOP.split())

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_UNITS.split())} | {
    "fifteen": "15",
    "fourteen": "14",
    "twenty": "20",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "once": "1",
    "twice": "2",
}

INFLECTIONS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ied", "y"), ("ed", ""), ("ly", ""), ("s", ""))
DERIVATIONS = ("ation", "ance", "ence", "ment", "ness", "ion", "ate", "ant", "ent", "ful")

NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|neither|nor|without|cannot|stopped|quit)\b"
    r"|\b(?:is|are|was|were|do|does|did|wo|ca|could)n['’]t\b",
    re.IGNORECASE,
)

_NOT_THERE = "mentioned|specified|stated|provided|known|available|recorded|sure|enough|answerable|clear"
_NOTHING = "information|info|mention|memory|memories|records?|details?|answer|data|evidence"
_NOT_DONE = (
    "have|mention|contain|include|specify|provide|know|say|state|find|recall|remember|any|tell|determine|answer"
    "|been told|told|enough"
)
ABSTAINS = re.compile(
    rf"\b(?:not (?:{_NOT_THERE})|unknown|n/?a|unanswerable|unable to|never (?:mentioned|told|said)|idk"
    rf"|no (?:specific |direct |explicit |relevant )?(?:{_NOTHING})"
    rf"|(?:do|does|did|is|are|was|were|has|have|can|could)(?:n['’]t| not) (?:{_NOT_DONE})"
    r"|cannot (?:be )?(?:determine|answer|tell|find)\w*)\b",
    re.IGNORECASE,
)
CONCLUDES = re.compile(r"\banswer(?: is)?:\s*(\S.*)", re.IGNORECASE | re.DOTALL)

YES_NO = re.compile(r"^\s*(yes|no|yeah|yep|nope|true|false)\b", re.IGNORECASE)
YES = frozenset({"yes", "yeah", "yep", "true"})

SEPARATORS = re.compile(
    r"[,;\n•]|\band\b|\bas well as\b|\bor\b|&|^[ \t]{0,20}(?:[-*]|\d{1,6}[.)])\s", re.IGNORECASE | re.MULTILINE
)
SENTENCE_END = re.compile(r"(?<=[^\W\d_]{3}[.!?])\s+|\s[—–]\s")
