"""A frozen brief as JSON and back: a subagent goes on with it in another process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scopes.intent import UNASKED, Intent
from scopes.label import Label
from scopes.tool import Handles, Item, Window, iso
from subagents.brief import Brief, BriefDraft, Frozen


def frozen_json(frozen: Frozen, made: datetime) -> dict[str, Any]:
    """What is stored of a spawned brief; the prompts and schemas lie with its template version."""
    brief, window = frozen.brief, frozen.brief.window
    return {
        "id": frozen.id,
        "made": iso(made),
        **brief.draft.model_dump(mode="json"),
        "handles": dict(brief.handles.titles),
        "given_handles": list(brief.draft.handles),
        "early": sorted(brief.handles.early),
        "window": str(window) if window else None,
        "share": [iso(at) if at else None for at in (window.opened_from, window.opened_before)]
        if window
        else None,
        "language": brief.language,
        "label": brief.label.to_json(),
        "requester": brief.requester,
        "beside": brief.beside,
        "intent": brief.intent.to_json(),
        "finding_lines": list(brief.findings),
        "material": [item.to_json() for item in brief.material],
        "expects": {source: list(ids) for source, ids in brief.expects.items()},
        "fence": frozen.fence,
        "model": frozen.model,
        "template": frozen.template,
        "parent": frozen.parent,
        "seconds": frozen.seconds,
        "spare": frozen.spare,
    }


def frozen_of(stored: Mapping[str, Any], template: Mapping[str, Any]) -> Frozen:
    """The frozen brief that `frozen_json` gave, with the `{system, tools}` of its template."""
    draft = {name: stored[name] for name in BriefDraft.model_fields}
    brief = Brief(
        draft=BriefDraft.model_validate({**draft, "handles": stored["given_handles"]}),
        handles=Handles(stored["handles"], frozenset(stored.get("early", ()))),
        window=_window(stored),
        label=Label.of(stored["label"]),
        language=stored["language"],
        findings=tuple(stored["finding_lines"]),
        material=tuple(map(Item.of, stored["material"])),
        expects={source: tuple(ids) for source, ids in stored["expects"].items()},
        requester=stored["requester"],
        beside=bool(stored.get("beside")),
        intent=Intent.of(stored["intent"]) if stored.get("intent") else UNASKED,
    )
    return Frozen(
        brief=brief,
        system=tuple(template["system"]),
        tools=tuple(template["tools"]),
        id=stored["id"],
        fence=stored["fence"],
        model=stored["model"],
        template=stored["template"],
        parent=stored["parent"],
        seconds=float(stored["seconds"]),
        spare=float(stored["spare"]),
    )


def _window(stored: Mapping[str, Any]) -> Window | None:
    if not stored["window"]:
        return None
    ends = [*stored["window"].split(" to "), *stored["share"]]
    return Window(*(datetime.fromisoformat(at) if at else None for at in ends))  # type: ignore[arg-type]
