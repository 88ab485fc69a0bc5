"""The JSON of a Slack export as pydantic models, each with the value it stands for."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bot.local.workspace import Channel, File, Message, Reaction, User


def _text(value: Any) -> Any:
    return "" if value is None else value


def _items(value: Any) -> Any:
    return () if value is None else value


def _shallow(value: Any, levels: int = 50) -> Any:
    """The value; ValueError when it is nested so deep that it could not be sent as JSON."""
    if levels == 0:
        raise ValueError("nested too deeply")
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, dict | list | tuple) else ():
        _shallow(part, levels - 1)
    return value


Text = Annotated[str, BeforeValidator(_text)]
Ts = Annotated[str, Field(pattern=r"^\d{1,12}\.\d{1,6}$")]
OptionalTs = Annotated[str, BeforeValidator(_text), Field(pattern=r"^(\d{1,12}\.\d{1,6})?$")]
Dicts = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_items), AfterValidator(_shallow)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ExportProfile(_Model):
    name: Text = ""
    real_name: Text = ""
    display_name: Text = ""
    title: Text = ""
    email: Text = ""

    def user(self, id: str) -> User:
        return User(id, self.name or id, self.real_name, self.display_name)


class ExportUser(_Model):
    id: str = Field(min_length=1)
    name: Text = ""
    real_name: Text = ""
    team_id: Text = ""
    tz: Text = ""
    is_bot: bool | None = False
    deleted: bool | None = False
    profile: ExportProfile | None = None

    def value(self) -> User:
        profile = self.profile or ExportProfile()
        return User(
            self.id,
            self.name or self.id,
            self.real_name or profile.real_name,
            profile.display_name,
            title=profile.title,
            email=profile.email,
            tz=self.tz or "Etc/UTC",
            is_bot=bool(self.is_bot),
            deleted=bool(self.deleted),
        )


class ExportNote(_Model):
    value: Text = ""


class ExportChannel(_Model):
    id: str = Field(min_length=1)
    name: Text = ""
    created: int | None = 0
    creator: Text = ""
    members: Annotated[tuple[str, ...], BeforeValidator(_items)] = ()
    topic: ExportNote | None = None
    purpose: ExportNote | None = None
    is_archived: bool | None = False
    is_general: bool | None = False

    def value(
        self, *, is_private: bool = False, is_im: bool = False, is_mpim: bool = False
    ) -> Channel:
        return Channel(
            self.id,
            self.name,
            members=self.members,
            topic=self.topic.value if self.topic else "",
            purpose=self.purpose.value if self.purpose else "",
            creator=self.creator,
            created=self.created or 0,
            is_private=is_private,
            is_im=is_im,
            is_mpim=is_mpim,
            is_archived=bool(self.is_archived),
            is_general=bool(self.is_general),
        )


class ExportReaction(_Model):
    name: str
    users: Annotated[tuple[str, ...], BeforeValidator(_items)] = ()
    count: int | None = None

    def value(self) -> Reaction:
        return Reaction(self.name, max(self.count or 0, len(self.users)), self.users)


class ExportFile(_Model):
    id: Text = ""
    name: Text = ""
    title: Text = ""
    mimetype: Text = ""
    filetype: Text = ""
    size: int | None = 0
    mode: Text = ""

    def value(self) -> File:
        return File(
            self.id,
            self.name,
            self.title,
            self.mimetype,
            self.filetype,
            self.size or 0,
            self.mode or "hosted",
        )


class ExportEdit(_Model):
    user: Text = ""
    ts: OptionalTs = ""


class ExportMessage(_Model):
    """A message, or the record of an edit (`message`) or of a deletion (`deleted_ts`)."""

    ts: Ts
    text: Text = ""
    user: Text = ""
    bot_id: Text = ""
    username: Text = ""
    team: Text = ""
    thread_ts: OptionalTs = ""
    subtype: Text = ""
    edited: ExportEdit | None = None
    reactions: Annotated[tuple[ExportReaction, ...], BeforeValidator(_items)] = ()
    files: Annotated[tuple[ExportFile | None, ...], BeforeValidator(_items)] = ()
    attachments: Dicts = ()
    blocks: Dicts = ()
    user_profile: ExportProfile | None = None
    message: "ExportMessage | None" = None
    deleted_ts: OptionalTs = ""

    def value(self) -> Message:
        edited: Mapping[str, str] = {}
        if self.edited:
            edited = {"edited": self.edited.ts or self.ts, "edited_by": self.edited.user}
        return Message(
            self.ts,
            self.text,
            self.user,
            self.bot_id,
            self.username,
            self.thread_ts,
            self.subtype,
            reactions=tuple(reaction.value() for reaction in self.reactions),
            files=tuple(file.value() for file in self.files if file),
            attachments=self.attachments,
            blocks=self.blocks,
            edited=edited.get("edited", ""),
            edited_by=edited.get("edited_by", ""),
        )
