"""What Slack refuses of files: who may not read them, and uploads that are not as announced."""

import html

from starlette.responses import Response

from bot.local.slack.files import find
from bot.local.slack.state import Call, Identity, SlackError, SlackState


def login_page(state: SlackState, identity: Identity | None, place: str) -> Response | None:
    """The page to log in on, with status 200, for who has no right to a file."""
    found = find(state, place.partition("-")[2])
    if identity and not (found and not state.may_see(identity.user, found[1])):
        return None
    name = html.escape(state.team.name)
    page = f"<!DOCTYPE html><html><head><title>Sign in to {name} | Slack</title></head></html>"
    return Response(page, 200, media_type="text/html")


def refused_upload(state: SlackState, id: str, content: bytes) -> Response | None:
    """The answer to bytes that nobody announced, or other ones; the address says whose they are."""
    upload = state.uploads.get(id)
    if upload is None or upload.completed:
        return Response("Not Found", 404, media_type="text/plain")
    if len(content) != upload.length:
        return Response("Bad Request", 400, media_type="text/plain")
    return None


def completed(call: Call) -> None:
    """Refuse files that the caller has not sent, and those that are shown: each is shown once."""
    asked = call.objects("files")
    uploads = [call.state.uploads.get(str(each.get("id"))) for each in asked]
    ours = [u for u in uploads if u and u.content and u.user == call.identity.user]
    if not asked or len(ours) < len(asked) or any(u.completed for u in ours):
        raise SlackError("file_not_found" if asked else "invalid_arguments")
    if not call.text("channel_id"):
        raise SlackError("channel_not_found")  # a private file is of no use to the product
