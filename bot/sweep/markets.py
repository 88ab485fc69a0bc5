"""Which market a channel or a row of a tracker is about, as far as its name says."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from scopes.clean import unified

EVERY: Final = frozenset({"all", "every", "global", "worldwide", "any", "alle", "todos", "tous"})

_NAMES: Final = """
at austria osterreich autriche
be belgium belgique belgie belgien belgica
ca canada kanada
ch switzerland swiss schweiz suisse svizzera suiza
cz czechia czech cesko tschechien tchequie
de germany deutschland german allemagne germania alemania
dk denmark danmark danemark
es spain espana spanish spanien espagne spagna
fi finland suomi
fr france french frankreich francia
gb uk britain england kingdom
ie ireland irland irlande
it italy italia italian italien italie
lu luxembourg luxemburg
mx mexico mexiko
nl netherlands nederland dutch holland niederlande
no norway norge norwegen
pl poland polska polen pologne
pt portugal portuguese
ro romania
se sweden sverige schweden
sk slovakia slovensko slowakei
us usa america states
"""
_CODES: Final = {
    word: line.split()[0] for line in _NAMES.strip().splitlines() for word in line.split()
}
_TOGETHER: Final = {
    "dach": frozenset({"de", "at", "ch"}),
    "benelux": frozenset({"be", "nl", "lu"}),
    "iberia": frozenset({"es", "pt"}),
    "nordics": frozenset({"dk", "fi", "no", "se"}),
}


def folded(text: str) -> str:
    """Lower case without accents, so that words of several languages can be compared."""
    plain = unified(text.replace("ß", "ss"), "NFKD")
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold()


@lru_cache(maxsize=1024)
def markets_in(name: str) -> frozenset[str]:
    """Codes of the countries that a name holds; none where it holds no word that is one."""
    words = re.findall(r"[^\W_]+", folded(name))
    found = {_CODES[word] for word in words if word in _CODES}
    return frozenset(found).union(*(_TOGETHER[word] for word in words if word in _TOGETHER))


def fits(market: str, channel: str) -> bool:
    """Whether what is about this market may be about what a channel of this name reports.

    Where one of them names no market that is known, nothing speaks against it.
    """
    if not market.strip() or EVERY & set(re.findall(r"[^\W_]+", folded(market))):
        return True
    theirs, ours = markets_in(market), markets_in(channel)
    return not theirs or not ours or bool(theirs & ours)
