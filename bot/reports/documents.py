"""The documents that a run ends with: the report of a sweep or a triage, and an answer.

They are what `--json` prints and what is stored of a run; `parse_document` reads a stored one.
Times are ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from bot.citations import CitedStatement
from config.words import phrase
from subagents.challenge import Agreement
from subagents.contracts import Grade, IssueState, Severity, Verdict
from subagents.result import Finding, SubagentResult

Change = Literal["new", "open", "changed", "solved", "reopened"]
Json = dict[str, Any]

STATUSES = ("complete", "partial", "failed", "cancelled", "refused")
"""How a part of a run can end."""


def _is_absent(value: object) -> bool:
    return value is None


class DocumentPart(BaseModel):
    """A document or a part of one, which becomes JSON in the order of its fields.

    The docstrings of fields are the tables of docs/json.md.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    def to_json(self) -> Json:
        return self.model_dump(mode="json", by_alias=True)


class Period(DocumentPart):
    """Messages of `[oldest, latest)` are counted."""

    oldest: str
    latest: str


class TokenUsage(DocumentPart):
    """Tokens of all model calls of a run."""

    input: int = 0
    """Of the prompts: neither read from the cache nor written to it."""
    output: int = 0
    """What was written, thinking included."""
    cache_read: int = 0
    """Of the prompts: read from the cache."""
    cache_write: int = 0
    """Of the prompts: written to the cache."""
    total: int = 0
    """All four together."""


class ReadTotals(DocumentPart):
    """Counts of what all subagents read."""

    items_read: int = 0
    """Everything that was shown: messages, earlier messages of their threads, list rows."""
    messages_read: int = 0
    """Messages inside the window."""
    threads_read: int = 0
    """Threads with such messages; a single message is one."""
    pages: int = 0
    """Pages of whole channels that were fetched with tools; a sweep hands most of them over."""
    sources_listed: int = 0
    """Files and mail threads that its tools listed."""
    sources_read: int = 0
    """How many of these it read or searched."""
    oldest: str | None = None
    """Time of the first of these messages, or null."""
    latest: str | None = None
    """Time of the last of these messages, or null."""
    complete: bool = False
    """Whether every message that the source holds in the window was read."""


class Gap(DocumentPart):
    """Something that was not read or not judged."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    reason: str
    """Why, in a sentence; where a subagent was stopped, in the words of the model or of the
    program."""
    source: str = ""
    """Channel, list or subject that it is about; empty: `reason` says it."""
    subagent: str | None = None
    """Whose gap it is; null: that of no subagent."""
    stopped_by: str | None = None
    """Why that subagent found no more; null: it reported the gap itself."""

    def about(self, source: str) -> Gap:
        """Return a copy with this source."""
        return self.model_copy(update={"source": source})


class RunCoverage(DocumentPart):
    """Counts of the parts of a run by their end, and what it does not cover."""

    items: int = 0
    """Channels that were planned, threads that were given to subagents, or subagents."""
    complete: int = 0
    """How many of them are complete."""
    partial: int = 0
    """How many ended in part."""
    failed: int = 0
    """How many failed."""
    cancelled: int = 0
    """How many were stopped."""
    refused: int = 0
    """How many were not run."""
    not_covered: list[Gap] = []
    """What was not read or not judged: a [gap](#gap) each."""
    read: ReadTotals | None = Field(default=None, exclude_if=_is_absent)
    """Of an answer: what all subagents read together."""
    looked_up: int | None = Field(default=None, exclude_if=_is_absent)
    """Of an answer: how many items the parent's own tools showed it."""
    unreached: int | None = Field(default=None, exclude_if=_is_absent)
    """Of a triage that was stopped: how many threads it had not reached."""
    left_out: int | None = Field(default=None, exclude_if=_is_absent)
    """How many of `not_covered` were left out by `--limit`; absent or 0: none."""

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is missing except for what `--limit` left out."""
        return len(self.not_covered) <= (self.left_out or 0)

    def outcomes(self) -> list[str]:
        """Return how many parts ended with each status, such as `2 failed`."""
        counts = ((int(getattr(self, each)), each) for each in STATUSES)
        return [f"{many:,} {status}" for many, status in counts if many]


class TrackerEntry(DocumentPart):
    """The row of the bug tracker for a finding."""

    status: str
    """`untracked`, `tracked` or `closed` (in the tracker, but still reported)."""
    key: str = ""
    title: str = ""
    stage: str = ""
    """Its status as written in the tracker, such as `in progress`; empty where it has none."""
    owner: str = ""
    """Who has it in the tracker, as written there."""
    link: str | None = None


NO_OWNER = "nobody"
"""The owner of an issue that nobody has taken."""


class SweepFinding(Finding):
    """A finding of a sweep with what earlier reports and the tracker know of it."""

    issue: str | None = None
    """Id by which later reports know it."""
    change: Change | None = None
    """What became of it since the last report; null where nothing did, or nothing is compared."""
    first: str | None = None
    """When the issue was opened."""
    age_days: int | None = None
    tracker: TrackerEntry | None = None
    absorbed: list[str] | None = Field(default=None, exclude_if=_is_absent)
    """Ids of earlier issues that are part of this one now."""
    joined: list[str] | None = Field(default=None, exclude_if=_is_absent)
    """Ids of other findings of the report that tell of the same issue; they stand only here."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Return its own id, and those of the findings joined with it."""
        return (self.id, *(self.joined or ()))


class SweepResult(SubagentResult):
    """The result of a subagent of a sweep."""

    findings: list[SweepFinding] = Field(default_factory=list)  # type: ignore[assignment]


class SweepSection(DocumentPart):
    """One channel's part of a sweep, from its own subagents only."""

    item: str
    """Name of the channel."""
    channel: str
    """Id of the channel."""
    window: Period | None = None
    """`oldest` and `latest` of this channel: it begins where a report last covered it."""
    subagents: list[str] = []
    """Ids of the subagents that read it; several where it would not fit into one."""
    status: str = "complete"
    """`complete`, `partial`, `failed` or `cancelled`."""
    summary: str = ""
    """What its subagents say in a sentence or two, or why there is nothing."""
    findings: list[SweepFinding] = []
    """A [Finding](#finding) each, ranked: what the team must act on, then `waiting`, `known`,
    `declined`, `solved`; within that by severity, customers, messages."""
    coverage: ReadTotals = ReadTotals()
    """What was read, below."""


class TopLine(DocumentPart):
    """One thing to do first; customers and messages are those of its findings together."""

    text: str
    findings: list[str] = []
    customers: int = 0
    messages: int = 0
    links: list[str] = []


class SharedPattern(DocumentPart):
    """A problem that several findings share."""

    text: str
    findings: list[str] = []
    markets: list[str] = []


class TrackerSummary(DocumentPart):
    """The bug tracker as it was read, and how many findings are in it."""

    id: str = ""
    title: str = ""
    status: str
    reason: str = ""
    """Why it was not read, or not whole."""
    read: int = 0
    untracked: int = 0
    tracked: int = 0
    closed: int = 0


class Comparison(DocumentPart):
    """The delivered reports that a report is compared with."""

    last: str = Field(validation_alias=AliasChoices("with", "last"), serialization_alias="with")
    """The end of the last report that was delivered."""
    reports: int
    """How many there were."""


class IssueCounts(DocumentPart):
    """Counts of issues that need action, and of issues by their change since the last report."""

    open: int = 0
    """Issues that need action, with those of `still_open`."""
    new: int = 0
    changed: int = 0
    solved: int = 0
    reopened: int = 0
    high: int = 0
    """How many of the open ones are of high severity."""
    urgent: int = 0
    """How many of the open ones are urgent: of high severity, or a day has passed or is near."""


class KnownIssue(DocumentPart):
    """An issue that is still open although the window shows nothing of it."""

    issue: str
    claim: str
    item: str
    severity: Severity
    state: IssueState
    """As it was last told."""
    owner: str
    first: str
    age_days: int
    """How many days ago."""
    links: list[str] = []


class RunDocument(DocumentPart):
    """The fields of the documents of all runs."""

    run_id: str
    """Id for `show` and `audit`; the first characters will do where they are unambiguous."""
    status: str
    """`complete`, `partial`, `failed` or `cancelled`."""
    model: str
    """`claude` or `offline`."""
    language: str = "en"
    """Code of the language in which it is written; quotes stay in their own."""
    coverage: RunCoverage
    """What was read and what not, below."""
    unsupported: int = 0
    """How many claims, ids and quotes were dropped because no source carries them."""
    usage: TokenUsage = TokenUsage()
    """Tokens of all calls, below."""
    cost_usd: float | None = None
    """Of all calls; with `offline` what they would have cost."""


class SweepReport(RunDocument):
    """A sweep of channels."""

    kind: Literal["sweep"] = "sweep"
    """`sweep`."""
    title: str = ""
    """Name of the schedule, or empty."""
    as_of: str
    """End of the window, exclusive."""
    window: Period
    """`oldest` and `latest`: messages of `[oldest, latest)` are counted, older ones of their
    threads are read as context."""
    zone: str = "UTC"
    """Time zone in which days are shown to its readers."""
    compared: Comparison | None = None
    """Null, or `with`: the end of the last report that was delivered, and `reports`: how many there
    were."""
    channels_added: list[str] = []
    """Names of channels that were not in the report before."""
    channels_gone: list[str] = []
    """Names of channels that are not in it any more."""
    notes: list[str] = []
    """Remarks made before it began, such as that the budget will not suffice; in
    sentences."""
    counts: IssueCounts = IssueCounts()
    """`open`: issues that need action, with those of `still_open`; `high` and `urgent` of them;
    `new`, `changed`, `solved`, `reopened`: findings with that `change`."""
    headline: TopLine | None = None
    """What the problems have in common, in the form of `top_lines`; null without such a line."""
    top_lines: list[TopLine] = []
    """What to do, the most pressing first, each with `text`, `findings` (ids), `links` (the first
    one of each finding), and `customers` and `messages` of those findings together, counted by
    code."""
    decisions: list[TopLine] = []
    """What only the reader can decide, in the form of `top_lines`."""
    patterns: list[SharedPattern] = []
    """Problems that several findings share: `text`, `findings` (ids), `markets` (names of
    channels)."""
    tracker: TrackerSummary | None = None
    """Null, or what was read of the bug tracker: `id`, `title`, `status`, `reason`, `read` (rows),
    and how many findings are `untracked`, `tracked` or `closed` in it but still reported."""
    sections: list[SweepSection]
    """One for each channel, below."""
    still_open: list[KnownIssue] = []
    """Known issues that need action and of which the window shows nothing: `issue`, `claim`,
    `item`, `severity`, `state`, `owner`, `first`, `age_days`, `links`."""
    label: Json = {}
    """Of all that it rests on, as in a [SubagentResult](#subagentresult): the gate decides by it
    where the report may stand."""
    subagents: list[SweepResult] = []
    """A [SubagentResult](#subagentresult) each."""

    @property
    def local_end(self) -> datetime:
        """Return the end of the window, on the clock of its readers."""
        return datetime.fromisoformat(self.window.latest).astimezone(ZoneInfo(self.zone))

    def findings(self) -> list[SweepFinding]:
        """Return the findings of all sections."""
        return [finding for section in self.sections for finding in section.findings]


class TriageLine(DocumentPart):
    """A line about threads of a mailbox."""

    text: str
    findings: list[str] = []
    threads: list[str] = []


class SharedTopic(DocumentPart):
    """Threads that are about one thing."""

    text: str
    threads: list[str] = []
    known: list[TriageLine] = []
    steps: list[TriageLine] = []


class ThreadVerdict(DocumentPart):
    """The verdict of a triage on one mail thread."""

    thread_id: str
    """Id of the thread."""
    subject: str
    """Its subject."""
    sender: str
    """Who wrote last."""
    writer: str = ""
    """Who of the others wrote last; a correction holds for their mails."""
    at: str | None = None
    """When its last mail came, or null."""
    link: str | None = None
    """To the thread in Gmail."""
    messages: int = 0
    """How many messages it has."""
    category: str
    """One of `triage.categories`."""
    priority: Severity
    """`high`, `medium` or `low`."""
    deadline: str | None = None
    """A date, or null."""
    asked_of_me: bool = False
    """Whether something is asked of the reader that is not done yet."""
    key_facts: list[str] = []
    """In the words of the mail; one whose figures or addresses are not in the thread is
    dropped."""
    proposed_action: str = ""
    """What to do."""
    draft_reply: str | None = None
    """A reply to begin with, or null."""
    evidence: list[str] = []
    """Ids of the messages that it rests on, `<thread>/<message>`."""
    flags: list[str] = []
    """What is odd about the mails, such as `has hidden text`."""
    not_read: list[str] = []
    """Mails of the thread that [could not be read](mail.md#what-cannot-be-read), or not whole: why,
    and whose; the same in `not_covered`."""
    finding: str | None = None
    """Id by which lines cite it; null where its evidence did not hold."""
    subagent: str
    """Who judged it."""
    status: str
    """How that ended."""


class FilteredThread(DocumentPart):
    """A thread that no model saw."""

    thread_id: str
    subject: str
    sender: str
    reason: str


class UnreadableThread(DocumentPart):
    """A thread without a verdict."""

    thread_id: str
    subject: str
    reason: str

    @property
    def gap(self) -> Gap:
        """Return the entry in `not_covered`."""
        return Gap(source=self.subject or phrase("digest.no_subject"), reason=self.reason)


class EarlierDigest(DocumentPart):
    """The last digest of a mailbox before this one."""

    run_id: str
    at: str
    """When it began to list the mailbox."""


class TriageReport(RunDocument):
    """A triage of a mailbox."""

    kind: Literal["triage"] = "triage"
    """`triage`."""
    mailbox: str
    """Address of the mailbox."""
    as_of: str
    """As above."""
    window: Period | None
    """As above."""
    top_lines: list[TriageLine] = []
    """What to do first, at most three: `text`, `findings` (ids), `threads` (ids)."""
    matters: list[SharedTopic] = []
    """Threads that are one matter: `text`, `threads`, `known` (what they say together, lines like
    those of `top_lines`), and `steps` (the next step of the first of its `threads`, with what the
    others answer). A thread is in one matter at most."""
    verdicts: list[ThreadVerdict]
    """Below, the newest thread first."""
    filtered: list[FilteredThread] = []
    """Threads that no model saw: `thread_id`, `subject`, `sender`, `reason`."""
    unreadable: list[UnreadableThread] = []
    """Threads without a verdict, such as those of which no mail could be read: `thread_id`,
    `subject`, `reason`."""
    unchanged_since: EarlierDigest | None = None
    """Null, or the last digest if no thread has anything new since: its `run_id`, and `at`, when it
    listed the mailbox."""
    zone: str = "UTC"
    """Time zone in which that time is shown to its reader."""
    subagents: list[SubagentResult] = []
    """As above."""

    @property
    def local_end(self) -> datetime:
        """Return the time of the triage, on the clock of its reader."""
        return datetime.fromisoformat(self.as_of).astimezone(ZoneInfo(self.zone))


class LookedUp(DocumentPart):
    """An item that the parent looked up itself."""

    item: str
    text: str
    author: str = Field(default="", exclude_if=_is_absent)
    """Who wrote it; absent where the source has no author."""
    at: str | None = Field(default=None, exclude_if=_is_absent)
    """When (ISO 8601, UTC); absent where the source has no time."""


class AnswerPart(DocumentPart):
    """The fields that a report has in addition if it answers a request in Slack."""

    stopped_by: str = "none"
    reason: str = ""
    passing: bool = False
    degraded: bool = False
    sessions: int = 1
    question: str = ""
    lead: str = ""
    """What the parent wrote above the report; the answer begins with it."""
    answer: str
    statements: list[CitedStatement] = []
    cited: int = 0
    links: dict[str, list[str]] = {}
    looked_up: dict[str, LookedUp] = {}


class SweepAnswer(AnswerPart, SweepReport):
    """A sweep that was asked for in Slack."""


class TriageAnswer(AnswerPart, TriageReport):
    """A triage that was asked for in Slack, or scheduled there."""

    label: Json = {}
    title: str | None = Field(default=None, exclude_if=_is_absent)
    notes: list[str] | None = Field(default=None, exclude_if=_is_absent)


class KeptFile(DocumentPart):
    """A file that goes with an answer."""

    name: str
    kind: str
    bytes: int
    version: int


class AnswerDocument(RunDocument):
    """An answer to a request."""

    kind: str = "ask"
    """`ask`, or `reminder` for one that was posted."""
    stopped_by: str = "none"
    """Why the parent stopped, as in a [SubagentResult](#subagentresult)."""
    reason: str = ""
    """The same in words."""
    passing: bool = False
    """Whether it stopped for what may be over later, such as a model that is overloaded."""
    question: str = ""
    """The request."""
    answer: str
    """The text, with citations such as `[F1.2]`; unknown ones are removed."""
    statements: list[CitedStatement] = []
    """Sentences of the answer: `text` without citations, and `findings` that it cites."""
    cited: int = 0
    """How many statements cite a finding, or what was looked up."""
    windows: list[Period] = []
    """`oldest` and `latest` of each window in which subagents read messages."""
    zone: str = "UTC"
    """Time zone in which the days of these are shown to the requester."""
    links: dict[str, list[str]] = {}
    """Finding id, for those that are cited, and its links."""
    places: dict[str, str] | None = Field(default=None, exclude_if=_is_absent)
    """Names of the channels that these links lead to, by id."""
    looked_up: dict[str, LookedUp] = {}
    """What the parent looked up itself and cites: `F0.1` (no subagent has the number 0) and the
    `item`'s own id with the beginning of its `text`; no quote of it was checked."""
    degraded: bool = False
    """One context read everything, because no subagent may be started: isolation is advisory."""
    label: Json = {}
    """Of all that went into the answer, as in a [SubagentResult](#subagentresult): the gate decides
    by it where the answer may stand."""
    sessions: int = 1
    """Sessions of the parent; more than 1 where it handed over."""
    subagents: list[SubagentResult] = []
    """As above."""
    files: list[KeptFile] | None = Field(default=None, exclude_if=_is_absent)
    """[files that the request has kept](resources.md), the newest version of each: `name`, `kind`
    (media type), `bytes`, `version`."""


class PanelVerdict(DocumentPart):
    """The opinion of one specialist on a finding of another, or its author's defence."""

    specialist: str
    verdict: Verdict
    evidence: str = ""
    """Words of the material, copied by code."""
    place: str = ""
    """Where they stand."""
    same_as: str = ""
    """Id of the finding that it is said to be a duplicate of."""


class PanelFinding(DocumentPart):
    """A finding of a panel, with what became of it."""

    id: str
    """`F<number of the subagent>.<number>`."""
    issue: str | None = None
    """Id by which a later panel on the same material knows it; null unless it is confirmed or
    disputed."""
    change: Literal["new", "remaining"] | None = None
    """Against the last panel on this material; null without one."""
    outcome: Literal["confirmed", "disputed", "dropped", "merged", "unjudged", "withheld"]
    """`merged`: into a finding that says the same. `unjudged`: too few verdicts. `withheld`: no
    other specialist was shown it."""
    reason: str = ""
    """Why it is withheld; of a merged one, the id of the finding that is kept."""
    category: str
    """One of the profile's."""
    severity: Grade
    """`critical`, `high`, `medium` or `low`; one lower than found where most judges weaken it."""
    confidence: float
    """0 to 1, as the specialist says; half of it where only one round found it, more where several
    specialists found it."""
    claim: str
    """Empty if it is withheld."""
    place: str
    """`file:line`, id of a message or of a part of a page."""
    quotes: list[str] = []
    """Words of the material, copied by code."""
    fix: str = ""
    """What to change; empty if it is withheld."""
    links: list[str] = []
    """To the place, if it has an address."""
    found_by: list[str] = []
    """Specialists who found it, each alone; the first one is its author."""
    rounds: int = 1
    """How many contexts of its author found it."""
    verdicts: list[PanelVerdict] = []
    """The last of each judge: `specialist`, `verdict` (`confirm`, `refute`, `weaken`, `duplicate`,
    `out_of_scope`), `evidence`, `place`, `same_as`."""
    defence: PanelVerdict | None = None
    """What its author says to objections; null if it was not asked."""


class FixedFinding(DocumentPart):
    """A finding of the last panel on this material that this one has not found again."""

    issue: str
    claim: str
    place: str
    severity: Grade
    category: str
    quoted: bool = False
    """Whether its words still stand in the material: then it may only have been missed."""


class PanelSpecialist(DocumentPart):
    """The work of one specialist."""

    name: str
    rounds: int = 0
    """How often it read all of the material."""
    stable: bool = False
    """Whether its last two rounds found the same."""
    findings: int = 0
    silent: int = 0
    """How many of its contexts gave no valid result, after one more chance each."""
    references: list[str] = []
    """What it judged by: `name@version`."""


class PanelMaterial(DocumentPart):
    """The material under review, counted by code."""

    name: str
    version: str
    """Hash of its text."""
    files: int = 0
    items: int = 0
    tokens: int = 0
    """Estimated."""
    parts: int = 0
    """Into how many it was split."""
    read: float = 0.0
    """Share of it, 0 to 1, that all specialists have read."""


class PanelPhase(DocumentPart):
    """The consumption of one phase of a panel."""

    name: Literal["read", "challenge", "report"]
    share_usd: float
    """What it might spend."""
    cost_usd: float | None = None
    tokens: int = 0
    contexts: int = 0
    rounds: int = 0
    stopped: Literal["", "budget", "rounds", "user"] = ""
    """What ended it before it was settled; empty if nothing did."""

    @property
    def is_cut(self) -> bool:
        """Return whether it ended early; its limit of rounds is its usual end."""
        return self.stopped not in ("", "rounds")


class PanelAlarm(DocumentPart):
    """Something that a specialist did and should not."""

    kind: str
    """`own_delimiter`, `other_delimiter`, `instruction`, `no_evidence` or `yes_to_all`."""
    specialist: str
    count: int = 1


class PanelReport(RunDocument):
    """A review by a panel of specialists."""

    kind: Literal["panel"] = "panel"
    """`panel`."""
    profile: str
    """Name of the profile."""
    profile_version: str
    """Hash of its prompts, references and affinities."""
    material: PanelMaterial
    """`name`, `version`, `files`, `items`, `tokens`, `parts`, and `read`: the share that all
    specialists have read."""
    as_of: str
    """When it began."""
    window: Period | None = None
    """Null."""
    degraded: bool = False
    """One context played all specialists, because only one could be paid: isolation is advisory,
    and nothing was cross-examined."""
    compared: str | None = None
    """When the last panel on this material ended; null without one."""
    top_lines: list[CitedStatement] = []
    """What to repair first, at most three: `text`, `findings` (ids)."""
    findings: list[PanelFinding]
    """Below: by outcome, then by severity."""
    fixed: list[FixedFinding] = []
    """Findings of earlier panels that were not found again: `issue`, `claim`, `place`, `severity`,
    `category`, and `quoted`: whether its words still stand there, so that it may only have been
    missed."""
    specialists: list[PanelSpecialist] = []
    """`name`, `rounds`, `stable`, `findings`, `silent`, `references`."""
    agreement: Agreement = Agreement()
    """`findings`, `unanimous`, `verdicts`, `alpha`."""
    alarms: list[PanelAlarm] = []
    """`kind`, `specialist`, `count`."""
    phases: list[PanelPhase] = []
    """`name`, `share_usd`, `cost_usd`, `tokens`, `contexts`, `rounds`, `stopped`."""
    label: Json = {}
    """As above."""
    subagents: list[SubagentResult] = []
    """As above."""


class PanelAnswer(AnswerPart, PanelReport):
    """A review that was asked for in Slack."""

    degraded: bool = False


Report = SweepReport | TriageReport | PanelReport
Answer = AnswerDocument | SweepAnswer | TriageAnswer | PanelAnswer
Document = SweepReport | TriageReport | PanelReport | AnswerDocument


def parse_document(stored: Mapping[str, Any]) -> Document:
    """Return the document of a stored run."""
    has_answer = "answer" in stored
    if "verdicts" in stored:
        return (TriageAnswer if has_answer else TriageReport).model_validate(stored)
    if stored.get("kind") == "panel":
        return (PanelAnswer if has_answer else PanelReport).model_validate(stored)
    if "sections" in stored:
        return (SweepAnswer if has_answer else SweepReport).model_validate(stored)
    return AnswerDocument.model_validate(stored)
