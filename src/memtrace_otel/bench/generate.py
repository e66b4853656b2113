"""`bench generate`: cases into a directory, resumable and in parallel; the same seed gives the same files.

`manifest.json` says what was asked for, `spans/<case>.pb.gz` is what a program recorded, `truth/<case>.json` is what
was planted. The truth of a case is written last: a case with its truth is whole.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from memtrace_otel.bench import real
from memtrace_otel.bench.conversations import Conversations
from memtrace_otel.bench.faults import CODES, Fault, Place, Step, Two, fault_of
from memtrace_otel.bench.memtracebench import graph_files, read_annotations
from memtrace_otel.bench.simulated import Run, Shape, System
from memtrace_otel.bench.stories import Story, Wording, make_story
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import FailureType
from memtrace_otel.version import __version__

FORMAT = 1
MANIFEST, SPANS, TRUTH = "manifest.json", "spans", "truth"
SYSTEMS = ("spans", *real.SYSTEMS)
TEMPLATES = "templates"
_ATTEMPTS = 40
_CHUNK = 8
"""Cases that a process takes at once."""
Progress = Callable[[int, int], None]
Execute = Callable[[Story], Run]


class BenchError(ValueError):
    """What was asked for cannot be done; the message says what is needed."""


class NotAdmitted(BenchError):
    """No attempt at a case shows its fault."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate. Cases are numbered: a larger number of cases keeps the first ones."""

    seed: int
    cases: int
    systems: tuple[str, ...] = SYSTEMS[:1]
    faults: tuple[str, ...] = CODES
    messages: tuple[int, int] = (20, 60)
    stories: str = TEMPLATES
    """`templates`, or a file of conversations."""

    def combinations(self) -> list[tuple[str, str, Wording]]:
        """Return system, fault and wording of one round of cases."""
        return [
            (system, code, wording)
            for system in self.systems
            for code in self.faults
            if system == "spans" or code in real.SYSTEMS[system].faults
            for wording in sorted(self._wordings(fault_of(code, Random(0))))
        ]

    def _wordings(self, fault: Fault) -> frozenset[Wording]:
        return fault.wordings if self.stories == TEMPLATES else _conversations(self.stories).wordings(fault)

    def story(self, rng: Random, wording: Wording, correction: bool | None, slip: bool) -> Story | None:
        """Return a story, None where the seed gives none."""
        low, high = self.messages
        length = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        if self.stories != TEMPLATES:
            return _conversations(self.stories).story(rng, length, wording, slip=slip)
        return make_story(rng, length, wording, correction=correction, slip=slip)

    def case(self, number: int) -> tuple[str, str, Wording]:
        """Return system, fault and wording of a case; the number tells nothing of the fault."""
        round = self.combinations()
        turn, place = divmod(number, len(round))
        Random(f"{self.seed}/{turn}").shuffle(round)
        return round[place]


@cache
def _conversations(path: str) -> Conversations:
    """Return the conversations of a file. Raises BenchError where the file has another shape."""
    try:
        return Conversations(Path(path))
    except (OSError, EOFError, KeyError, IndexError, TypeError, ValueError) as error:
        raise BenchError(f"{path} holds no conversations in the shape of LoCoMo: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Case:
    """A generated case: the request and what was planted."""

    id: str
    request: bytes
    truth: dict[str, Any]


def case_id(seed: int, number: int) -> str:
    """Return the name of a case, which tells nothing of its content."""
    return hashlib.sha256(f"{seed}/{number}".encode()).hexdigest()[:12]


def make_case(plan: Plan, number: int) -> Case:
    """Return the first admitted case of a number. Raises NotAdmitted when no attempt is admitted."""
    rejected: Counter[str] = Counter()
    system, code, wording = plan.case(number)
    for attempt in range(_ATTEMPTS):
        seed = f"{plan.seed}/{number}/{attempt}"
        rng = Random(seed)
        fault, actual = fault_of(code, rng), real.SYSTEMS.get(system)
        shape = Shape.ADDITIVE if actual else _shape(code, rng)
        story = plan.story(rng, wording, _correction(actual, fault, shape), fault.needs_slip)
        faulty = fault.plant(story, rng) if story else None
        if not story or not faulty or (actual and not actual.fits(faulty)):
            continue
        execute = _executing(system, shape, seed)
        clean = execute(story)
        if not (clean.right and clean.judged_right):
            rejected["wrong without the fault"] += 1
            continue
        run = execute(faulty)
        if reason := _refused(story, fault, execute, seed, clean, run):
            rejected[reason] += 1
            continue
        truth = {
            "case": case_id(plan.seed, number),
            "file": case_id(plan.seed, number),
            "number": number,
            "system": f"{system}/{shape}" if system == "spans" else system,
            "fault": code,
            **_verdict(story, fault, run),
            "answer": run.answering,
            "answer_is_right": run.right,
            "judged_right": run.judged_right,
            "wording": wording,
            "language": story.language,
            "template": story.template,
            "kind": story.kind,
            "corrected": story.corrected,
            "messages": len(story.turns),
            "rejected": dict(rejected),
        }
        return Case(str(truth["case"]), encode_request(run.spans()), truth)
    raise NotAdmitted(f"case {number} ({code}, {wording}): no attempt of {_ATTEMPTS} was admitted: {dict(rejected)}")


def _shape(code: str, rng: Random) -> Shape:
    """Return a shape that has the operation; what decides nothing cannot decide wrongly."""
    shape = rng.choice(list(Shape))
    return Shape.DECIDING if code == "U3" else shape


def _correction(actual: real.RealSystem | None, fault: Fault, shape: Shape) -> bool | None:
    first = fault.first if isinstance(fault, Two) else fault
    if actual:
        return first.needs_correction if actual.corrects else False
    if shape is Shape.ADDITIVE and first.step is Step.EXTRACT:
        return False  # there, the application corrects without an extraction
    return first.needs_correction


def _executing(system: str, shape: Shape, seed: str) -> Execute:
    """Return the function that runs a story on a system."""
    if system in real.SYSTEMS:
        return lambda story: real.execute(system, story, seed)
    return lambda story: System(story, shape, seed).run()


def _refused(story: Story, fault: Fault, execute: Execute, seed: str, clean: Run, run: Run) -> str:
    """Return why a case is not admitted, '' for an admitted one."""
    if clean.second_path:
        return "another record answers, too"
    if run.right != fault.answer_is_right:
        return "right with the fault" if run.right else "wrong, but the fault spares the answer"
    if run.judged_right != (fault.failure_type is None):
        return "the judge does not notice"
    if isinstance(fault, Two):
        for one in (fault.first, fault.second):
            if execute(one.plant(story, Random(seed))).right:
                return "one of two faults is harmless"
    return ""


def _verdict(story: Story, fault: Fault, run: Run) -> dict[str, Any]:
    """Return what a right verdict says: type, decisive operation, and the operations that are as right an answer."""
    place = fault.place(story)
    accepted = [run.origin(place)] if place else []
    if place and place.step in (Step.EXTRACT, Step.DECIDE, Step.WRITE):
        decided, written = (run.origins.get(Place(step, place.turn), "") for step in (Step.DECIDE, Step.WRITE))
        if place.step is not Step.EXTRACT or decided == accepted[0]:  # the write does what was decided
            accepted = [origin for origin in dict.fromkeys((*accepted, decided, written)) if origin]
    type = fault.failure_type
    told: dict[str, Any] = {"failure_type": str(type) if type else None, "operations": accepted}
    if isinstance(fault, Two):
        told["pair"] = [fault.first.code, fault.second.code]
        second = fault.second.failure_type
        told["second"] = str(second) if second else None
    return told


# --- files -------------------------------------------------------------------------------------------------------
def generate(
    plan: Plan,
    directory: Path,
    *,
    processes: int | None = None,
    progress: Progress = lambda d, t: None,
    left_out: Callable[[str], None] = lambda reason: None,
) -> int:
    """Write the cases that the directory lacks; return how many were written.

    A file of conversations may hold no story for a fault: `left_out` is told of each such case.

    Raises BenchError for a directory that holds something else, or cases of another plan, and where no fault applies.
    """
    if not plan.combinations():
        raise BenchError("no fault that was asked for applies to these systems and stories")
    for system in plan.systems:
        if system in real.SYSTEMS:
            real.check_installed(system)
    _claim(plan, directory)
    known = {path.stem for path in (directory / TRUTH).glob("*.json")}
    missing = [number for number in range(plan.cases) if case_id(plan.seed, number) not in known]
    done = plan.cases - len(missing)
    progress(done, plan.cases)
    workers = min(processes or os.cpu_count() or 1, max(1, len(missing) // _CHUNK))
    written = 0
    for reasons in _in_chunks(plan, directory, missing, workers):
        written += reasons.count("")
        progress(done := done + len(reasons), plan.cases)
        for reason in filter(None, reasons):
            left_out(reason)
    return written


def _in_chunks(plan: Plan, directory: Path, missing: Sequence[int], workers: int) -> Iterator[list[str]]:
    """Write the cases in processes; yield per chunk what `_write_case` returns for each."""
    if workers <= 1:
        yield from ([_write_case(plan, directory, number)] for number in missing)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        chunks = [pool.submit(_write_cases, plan, directory, chunk) for chunk in _chunks(missing)]
        try:
            yield from (chunk.result() for chunk in as_completed(chunks))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _claim(plan: Plan, directory: Path) -> None:
    """Write the manifest; of an earlier one only the number of cases may differ."""
    path = directory / MANIFEST
    wanted = {"format": FORMAT, "memtrace_otel": __version__, "python": platform.python_version()}
    wanted |= json.loads(json.dumps(asdict(plan)))
    if plan.stories != TEMPLATES:
        wanted["stories_sha256"] = hashlib.sha256(Path(plan.stories).read_bytes()).hexdigest()
    if path.exists():
        earlier = read_json(path)
        other = [
            name for name, value in wanted.items() if name not in ("cases", "python") and earlier.get(name) != value
        ]
        if other:
            raise BenchError(f"{directory} holds cases of another {', '.join(other)}; give another directory")
        wanted["cases"] = max(plan.cases, earlier["cases"])
    elif directory.exists() and any(directory.iterdir()):
        raise BenchError(f"{directory} is not empty and holds no {MANIFEST}; give another directory")
    for name in (SPANS, TRUTH):
        (directory / name).mkdir(parents=True, exist_ok=True)
        for part in (directory / name).glob(".*"):  # of a call that was killed
            part.unlink()
    write_file(path, (json.dumps(wanted, indent=1) + "\n").encode())


def _chunks(numbers: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(numbers)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _write_cases(plan: Plan, directory: Path, numbers: Sequence[int]) -> list[str]:
    return [_write_case(plan, directory, number) for number in numbers]


def _write_case(plan: Plan, directory: Path, number: int) -> str:
    """Write a case; return '', or why the conversations of the user hold no such case."""
    try:
        write_case(directory, make_case(plan, number))
    except NotAdmitted as error:
        if plan.stories == TEMPLATES:
            raise
        return str(error)
    return ""


def write_case(directory: Path, case: Case) -> None:
    """Write the spans of a case, then its truth."""
    write_file(directory / SPANS / f"{case.id}.pb.gz", gzip.compress(case.request, 1, mtime=0))
    write_file(
        directory / TRUTH / f"{case.id}.json", (json.dumps(case.truth, ensure_ascii=False, indent=1) + "\n").encode()
    )


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is never there in part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)


def read_json(path: Path) -> Any:
    """Return the value of a JSON file. Raises BenchError for a damaged file."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise BenchError(f"{path} is damaged: {error}") from None


def read_truths(directory: Path) -> list[dict[str, Any]]:
    """Return the truth of every case: generated, or the annotations of MemTraceBench files.

    Raises BenchError for another directory, InputError for annotations that cannot be read.
    """
    if (directory / MANIFEST).exists():
        truths = [read_json(path) for path in (directory / TRUTH).glob("[!.]*.json")]
        return sorted(truths, key=lambda truth: truth["number"])
    if not (truths := read_annotations(directory)):
        raise BenchError(f"{directory} holds neither generated cases nor annotated MemTraceBench files")
    return truths


def case_files(directory: Path) -> list[Path]:
    """Return the files of spans. Raises BenchError where there are none."""
    generated = (directory / MANIFEST).exists()
    paths = sorted((directory / SPANS).glob("[!.]*")) if generated else graph_files(directory)
    if not paths:
        raise BenchError(f"{directory} holds neither generated cases nor annotated MemTraceBench files")
    return paths


MEMORY_TYPES = (FailureType.EXTRACTION, FailureType.UPDATE, FailureType.DELETION, FailureType.RETRIEVAL,
                FailureType.RESPONSE)  # fmt: skip
