"""What is wrong with the settings, said in sentences that name the key."""

import difflib
import re
import reprlib
from collections.abc import Iterator
from typing import TypeGuard, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from config.schedules import DESTINATION, LIST_ID, SCHEDULE
from config.sections import (
    ASKER,
    HOST,
    LANGUAGE,
    PUBLIC_URL,
    SUBSCRIPTION,
    TOPIC,
    URL,
    USER_ID,
)
from config.tools import DATASET, POSTGRES, READER, SOURCE_NAME

_PATTERNS = {
    URL: "an address that begins with http:// or https://",
    PUBLIC_URL: "an https:// address (http:// on this machine only) without ? and #",
    LANGUAGE: "a language code such as en or pt-BR",
    USER_ID: "a Slack user id such as U0123ABCD",
    SCHEDULE: "small letters, digits and hyphens, 40 at most, such as markets or daily-mail",
    DESTINATION: "dm (to its owner), #channel or the id of one (C...), or a mail address",
    SOURCE_NAME: "small letters, digits, - and _, a letter first, 40 at most, such as sales",
    READER: "`members` or a user id such as U0123ABCD",
    POSTGRES: "an address that begins with postgresql://",
    DATASET: "a project and a dataset such as my-project.events",
    HOST: "the name of a host such as example.com",
    TOPIC: "a topic such as projects/my-project/topics/mail",
    SUBSCRIPTION: "a subscription such as projects/my-project/subscriptions/mail",
    LIST_ID: "the id of a Slack list (F...)",
    ASKER: "members, guests, external, or the id of a user (U...) or of a user group (S...)",
}
"""What a text must be that has to match a pattern."""


class SettingsError(Exception):
    """Settings that cannot be used; the text tells the user what to change."""


def explain(error: ErrorDetails, valid: type[BaseModel]) -> str:
    """One sentence about one error of a settings file whose keys should be those of `valid`."""
    key = key_of(error)
    if error["type"] in ("extra_forbidden", "invalid_key"):
        return _unknown_key(key, valid)
    if error["loc"][-1] == "[key]":
        return f"the key '{key_of(error)}' {expectation(error)}."
    if error["type"] == "missing":
        return f"'{key}' is missing."
    if error["type"] == "value_error":
        return f"'{key}': {error['ctx']['error']}."
    return f"'{key}' is {reprlib.repr(error['input'])}, but it {expectation(error)}."


def expectation(error: ErrorDetails) -> str:
    """What was expected, as the end of a sentence that begins with the key."""
    if error["type"] in ("model_type", "dict_type"):
        return "must be a section with keys below it"
    if error["type"] == "string_pattern_mismatch":
        return f"must be {_PATTERNS.get(error['ctx']['pattern'], 'written otherwise')}"
    said = re.sub("^(Input|Tuple) should", "must", error["msg"]).split(" after validation")[0]
    return said.replace("a valid string", "text in quotes").replace("a valid tuple", "a list")


def key_of(error: ErrorDetails) -> str:
    """What stands in brackets is no key but a kind: `[key]`, or `[list]` of a choice of two."""
    return ".".join(str(part) for part in error["loc"] if not str(part).startswith("["))


def _unknown_key(key: str, valid: type[BaseModel]) -> str:
    last = key.rsplit(".", 1)[-1].lower()
    if key.startswith("secrets") or last.endswith(("api_key", "token", "password", "secret")):
        return (
            f"unknown key '{key}'. Secrets are read only from the environment or .env, "
            "never from this file: take it out."
        )
    known = list(_keys(valid, key.split(".")))
    near = difflib.get_close_matches(key, known, n=1) or [
        k for k in known if k.endswith(f".{last}")
    ]
    if near:
        return f"unknown key '{key}'. Did you mean '{near[0]}'?"
    return f"unknown key '{key}'. config/default.yaml lists the valid ones."


def _keys(section: type[BaseModel], given: list[str], above: str = "") -> Iterator[str]:
    """All keys of a section; below one whose keys are names, those that go with the given name."""
    for name, field in section.model_fields.items():
        yield f"{above}{name}"
        if _is_section(field.annotation):
            yield from _keys(field.annotation, given[1:], f"{above}{name}.")
        for below in filter(_is_section, get_args(field.annotation)[1:]):
            if given[:1] == [name] and len(given) > 2:
                yield from _keys(below, given[2:], f"{above}{name}.{given[1]}.")


def _is_section(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
