"""Words that comparison treats specially, most English: stop words, numbers, endings, ways to deny and to abstain."""

from __future__ import annotations

import re

_STOP = """
a an the and or but nor so if then than that this these those there here it its is are was were be been being am do
does did doing done have has had having will would shall should can could may might must of in on at to from by for
with about into onto over under after before during between through out up down off as not no i me my mine we us our
you your he him his she her hers they them their who whom whose which what when where why how many much some any each
all both very just also too only own same such more most other t ll re ve m d don really quite get got gets getting
went go goes going said say says mentioned according answer memory memories based user like likely kind type types
please quick question remember remind recall tell now currently days nobody
"""
_GERMAN_STOP = """
der das dem des ein eine einen einem einer ich du er sie wir ihr es mich mir dich dir uns euch mein meine meinen meinem
meiner dein deine deinen deinem deiner sein seine ihre unser unsere ist sind bin bist wird werden habe haben und oder
aber mit von vom zu zum zur im auf für bei nach aus nicht als wie wo wann wer wen wem welche welcher welches dass
"""  # without words that are English ones, too ("die", "hat", "den")
STOP_WORDS = frozenset(f"{_STOP} {_GERMAN_STOP}".split())

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
NUMBER_WORDS = {word: number for number, word in enumerate(_SMALL.split())} | {"once": 1, "twice": 2}
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
TENS = {word: 10 * number for number, word in enumerate(_TENS.split()) if number > 1}
MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
SYMBOLS = {"€": " euro ", "$": " dollar ", "£": " pound ", "¥": " yen ", "%": " percent ", "吗": " "}
"""The last one marks a yes/no question."""
UNITS = {
    "eur": "euro",
    "usd": "dollar",
    "gbp": "pound",
    "jpy": "yen",
    "km": "kilometer",
    "kms": "kilometer",
    "kilometre": "kilometer",
    "kilometres": "kilometer",
    "kg": "kilogram",
    "kilo": "kilogram",
    "kilos": "kilogram",
    "min": "minute",
    "mins": "minute",
    "hr": "hour",
    "hrs": "hour",
}

RATE = {
    name: full
    for row in (
        *("meter m metre", "kilometer km kilometre", "liter l litre", "milliliter ml", "gram g", "kilogram kg kilo"),
        *("second s sec", "minute min", "hour h hr"),
    )
    for full, *others in (row.split(),)
    for name in (full, *others)
}
"""Name of a unit in a rate ("m/s") -> its full name."""
SIZES = {
    name: (dimension, size)
    for dimension, table in (
        ("length", "1 mm millimeter millimetre, 10 cm centimeter centimetre, 1000 m meter metre, 1000000 km kilometer"),
        ("mass", "1 mg milligram, 1000 g gram, 1000000 kg kilo kilogram, 1000000000 tonne"),
        ("volume", "1 ml milliliter millilitre, 10 cl, 100 dl, 1000 l liter litre"),
        ("duration", "1 min minute, 60 h hr hour"),
    )
    for size, *names in ((int(row.split()[0]), *row.split()[1:]) for row in table.split(","))
    for name in names
}
"""Name of a unit -> its dimension, and its size in the smallest unit of the dimension."""

LIKES = re.compile(r"\b(?:like|love|enjoy|prefer|adore)[sd]?\b|\bfond of\b|喜欢", re.IGNORECASE)
DISLIKES = re.compile(
    r"\b(?:hate|dislike|detest|loathe|avoid)[sd]?\b|\b(?:cannot|can['’]t) (?:stand|bear)\b|\bno\b(?!\.? ?\d)",
    re.IGNORECASE,
)
REFUSALS = re.compile(r"\b(?:allerg|intoleran|refus|reject|exclu|forb|bann)\w*|\bfree\b", re.IGNORECASE)

CORRECTS = re.compile(
    r"\b(?:now|instead|no longer|any ?more|actually|updated?|correct(?:ion|ed)|chang(?:ed?|es)|moved|switched|postponed"
    r"|rescheduled|replaced|from now on|jetzt|nun|stattdessen|nicht mehr|doch|korrektur|verschoben|geändert|verlegt"
    r"|umgezogen|ab sofort)\b|改[为成到]|现在|不再",
    re.IGNORECASE,
)
"""A message that corrects what was told before."""
EARLIER = re.compile(
    r"\b(?:used to|formerly|previous(?:ly)?|original(?:ly)?|initial(?:ly)?|at first|first|before|earlier|back then"
    r"|früher|vorher|zuvor|ursprünglich|damals|zuerst)\b|以前|之前|原来|最初",
    re.IGNORECASE,
)
"""A question about an earlier time."""

INFLECTIONS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ied", "y"), ("ed", ""), ("ly", ""), ("s", ""))
DERIVATIONS = ("ation", "ance", "ence", "ment", "ness", "ion", "ate", "ant", "ent", "ful")

NEGATION = re.compile(
    r"\bno\b(?!\.? ?\d)|\b(?:not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|stopped|quit)\b"
    r"|\b(?:is|are|was|were|do|does|did|have|has|had|wo|ca|could|would|should)n['’]t\b"
    r"|\b(?:nicht|kein(?:e[nmrs]?)?|nie|niemals|niemand|nichts|ohne|weder)\b"
    r"|\b(?:pas|jamais|aucune?|sans|nunca|jamás|ningun[oa]?|ningún|nadie|não|nenhuma?|ninguém|sem|nessuno|senza)\b"
    r"|不(?![仅但过错同])|没|无法|从未",
    re.IGNORECASE,
)

_NOT_THERE = "mentioned|specified|stated|provided|known|available|recorded|sure|enough|answerable|clear"
_NOTHING = "information|info|mention|memory|memories|records?|details?|answer|data|evidence"
_NOT_DONE = (
    "have|mention|name|contain|include|specify|provide|know|say|state|find|recall|remember|any|tell|determine|answer"
    "|been told|told|enough"
)
_ASKING = (
    r"cuál(?:es)?|qué|quién(?:es)?|dónde|cuándo|cómo|cuánt[oa]s?|qual|quais|quem|onde|quando|como|quant[oa]s?"
    r"|(?:a|de|en|com|em) (?:qué|quién|dónde|que|quem|onde)"
)
_NO_MORE = rf"(?= (?:{_ASKING})\b|(?: (?:en|na|no|em) (?:\w+ )?\w+)?\W*(?:$|[.!?\n]))"
"""Nothing, a place or a question follows: "no me ha dicho que viene" tells something."""
ABSTAINS = re.compile(
    rf"\b(?:not (?:{_NOT_THERE})|unknown|n/?a|unanswerable|unable to|never (?:mentioned|told|said)|idk"
    rf"|no (?:specific |direct |explicit |relevant )?(?:{_NOTHING})"
    rf"|(?:do|does|did|is|are|was|were|has|have|can|could)(?:n['’]t| not) (?:{_NOT_DONE})"
    rf"|(?:is|are|was|were) not (?:in|among|part of) (?:the |my |your |any )?(?:{_NOTHING}|notes|context)"
    r"|cannot (?:be )?(?:determine|answer|tell|find)\w*"
    r"|weiß (?:ich )?(?:es |das |leider |darüber )?nichts?|nicht bekannt"
    r"|keine (?:angaben?|informationen?)|ne sais pas|aucune information"
    r"|(?:(?:mir|uns) (?:liegt|liegen)|(?:liegt|liegen) (?:mir|uns)) (?:\w+ ){0,2}kein\w*"
    r"|(?:liegt|liegen) (?:\w+ ){0,2}keine (?:\w+ )?(?:angabe|information)\w*"
    r"|nicht (?:genannt|erwähnt|angegeben)"
    r"|ne (?:précis|mentionn|indiqu)\w* pas|n['’]\w+ pas (?:été )?(?:dit|mentionné|indiqué|précisé)\w*"
    r"|ne (?:dispos|contien)\w* pas (?:de )?(?:d['’]|l['’]|cette |ces )informations?"
    r"|no (?:lo )?sé|no tengo (?:esa )?información"
    r"|no me (?:lo )?(?:(?:has|habéis) (?:dicho|contado|mencionado|indicado)(?! que\b)|ha dicho usted)"
    rf"|no (?:me|se) (?:lo )?(?:ha[ns]? )?(?:dicho|contado|menciona|indica)\w*{_NO_MORE}"
    rf"|não (?:sei|consta|me (?:disse|contou){_NO_MORE})|nenhuma informação"
    r"|non lo so|non è (?:indicat|specificat|menzionat)\w*)\b"
    r"|不知道|(?:记忆|记录)[里中]?没有|没有(?:提到|提供|告诉|说过|相关|信息)|わかりません|모르",
    re.IGNORECASE,
)
CONCLUDES = re.compile(r".*\banswer(?: is)?:\s*(\S.*)", re.IGNORECASE | re.DOTALL)
"""The part after the last "Answer:"."""

YES_NO = re.compile(
    r"^\W*(?:(?:most |very |quite )?(?:likely|probably|possibly),? )?"
    r"(yes|no|yeah|yep|nope|true|false|ja|nein|oui|non|sí|是的?|不是?|没有|有)(?![^\W\d_a-z]|[a-z])",
    re.IGNORECASE,
)
YES = frozenset({"yes", "yeah", "yep", "true", "ja", "oui", "sí", "是", "是的", "有"})

SEPARATORS = re.compile(
    r"(?<!\d),|,(?!\d)|[;\n•、，；]|\b(?:und|oder|et|ou|y)\b"
    r"|\band\b|\bas well as\b|\bor\b|&|^[ \t]{0,20}(?:[-*]|\d{1,6}[.)])\s",
    re.IGNORECASE | re.MULTILINE,
)
SENTENCE_END = re.compile(r"(?<=[^\W\d_]{3}[.!?])\s+|(?<=[。！？])|\s[—–]\s")
