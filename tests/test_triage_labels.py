"""The comparison with labels counts right: a table that flatters would be worse than none."""

import json
from pathlib import Path

from benchmarks.triage_labels import agreement_text, filtered, prefilter_text, triage_labels


def mbox(folder: Path) -> Path:
    """Four threads: ham, ham that is filtered, spam, and a newsletter without a label."""
    mails = [
        (10, "Inbox", "From: Bo <bo@corp.example>", "Subject: Lunch"),
        (11, "Inbox", "From: Bo <no-reply@corp.example>", "Subject: Wrongly"),
        (12, "Spam", "From: Dr. Lotto <lotto@prize.example>", "Subject: You won"),
        (13, "Inbox", "From: shop@acme.example", "List-Unsubscribe: <https://acme.example>"),
    ]
    path = folder / "mail.mbox"
    path.write_text(
        "".join(
            f"From {id}@xxx Mon Jan 06 09:00:00 +0000 2025\nX-GM-THRID: {id}\n"
            f"X-Gmail-Labels: {labels}\n{sender}\n{other}\nTo: ana@shop.example\n\nHello\n\n"
            for id, labels, sender, other in mails
        )
    )
    return path


LABELS = [
    {"thread_id": "10", "source": "spamassassin-tests", "label": "ham"},
    {"thread_id": "11", "source": "enron-labelled"},
    {"thread_id": "12", "source": "spamassassin-tests", "label": "spam"},
]


def test_threads_are_compared_with_their_labels(tmp_path: Path) -> None:
    threads = filtered(mbox(tmp_path), LABELS)
    assert [(each.kind, bool(each.reason), bool(each.by_headers)) for each in threads] == [
        ("ham", False, False),
        ("office", True, True),
        ("spam", True, False),
        ("no label", True, True),
    ]


def test_a_person_that_is_filtered_is_named_with_the_reason(tmp_path: Path) -> None:
    told = prefilter_text(filtered(mbox(tmp_path), LABELS)).splitlines()
    at = told.index("People's threads that are filtered: 1")
    assert told[at + 1].startswith("  from an address that takes no answers: 'Bo <no-reply@")
    assert "'Wrongly'" in told[at + 1]


def test_verdicts_are_compared_with_most_annotators_and_with_each() -> None:
    votes = {
        "a": [True, True, False],
        "b": [False, False, False],
        "c": [True, False, False],
        "d": [True, True, True],
    }
    text = agreement_text(votes, {"a": True, "b": True, "c": False}, "offline")
    assert text.splitlines() == [
        "asked_of_me, --model offline, 3 BC3 threads (1 without a verdict)",
        "  as most annotators: 2 of 3; to say always yes: 1",
        "  where they see a request: 1 of 1; where not: 1 of 2",
        "  as one annotator: 4 of 9; one annotator as another: 8 of 12",
    ]


def test_without_labels_it_says_that_nothing_was_measured(tmp_path: Path) -> None:
    assert triage_labels(mbox(tmp_path), "offline").startswith("Not measured: ")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "email_messages.json").write_text(json.dumps(LABELS))
    assert "labels" in triage_labels(tmp_path / "none.mbox", "offline")
