"""`repair optimize`: the closed loop. gepa searches, the gates decide, a split that nobody has seen tests the offer."""

from __future__ import annotations

import json
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any, TypeVar, cast

import filelock

from memtrace_otel import settings
from memtrace_otel.bench.compare import paired
from memtrace_otel.repair.gates import Gates, tokens_per_run
from memtrace_otel.repair.running import Judge, Runner, Spent, is_right
from memtrace_otel.repair.subjects import Case, RepairError, load_object, load_subject, read_cases, split
from memtrace_otel.report import write_private

RESULT, CONFIG = "repair.json", "config.json"
_TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool, "Mapping[str, Any]": dict}
_Z = 1.959964
Result = dict[str, Any]
Progress = Callable[[str, Result], None]
"""Is told after each run: `attribution` or `ablation`, and the loop so far, with `spent` and `budget`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one loop with its rewriting model: evaluations of a candidate on a question, model calls, tokens,
    seconds of runs, and cost in the unit of the prices. 0: no limit. A step that began within the limits ends."""

    evaluations: int = 200
    calls: int = 0
    tokens: int = 0
    seconds: int = 3600
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Config:
    """What CONFIG.toml says."""

    subject: str
    cases: Path
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: str = ""
    judge: str = ""
    minibatch: int = 4
    seed: int = 0
    ablation: bool = True
    budget: Budget = field(default_factory=Budget)
    gates: Gates = field(default_factory=Gates)
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Of a million tokens read and written, by the name of the model; for others, those of the settings."""


_Table = TypeVar("_Table", Budget, Gates, Config)


def read_config(path: Path) -> Config:
    """Read CONFIG.toml; the file of questions is looked for beside it. Raises RepairError."""
    try:
        said = tomllib.loads(path.read_text("utf-8"))
        unknown = set(said) - {one.name for one in fields(Config)}
        if unknown:
            raise RepairError(f"{path}: unknown: {', '.join(sorted(unknown))}")
        budget, gates = _checked(Budget(**said.pop("budget", {}))), _checked(Gates(**said.pop("gates", {})))
        cases = path.parent / said.pop("cases")
        usual = settings.MODEL_INPUT_PRICE.read(), settings.MODEL_OUTPUT_PRICE.read()
        named = {str(model): (float(read), float(written)) for model, (read, written) in said.pop("prices", {}).items()}
        prices = named | {"": usual} if any(usual) else named
        config = _checked(Config(cases=cases, budget=budget, gates=gates, prices=prices, **said))
    except (KeyError, TypeError, ValueError) as error:
        raise error if isinstance(error, RepairError) else RepairError(f"{path}: {error}") from error
    if config.budget.evaluations < 1 or config.minibatch < 1:
        raise RepairError(f"{path}: budget.evaluations and minibatch are at least 1")
    if config.budget.cost and not config.prices:
        envs = f"{settings.MODEL_INPUT_PRICE.env} and {settings.MODEL_OUTPUT_PRICE.env}"
        raise RepairError(f"{path}: budget.cost needs prices: the table [prices], or {envs}")
    return config


def _checked(made: _Table) -> _Table:
    """Return a table whose values have the types of its fields. Raises ValueError."""
    for one in fields(made):
        value, wanted = getattr(made, one.name), _TYPES.get(str(one.type))
        if wanted and (not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool)):
            raise ValueError(f"{one.name} = {value!r} is no {one.type}")
    return made


def optimize(config: Config, directory: Path, *, progress: Progress = lambda kind, loop: None) -> Result:
    """Search, test and return the result; it is written to `repair.json` in the directory.

    A run that was stopped goes on. A finished run is not repeated: the test split is seen once. Raises RepairError
    when the directory holds the run of another configuration or of other questions, or another process runs there.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # outcomes and texts hold contents
    try:
        with filelock.FileLock(directory / "run.lock", timeout=0):
            return _optimize(config, directory, progress)
    except filelock.Timeout:
        raise RepairError(f"another process runs in {directory}") from None


def _optimize(config: Config, directory: Path, progress: Progress) -> Result:
    from memtrace_otel.repair.adapter import reflecting_model

    claim = _claim(config, directory)
    if (directory / RESULT).exists():
        return read_result(directory)
    name = config.model or settings.MODEL.read()
    if not name:
        raise RepairError(f"name the reflecting model: `model` in the configuration, or {settings.MODEL.env}")
    try:
        reflect = reflecting_model(name)
    except ValueError as error:
        raise RepairError(str(error)) from error
    subject = load_subject(config.subject, config.options)
    judge = cast("Judge", load_object(config.judge)) if config.judge else is_right
    parts = split(read_cases(config.cases))
    write_private(directory / CONFIG, claim)
    spent = Spent()
    result: Result = {
        "subject": config.subject,
        "created": time.time_ns(),
        "cases": {part: len(cases) for part, cases in parts.items()},
        "gates": asdict(config.gates),
        "used": dict(subject.components()),
    }
    for number, kind in enumerate(("attribution", "ablation")[: 1 + config.ablation]):
        home = directory / kind
        home.mkdir(exist_ok=True)
        home.chmod(0o700)  # gepa writes files that everybody can read
        runner = Runner(subject, judge, home / "outcomes.jsonl", config.prices)
        loop = _Loop(config, runner, result["used"], parts, home, reflect, not number)
        result[kind] = loop.search(partial(progress, kind))
        if not number and result[kind]["offered"]:
            result["test"] = _test(runner, result["used"], result[kind], parts["test"])
            result[kind]["offered"] = result["test"]["only_a"] <= result["test"]["only_b"]
        spent += runner.spent
    if config.ablation:
        _compare(result["attribution"], result["ablation"])
    result["spent"] = asdict(spent)
    write_private(directory / RESULT, json.dumps(result, ensure_ascii=False, indent=1))
    return result


def _claim(config: Config, directory: Path) -> str:
    """Return the configuration and a digest of the questions as JSON; of an earlier run, both must be the same."""
    path = directory / CONFIG
    try:
        digest = sha256(config.cases.read_bytes()).hexdigest()
    except OSError as error:
        raise RepairError(f"the questions cannot be read: {error}") from error
    text = json.dumps(asdict(config) | {"cases": digest}, ensure_ascii=False, indent=1, default=str)
    if path.exists():
        try:
            earlier = dict(json.loads(path.read_text("utf-8")))
        except (TypeError, ValueError) as error:
            raise RepairError(f"{path} is damaged: {error}") from error
        if other := [name for name, value in json.loads(text).items() if earlier.get(name) != value]:
            raise RepairError(f"{directory} holds a run with another {', '.join(other)}; give another directory")
    return text


def read_result(directory: Path) -> Result:
    """Return the result of a finished run. Raises RepairError."""
    try:
        result = dict(json.loads((directory / RESULT).read_text("utf-8")))
    except (OSError, TypeError, ValueError):
        raise RepairError(f"{directory} holds no finished run") from None
    if missing := {"attribution", "cases", "gates", "spent", "subject", "used"} - set(result):
        raise RepairError(f"{directory / RESULT} lacks {', '.join(sorted(missing))}")
    return result


class _Loop:
    """One search: gepa proposes within the budget, and every candidate and every rejection is kept."""

    def __init__(
        self,
        config: Config,
        runner: Runner,
        used: dict[str, str],
        parts: Mapping[str, list[Case]],
        home: Path,
        reflect: Callable[[str], str],
        attribution: bool,
    ) -> None:
        from memtrace_otel.repair.adapter import RepairAdapter

        self._config, self._runner, self._used, self._home = config, runner, used, home
        self._train, self._validation = parts["train"], parts["validation"]
        seen = [*self._train, *self._validation]
        self._adapter = RepairAdapter(runner, used, config.gates, seen, reflect, attribution)

    def search(self, progress: Callable[[Result], None]) -> Result:
        """Return the loop with the candidate that is offered. Raises RepairError when a model does not answer."""
        from gepa import api
        from gepa.utils import ScoreThresholdStopper

        runner, adapter, budget = self._runner, self._adapter, self._config.budget
        evaluations = 0
        runner.told = lambda: progress(self._so_far(evaluations))
        in_use = [runner.run(self._used, case) for case in self._validation]
        if errors := [str(one.feedback["error"]) for one in in_use if "error" in one.feedback]:
            raise RepairError(f"the subject fails with the texts in use: {errors[0]}")
        adapter.tokens_in_use = tokens_per_run(in_use)

        def is_spent(state: Any) -> bool:
            nonlocal evaluations
            evaluations = state.total_num_evals
            limits = ((getattr(budget, name), used) for name, used in asdict(runner.spent).items())
            return bool(adapter.problem) or any(limit and used >= limit for limit, used in limits)

        found: Any = cast("Any", api).optimize(
            seed_candidate=self._used,
            trainset=self._train,
            valset=self._validation,
            adapter=adapter,
            reflection_minibatch_size=min(self._config.minibatch, len(self._train)),
            module_selector=adapter.blamed,
            acceptance_criterion=adapter,
            max_metric_calls=budget.evaluations,
            stop_callbacks=[is_spent, ScoreThresholdStopper(1.0)],
            logger=_Log(self._home / "gepa.log"),
            run_dir=str(self._home / "gepa"),
            track_best_outputs=False,
            seed=self._config.seed,
        )
        (self._home / "gepa" / "candidate_tree.html").unlink(missing_ok=True)  # loads a script from the network
        if adapter.problem:
            raise RepairError(adapter.problem)
        loop = self._so_far(found.total_metric_calls)
        for one, seen in zip(loop["candidates"], found.discovery_eval_counts, strict=True):
            one["evaluations"] = seen
        best = max(loop["candidates"], key=lambda one: (one["right"], -one["number"]))
        chosen = [runner.run(best["texts"], case) for case in self._validation]
        test = paired([(a.right, b.right) for a, b in zip(in_use, chosen, strict=True)])
        return loop | {
            "best": best["number"],
            "validation": test | difference(test),
            "offered": test["b"] > test["a"] and test["p"] <= self._config.gates.p,
            "runs": runner.runs,
            "rewriting": asdict(runner.rewriting),
            "tokens_per_run": [adapter.tokens_in_use, tokens_per_run(chosen)],
        }

    def _so_far(self, evaluations: int) -> Result:
        """Return every candidate with its score by failure type on the validation questions, and every proposal."""
        accepted = [one for one in self._adapter.tried if not one.gate]
        texts = [self._used, *({**one.parent, one.component: one.text} for one in accepted)]
        candidates: list[Result] = []
        for number, (text, by) in enumerate(zip(texts, [None, *accepted], strict=True)):
            outcomes = self._runner.known(text, self._validation)
            candidates.append(
                {
                    "number": number,
                    "parent": texts.index(by.parent) if by else None,
                    "changed": [by.component] if by else [],
                    "texts": text,
                    "right": sum(outcome.right for outcome in outcomes),
                    "count": len(outcomes),
                    "by_type": dict(Counter(outcome.failure_type for outcome in outcomes if not outcome.right)),
                }
            )
        return {
            "candidates": candidates,
            "tried": [asdict(one) for one in self._adapter.tried],
            "evaluations": evaluations,
            "spent": asdict(self._runner.spent),
            "budget": asdict(self._config.budget),
        }


def _test(runner: Runner, used: Mapping[str, str], loop: Result, cases: Sequence[Case]) -> Result:
    """Compare the offer with the texts in use on conversations that no step has seen."""
    offer = loop["candidates"][loop["best"]]["texts"]
    test = paired([(runner.run(used, case).right, runner.run(offer, case).right) for case in cases])
    return test | difference(test)


def difference(test: Mapping[str, Any]) -> dict[str, float]:
    """Return the change of the share of right answers with its 95 % interval (Agresti and Min 2005, paired)."""
    count = test["cases"] + 2
    gained, lost = test["only_b"] + 0.5, test["only_a"] + 0.5
    centre = (gained - lost) / count
    half = _Z * sqrt(max(0.0, gained + lost - (gained - lost) ** 2 / count)) / count
    change = (test["only_b"] - test["only_a"]) / max(1, test["cases"])
    return {"change": round(change, 4), "low": round(centre - half, 4), "high": round(centre + half, 4)}


def _compare(attribution: Result, ablation: Result) -> None:
    """Note in both loops after how many evaluations the score of the offer was reached, None: never."""
    goal = attribution["candidates"][attribution["best"]]["right"]
    for loop in (attribution, ablation):
        reached = (one["evaluations"] for one in loop["candidates"] if one["right"] >= goal)
        loop["needed"] = min(reached, default=None)


class _Log:
    """Appends what gepa says to a file: prompts and texts of users do not belong on a terminal."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, message: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{message}\n")
