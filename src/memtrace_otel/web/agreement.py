"""Agreement between annotators, and of people with the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from memtrace_otel.model import LABELS, Review, Status


@dataclass(frozen=True, slots=True)
class Pair:
    """Two annotators: how many answers both reviewed, on how many they agree, and Cohen's kappa (None: undefined)."""

    first: str
    second: str
    answers: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """`alpha` is Krippendorff's (nominal), None when undefined. `confusion` counts (rules, person) labels. `accepted`
    of `compared` answers with a verdict have an annotator who gave the failure type of the verdict; `blind_*` count the
    blind reviews alone."""

    pairs: tuple[Pair, ...]
    alpha: float | None
    confusion: tuple[tuple[str, str, int], ...]
    compared: int
    accepted: int
    blind_compared: int
    blind_accepted: int


def agreement(reviews: Iterable[Review]) -> Agreement:
    """Return the agreement of finished reviews; adjudications do not count. Krippendorff's alpha needs the package
    `krippendorff`; without the package, and with fewer than two annotators, it is None."""
    done = [review for review in reviews if review.status == Status.DONE]
    labels: defaultdict[str, dict[str, str]] = defaultdict(dict)
    accepted: defaultdict[str, bool] = defaultdict(bool)
    blind: defaultdict[str, bool] = defaultdict(bool)
    for review in done:
        labels[review.annotator][review.answer] = review.label
        if review.seen_type:
            accepted[review.answer] |= review.label == review.seen_type
        if review.seen_type and review.blind:
            blind[review.answer] |= review.label == review.seen_type
    confusion = Counter((review.seen_type, review.label) for review in done if review.seen_type)
    return Agreement(
        pairs=tuple(_pair(one, other, labels[one], labels[other]) for one, other in combinations(sorted(labels), 2)),
        alpha=krippendorff_alpha(list(labels.values())),
        confusion=tuple((rule, person, count) for (rule, person), count in sorted(confusion.items())),
        compared=len(accepted),
        accepted=sum(accepted.values()),
        blind_compared=len(blind),
        blind_accepted=sum(blind.values()),
    )


def _pair(first: str, second: str, one: dict[str, str], other: dict[str, str]) -> Pair:
    both = sorted(one.keys() & other.keys())
    given = [(one[answer], other[answer]) for answer in both]
    return Pair(first, second, len(both), sum(a == b for a, b in given), cohen_kappa(given))


def cohen_kappa(given: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of pairs of labels: (observed - expected) / (1 - expected) agreement (Cohen 1960).

    None without pairs, and when both gave one and the same label throughout.
    """
    if not given:
        return None
    count = len(given)
    observed = sum(a == b for a, b in given) / count
    firsts, seconds = Counter(a for a, _ in given), Counter(b for _, b in given)
    expected = sum(firsts[label] * seconds[label] for label in firsts) / count**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(annotators: Sequence[dict[str, str]]) -> float | None:
    """Return Krippendorff's alpha, nominal, of labels by answer, one dict per annotator; None when undefined."""
    try:
        import krippendorff
    except ModuleNotFoundError:
        return None
    answers = sorted({answer for labels in annotators for answer in labels})
    numbers = {label: float(number) for number, label in enumerate(LABELS)}
    data = [[numbers.get(labels.get(answer, ""), float("nan")) for answer in answers] for labels in annotators]
    shared = [row for row in zip(*data, strict=True) if sum(value == value for value in row) > 1]
    if len({value for row in shared for value in row if value == value}) < 2:
        return None
    return float(krippendorff.alpha(data, level_of_measurement="nominal"))
