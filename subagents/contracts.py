"""The contracts: one pydantic model for each kind of result that a subagent may hand back.

Their docstrings and field names are read by the model; every word costs tokens in each subagent.
"""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

IssueState = Literal["unanswered", "unsolved", "waiting", "known", "declined", "solved", "none"]
Severity = Literal["high", "medium", "low"]

NEEDS_ACTION: Final = ("unanswered", "unsolved")
"""States in which the team has to act next."""
RESTING_STATES: Final = ("waiting", "known", "declined", "solved")
"""States of issues in which it does not, by how soon it may have to."""

Text = Annotated[str, Field(max_length=12_000)]
MAX_SHORT_TEXT_CHARS = 600
"""Characters of a short text; up to five times as many are cut, since asking again costs more."""
MAX_CLAIM_CHARS = 1_000
"""Characters of a claim, whose end often holds the amounts."""


def _cut(value: Any, most: int = MAX_SHORT_TEXT_CHARS) -> Any:
    if isinstance(value, str) and most < len(value) <= 5 * MAX_SHORT_TEXT_CHARS:
        return value[: most - 1] + "…"
    return value


ShortText = Annotated[str, BeforeValidator(_cut), Field(max_length=MAX_SHORT_TEXT_CHARS)]
Claim = Annotated[
    str, BeforeValidator(partial(_cut, most=MAX_CLAIM_CHARS)), Field(max_length=MAX_CLAIM_CHARS)
]
Ids = Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=500)]


def _check_day(day: str) -> str:
    return day and date.fromisoformat(day).isoformat()


Day = Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\d)?$"), AfterValidator(_check_day)]


class Contract(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FindingDraft(Contract):
    claim: Claim
    state: IssueState = "none"
    severity: Severity = "low"
    severity_reason: ShortText = ""
    owner: ShortText = ""
    next_step: ShortText = ""
    customers: list[ShortText] = Field(default_factory=list, max_length=100)
    evidence: Ids
    quotes: list[ShortText] = Field(default_factory=list, max_length=20)


class IssueDraft(FindingDraft):
    wants: ShortText = ""
    deadline: Day = ""


class Submission(Contract):
    """The fields of every contract."""

    not_covered: list[ShortText] = Field(default_factory=list, max_length=100)
    needs: ShortText = ""

    def drafts(self) -> list[FindingDraft]:
        """Return the claims as findings that are still to be checked."""
        return []


class FindingsContract(Submission):
    """A contract whose claims are findings."""

    findings: list[FindingDraft] = Field(default_factory=list, max_length=500)

    def drafts(self) -> list[FindingDraft]:
        return self.findings


class IssuesContract(FindingsContract):
    """Every thread that was read, in one finding or in no_issue."""

    summary: Text
    no_issue: Ids = Field(default_factory=list)
    findings: list[IssueDraft] = Field(default_factory=list, max_length=500)  # type: ignore[assignment]


class AnswerContract(FindingsContract):
    text: Text


class TableContract(FindingsContract):
    columns: list[ShortText] = Field(max_length=50)
    rows: list[list[ShortText]] = Field(max_length=500)
    text: Text = ""


class TrackedRow(Contract):
    id: Annotated[str, Field(max_length=300)]
    key: ShortText = ""
    title: ShortText
    status: Literal["open", "closed"]
    market: ShortText = ""
    closed: Day = ""
    stage: ShortText = ""
    owner: ShortText = ""


class TrackerContract(Submission):
    rows: list[TrackedRow] = Field(max_length=500)


class TriageVerdict(Submission):
    category: ShortText
    priority: Severity
    deadline: Day = ""
    asked_of_me: bool
    key_facts: list[ShortText] = Field(max_length=20)
    proposed_action: ShortText
    draft_reply: Text = ""
    evidence: Ids

    def drafts(self) -> list[FindingDraft]:
        """Return one finding: what the thread is about, resting on the messages that it names."""
        claim = self.key_facts[0] if self.key_facts else self.proposed_action
        if not claim:
            return []
        step = self.proposed_action
        return [
            FindingDraft(
                claim=claim, severity=self.priority, next_step=step, evidence=self.evidence
            )
        ]


Grade = Literal["critical", "high", "medium", "low"]
Verdict = Literal["confirm", "refute", "weaken", "duplicate", "out_of_scope"]


class ReviewFinding(Contract):
    """A finding of one specialist about the material under review."""

    id: Annotated[str, Field(max_length=20)] = ""
    category: ShortText
    severity: Grade
    confidence: Annotated[float, Field(ge=0, le=1)]
    claim: ShortText
    place: ShortText
    """`file:line`, id of a message, or number of a clause."""
    quotes: list[ShortText] = Field(default_factory=list, max_length=5)
    fix: ShortText = ""


class OpinionDraft(Contract):
    """A judge's opinion of one finding."""

    finding: Annotated[str, Field(max_length=20)]
    verdict: Verdict
    evidence: ShortText = ""
    duplicate_of: Annotated[str, Field(max_length=20)] = ""


class ReviewContract(Submission):
    """The findings of a specialist; none is a result, too."""

    points: list[ReviewFinding] = Field(max_length=100)

    def drafts(self) -> list[FindingDraft]:
        """Return the points as findings that rest on the item of their place, in their order,
        without their quotes: `supported_points` has checked these, in all of the material."""
        return [
            FindingDraft(
                claim=each.claim,
                severity="high" if each.severity == "critical" else each.severity,
                next_step=each.fix,
                evidence=[each.place],
            )
            for each in self.points
        ]


class VerdictsContract(Submission):
    """A judge's opinions of the findings of others, each by its id."""

    verdicts: list[OpinionDraft] = Field(max_length=200)


CONTRACTS: Final[dict[str, type[Submission]]] = {
    "issues": IssuesContract,
    "triage": TriageVerdict,
    "tracker": TrackerContract,
    "answer": AnswerContract,
    "table": TableContract,
    "draft": AnswerContract,
    "review": ReviewContract,
    "verdicts": VerdictsContract,
}

PARENT_CONTRACTS: Final = ("answer", "issues", "table", "draft")
"""Contracts that a parent may ask for. The others need material that only the program adds to a
brief: `triage` the names of the categories, `tracker` the rows, `review` and `verdicts` what is
under review."""

DEFAULT_MODEL: Final = {
    "issues": "fast",
    "triage": "fast",
    "tracker": "fast",
    "answer": "fast",
    "table": "main",
    "draft": "main",
    "review": "main",
    "verdicts": "main",
}
"""Model of a contract if the brief prefers none: fast for reading, main for composing."""


def prose(value: Submission) -> str:
    """Return the running text of a submission, whatever its contract calls it."""
    if isinstance(value, TrackerContract):
        return f"{len(value.rows)} rows."
    if isinstance(value, ReviewContract):
        return f"{len(value.points)} findings."
    if isinstance(value, VerdictsContract):
        return f"{len(value.verdicts)} verdicts."
    for name in ("summary", "text", "proposed_action"):
        if text := getattr(value, name, ""):
            return str(text)
    return ""
