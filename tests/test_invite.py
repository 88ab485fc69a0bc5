"""Calendar invitations are summarized as facts; broken ones raise nothing."""

from gmail_kit import reduced_text
from hypothesis import given, settings
from hypothesis import strategies as st

from scopes.extraction.invite import invitation

REQUEST = """BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY:Budget\\, part 2\\; with a title that is fo
 lded
DTSTART;TZID=Europe/Berlin:20250106T100000
DTEND;TZID="Europe/Berlin":20250106T113000
LOCATION:Room 1\\nsecond floor
ORGANIZER;CN="Ann Roe; CFO":mailto:ann@x.example
ATTENDEE;PARTSTAT=NEEDS-ACTION;CN="Bo: B":mailto:bo@x.example
ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:cy@x.example
RRULE:FREQ=WEEKLY;COUNT=4
BEGIN:VALARM
SUMMARY:Alarm
ATTENDEE:mailto:nobody@x.example
END:VALARM
END:VEVENT
END:VCALENDAR
"""


def test_invitation_text_states_title_times_place_organiser_and_count() -> None:
    assert invitation(REQUEST.encode()) == (
        "Calendar invitation: Budget, part 2; with a title that is folded; "
        "from 2025-01-06 10:00 (Europe/Berlin, 2025-01-06 09:00 UTC) "
        "to 2025-01-06 11:30 (Europe/Berlin, 2025-01-06 10:30 UTC); repeats weekly; "
        "place: Room 1 second floor; organised by Ann Roe; CFO <ann@x.example>; "
        "2 people are invited."
    )


def test_mail_shows_an_invitation_once_and_lists_attachments() -> None:
    raw = f"""Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=b

--b

Please come.
--b
Content-Type: text/calendar; method=REQUEST

{REQUEST}
--b--
--m
Content-Type: text/calendar; name=invite.ics
Content-Disposition: attachment; filename=invite.ics

{REQUEST}
--m--"""
    read = reduced_text(raw.encode())
    first, second = read.body.split("\n\n")
    assert first == "Please come."
    assert second.startswith("Calendar invitation: Budget")
    assert [(a.name, a.type) for a in read.attachments] == [("invite.ics", "text/calendar")]


PIECES = st.sampled_from(
    ["BEGIN:VEVENT", "END:VEVENT", "BEGIN:", "END:", "DTSTART", ";TZID=", "20250106T", "DURATION:P",
     "RRULE:FREQ=", "ORGANIZER;CN=", '"', ":", ";", "\\", "\r\n", "\n ", "9" * 50, "\u202e"]
)  # fmt: skip


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=40))
def test_broken_invitations_do_not_raise(pieces: list[str]) -> None:
    text = invitation("".join(pieces).encode(errors="replace"))
    assert len(text) < 3_000
    assert "\n" not in text
