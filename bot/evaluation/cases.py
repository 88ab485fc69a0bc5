"""The cases of a suite: questions, their sources, and the right answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from bot.citations import CITATION_PATTERN
from bot.errors import SetupError
from bot.mailbox.accounts import OPERATOR
from bot.mailbox.corrections import Correction, Corrections
from bot.options import RunSources
from bot.reports.documents import (
    AnswerDocument,
    PanelReport,
    SweepReport,
    TriageReport,
    parse_document,
)
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.requests import BAD, GOOD, Rating, RequestQueue
from bot.storage.tables import StoredRun
from config.settings import key_of
from subagents.contracts import NEEDS_ACTION, IssueState, Severity
from subagents.result import Finding

FILE = "cases.yaml"
"""Name of the file of cases in a folder."""
Task = Literal["ask", "sweep", "triage", "review"]
T = TypeVar("T")
Alternatives = str | tuple[str, ...]
"""A text, or several alternative texts."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path: a relative one begins at the folder of the suite."""
    return path if info.context is None else info.context / path


SourcePath = Annotated[Path, AfterValidator(_from_folder)]
SourcePaths = Annotated[
    tuple[SourcePath, ...], BeforeValidator(lambda v: [v] if isinstance(v, str | Path) else v)
]
"""One or several."""
DateText = Annotated[str, BeforeValidator(lambda v: v.isoformat() if isinstance(v, date) else v)]
"""A day or time as text, although YAML parses it."""


class Sources(RunSources, extra="forbid", frozen=True):
    """The sources of a case, named as the options of `assistant ask` and `assistant triage`."""

    slack_export: SourcePath | None = None
    mbox: SourcePath | None = None
    folder: SourcePath | None = None
    databases: SourcePaths = Field(
        default=(),
        validation_alias=AliasChoices("database", "databases"),
        serialization_alias="database",
    )
    me: str | None = Field(
        default=None,
        validation_alias=AliasChoices("reader", "me"),
        serialization_alias="reader",
    )
    as_of: DateText = ""


class Expected(_Part):
    """The right outcome; each given key must match."""

    state: IssueState | None = None
    """State of the thread `item`. Only whether it needs action is compared."""
    asked: bool | None = None
    """Whether the mail thread `item` asks its reader for something."""
    needs_reader: bool | None = None
    """Whether it is urgent or asks its reader for something."""
    filtered: bool | None = None
    """Whether the filter withholds it from the model, like spam and newsletters."""
    priority: Severity | None = None
    category: str | None = None
    rows: tuple[tuple[Any, ...], ...] | None = None
    """Values that an answer must contain as separate words: `9` is not in `19`."""
    says: tuple[Alternatives, ...] = ()
    """Texts that an answer, or one finding of a review, must contain; case does not matter."""
    omits: tuple[str, ...] = ()
    """Texts that an answer must not contain."""
    cites: tuple[str, ...] = ()
    """Ids of items that an answer must cite."""
    denied: int | None = None
    """Maximum number of tool calls that the gate denies."""

    @model_validator(mode="after")
    def _not_empty(self) -> Expected:
        if not self.model_fields_set:
            raise ValueError("nothing is expected")
        return self

    @property
    def needed(self) -> bool | None:
        """Return the answer to a yes-or-no question; None if the case has another question."""
        if self.state is not None:
            return self.state in NEEDS_ACTION
        answers = (self.asked, self.needs_reader, self.filtered)
        return next((each for each in answers if each is not None), None)


class Job(_Part):
    """One run of the assistant; several cases may share one."""

    task: Task = "ask"
    sources: Sources = Sources()
    question: str = ""
    channels: tuple[str, ...] = ()
    """Of a sweep: names or globs."""
    material: SourcePath | None = None
    """Of a review."""
    profile: str = "code"
    """Of a review."""


class Case(Job):
    """A question with its right answer."""

    id: str
    item: str = ""
    """`channel/ts` of the first message of a thread in Slack; or id of a mail thread."""
    note: str = ""
    """For people."""
    expected: Expected

    @model_validator(mode="after")
    def _complete(self) -> Case:
        needs = {"ask": "question", "sweep": "channels", "review": "material"}.get(self.task)
        if needs and not getattr(self, needs):
            raise ValueError(f"a case of the task {self.task} needs {needs}")
        if self.task in ("sweep", "triage") and not self.item:
            raise ValueError(f"a case of the task {self.task} needs item")
        return self

    @property
    def job(self) -> Job:
        return Job(**{name: getattr(self, name) for name in Job.model_fields})


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that are evaluated together."""

    name: str
    cases: tuple[Case, ...]

    @property
    def jobs(self) -> list[Job]:
        return list(dict.fromkeys(case.job for case in self.cases))


def load_folder(folder: Path, name: str = "") -> Suite:
    """Load the suite of a folder. Raises SetupError."""
    path = folder / FILE
    if not path.is_file():
        raise SetupError(
            "no_cases", f"{folder} has no {FILE}.", "docs/evaluation.md shows what it holds."
        )
    cases = list(_cases(path, folder))
    twice = [case.id for n, case in enumerate(cases) if case.id in {c.id for c in cases[:n]}]
    if twice or not cases:
        what = f"the id {twice[0]!r} twice" if twice else "no case"
        raise SetupError("bad_cases", f"{path} holds {what}.", "Each case has an id of its own.")
    return Suite(name or folder.absolute().name, tuple(cases))


def _cases(path: Path, folder: Path | None = None) -> Iterator[Case]:
    try:
        read = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise SetupError("bad_cases", f"{path} cannot be read: {why}.", "") from None
    for number, each in enumerate(read if isinstance(read, list) else [read], 1):
        try:
            yield Case.model_validate(each, context=folder)
        except ValidationError as error:
            raise SetupError("bad_cases", _fault(path, number, each, error), "") from None


def _fault(path: Path, number: int, case: object, error: ValidationError) -> str:
    """Return the first fault of a case, as a sentence."""
    first = error.errors()[0]
    key = key_of(first)
    label = case.get("id", number) if isinstance(case, dict) else number
    if first["type"] == "extra_forbidden":
        return f"The case {label} in {path} has the unknown key {key!r}."
    what = first["msg"].removeprefix("Value error, ")
    return f"The case {label} in {path} is wrong: {f'{key}: ' if key else ''}{what}."


def write_cases(cases: Sequence[Case], folder: Path) -> Path:
    """Add cases to the file of a folder; a case replaces an earlier one with the same id."""
    path = folder / FILE
    by_id = {case.id: case for case in _cases(path)} if path.is_file() else {}
    by_id |= {case.id: case for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    plain = [
        case.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for case in by_id.values()
    ]
    text = yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, width=100)
    path.write_text(text, "utf-8")
    return path


SUITES_FOLDER = Path(__file__).parent / "suites"
STATES_WINDOW = "30d"
"""Window of the labelled states."""
PEOPLE, SPAM = ("ham", "discussion", "office"), "spam"
KINDS = {"bc3": "discussion", "enron-labelled": "office"}
"""Source of a mail -> its kind; others are labelled one by one."""


def suite_of(name: str, data: Path | None) -> Suite:
    """Return the suite of this name, or that of a folder. Raises SetupError."""
    if reader := READERS.get(name):
        if data is None:
            what = f"The suite {name} reads labelled data."
            raise SetupError("no_data", what, "Give its folder: --data FOLDER.")
        return Suite(name, tuple(reader(data)))
    if (SUITES_FOLDER / name).is_dir() and "/" not in name:
        return load_folder(SUITES_FOLDER / name, name)
    if Path(name).is_dir():
        return load_folder(Path(name))
    names = ", ".join([*READERS, *sorted(each.name for each in SUITES_FOLDER.iterdir())])
    raise SetupError(
        "unknown_suite", f"There is no suite {name!r}.", f"Give a folder, or one of: {names}."
    )


class _Stats(BaseModel):
    as_of: str


class _StateLabel(BaseModel):
    """A thread of the export, and its state if its readers agree."""

    id: str
    state: IssueState | None
    agreed: bool


class _Annotator(BaseModel):
    speech_acts: dict[str, Any]


class _MailLabel(BaseModel):
    """A mail or a thread of mails, and its labels by people."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    thread_id: str
    source: str = ""
    label: str | None = None
    annotators: list[_Annotator] = []


class _Question(BaseModel):
    """A question to a database, and its answer."""

    db: str
    question: str
    as_of: str | None
    answer: tuple[tuple[Any, ...], ...]


def states(data: Path) -> Iterator[Case]:
    """Yield the threads of an export whose readers agree on their state."""
    export = _file(data, "slack_export.zip")
    day = _read(data, "STATS.json", _Stats).as_of
    sources = Sources(slack_export=export, as_of=day, since=STATES_WINDOW)
    every = _read(data, "labels/support_states.json", list[_StateLabel])
    labels = sorted((each for each in every if each.agreed), key=lambda label: label.id)
    channels = tuple(sorted({each.id.partition("/")[0] for each in labels}))
    for each in labels:
        yield Case(
            id=each.id,
            task="sweep",
            sources=sources,
            channels=channels,
            item=each.id,
            expected=Expected(state=each.state),
        )


def read_request_cases(data: Path) -> Iterator[Case]:
    """Yield the threads in which people marked requests; the majority decides."""
    for thread, is_asked in _requests(data).items():
        yield _mail(data, thread, Expected(asked=is_asked))


def triage(data: Path) -> Iterator[Case]:
    """Yield those threads and the spam, to test what a reader should see first."""
    spam = [id for id, kind in _kinds(data).items() if kind == SPAM]
    for thread, needed in {**_requests(data), **dict.fromkeys(spam, False)}.items():
        yield _mail(data, thread, Expected(needs_reader=needed))


def filter_(data: Path) -> Iterator[Case]:
    """Yield mails by people, which no filter may withhold, and spam."""
    for thread, kind in _kinds(data).items():
        if kind in (*PEOPLE, SPAM):
            yield _mail(data, thread, Expected(filtered=kind == SPAM))


def sql(data: Path) -> Iterator[Case]:
    """Yield questions to a database with the rows that answer them."""
    path = _file(data, "business.duckdb")
    for number, each in enumerate(_read(data, "labels/sql_gold.json", list[_Question]), 1):
        today = f" Today is {each.as_of}." if each.as_of else ""
        yield Case(
            id=f"{each.db}/{number}",
            sources=Sources(databases=(path,)),
            question=f"In the schema {each.db}: {each.question}{today}",
            expected=Expected(rows=each.answer),
        )


READERS: Mapping[str, Callable[[Path], Iterator[Case]]] = {
    "states": states,
    "triage": triage,
    "asked": read_request_cases,
    "filter": filter_,
    "sql": sql,
}
"""Name of a suite -> function that reads its cases from a folder of labelled data."""


def _mail(data: Path, thread: str, expected: Expected) -> Case:
    sources = Sources(mbox=_file(data, "mail.mbox"))
    return Case(id=thread, task="triage", sources=sources, item=thread, expected=expected)


def _requests(data: Path) -> dict[str, bool]:
    """Return thread -> whether most annotators marked a request in it."""
    found = {}
    for each in _read(data, "labels/email_bc3_summaries.json", list[_MailLabel]):
        votes = [bool(one.speech_acts.get("req")) for one in each.annotators]
        found[each.thread_id] = sum(votes) * 2 > len(votes)
    return dict(sorted(found.items()))


def _kinds(data: Path) -> dict[str, str]:
    """Return thread -> kinds of its mails; empty if nobody labelled them."""
    every = _read(data, "labels/email_messages.json", list[_MailLabel])
    found = {each.thread_id: KINDS.get(each.source) or each.label or "" for each in every}
    return dict(sorted(found.items()))


def _file(data: Path, name: str) -> Path:
    path = data / name
    if not path.is_file():
        raise SetupError("no_data", f"There is no {path}.", "docs/evaluation.md names the files.")
    return path


def _read(data: Path, name: str, kind: type[T]) -> T:
    path = _file(data, name)
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors()[0].get("msg")
        raise SetupError("bad_data", f"{path} is wrong: {why}.", "") from None


# ---- cases from stored runs: what people rated, and what they corrected in a digest

MAX_RATINGS = 10_000
"""Number of latest ratings searched for those of the run."""


async def cases_of_run(database: Database, run_id: str, rating: str | None) -> list[Case]:
    """Return cases from the ratings and corrections of a run. Raises SetupError without any."""
    run = await Store(database).run(run_id)
    if run.result is None:
        raise SetupError("no_result", f"The run {run.id} has no result.", "Take another run.")
    ratings = [r for r in await RequestQueue(database).ratings(MAX_RATINGS) if r.run == run.id]
    document = parse_document(run.result)
    rating = rating or _rating(ratings)
    if isinstance(document, TriageReport):
        corrections = await Corrections(database).all(run.requester or OPERATOR)
        cases = list(_triage_cases(run, document, corrections, rating))
    elif rating is None:
        hint = "Say whether it was: --as good, or --as bad."
        raise SetupError("not_rated", f"Nobody has rated the run {run.id}.", hint)
    elif isinstance(document, SweepReport):
        cases = list(_sweep_cases(run, document)) if rating == GOOD else []
    elif isinstance(document, PanelReport):
        cases = list(_panel_cases(run, document)) if rating == GOOD else []
    else:
        cases = list(_answer_cases(run, document, rating, _note(ratings)))
    if not cases:
        what = f"Nothing in the run {run.id} says what would have been right."
        raise SetupError("no_case", what, "Write the case by hand: docs/evaluation.md.")
    return cases


def _rating(ratings: Sequence[Rating]) -> str | None:
    """Return the majority rating; None without ratings or with a tie."""
    votes = Counter(each.value for each in ratings)
    if votes[GOOD] == votes[BAD]:
        return None
    return GOOD if votes[GOOD] > votes[BAD] else BAD


def _note(ratings: Sequence[Rating]) -> str:
    """Return the reasons from people."""
    reasons = [": ".join(filter(None, (each.reason, each.comment))) for each in ratings]
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _answer_cases(
    run: StoredRun, document: AnswerDocument, rating: str, note: str
) -> Iterator[Case]:
    """Yield the question: require the sources of a good answer, exclude the text of a bad one."""
    items = cited_items(document)
    expected = Expected(cites=tuple(items))
    if rating == BAD:
        sentences = [CITATION_PATTERN.sub("", each.text).strip() for each in document.statements]
        expected = Expected(omits=tuple(sentences) or (document.answer,))
    if rating == BAD or items:
        job = Job(question=run.question, sources=_sources(run))
        yield _case(run, job, run.id, "", expected, note)


def _sweep_cases(run: StoredRun, document: SweepReport) -> Iterator[Case]:
    """Yield each thread with its state."""
    channels = tuple(run.args.get("channels") or [s.item for s in document.sections])
    job = Job(task="sweep", channels=channels, sources=_sources(run))
    for section in document.sections:
        for finding in section.findings:
            for thread in finding.threads or finding.evidence[:1]:
                item = f"{section.item}/{thread.partition('/')[2]}"
                yield _case(run, job, item, item, Expected(state=finding.state))


def _panel_cases(run: StoredRun, document: PanelReport) -> Iterator[Case]:
    """Yield each confirmed finding, which is recognized by its quote."""
    material = Path(str(run.args["source"]))
    job = Job(task="review", material=material, profile=document.profile)
    for each in document.findings:
        if each.outcome == "confirmed" and each.quotes:
            expected = Expected(says=(each.quotes[0],))
            yield _case(run, job, f"{run.id}/{each.id}", "", expected, each.claim)


def _triage_cases(
    run: StoredRun, document: TriageReport, corrections: Sequence[Correction], rating: str | None
) -> Iterator[Case]:
    """Yield the corrected threads; for a good digest also all others."""
    job = Job(task="triage", sources=_sources(run))
    for verdict in document.verdicts:
        fixed = {c.field: c.value for c in reversed(corrections) if c.thread == verdict.thread_id}
        right: dict[str, Any] = dict(fixed)
        if rating == GOOD:
            right = {"asked_of_me": verdict.asked_of_me, "priority": verdict.priority} | right
        if (is_asked := right.pop("asked_of_me", None)) is not None:
            right |= {"asked": str(is_asked).lower() == "true"}
        if right:
            id = verdict.thread_id
            yield _case(run, job, id, id, Expected(**right), verdict.subject)


def _case(run: StoredRun, job: Job, id: str, item: str, expected: Expected, note: str = "") -> Case:
    note = note or f"from the run {run.id}"
    return Case(**dict(job), id=id, item=item, expected=expected, note=note)


def _sources(run: StoredRun) -> Sources:
    """Return the sources of the run; only its day if it read the live workspace."""
    arguments = RunSources.model_validate(run.args)
    of_files = arguments.sample or arguments.slack_export
    as_of = arguments.as_of or run.started.isoformat()
    as_user = arguments.as_user if of_files else None
    return Sources(**{**dict(arguments), "as_of": as_of, "as_user": as_user})


def cited_items(document: AnswerDocument) -> list[str]:
    """Return the ids of the items that an answer cites, each once."""
    findings = {f.id: f for result in document.subagents for f in result.findings}
    ids = [id for statement in document.statements for id in statement.findings]
    items = [item for id in ids if id in findings for item in items_of(findings[id])]
    items += [document.looked_up[id].item for id in ids if id in document.looked_up]
    return list(dict.fromkeys(items))


def items_of(finding: Finding) -> list[str]:
    """Return the ids of the items and threads that a finding is about."""
    return [*finding.evidence, *finding.threads]
