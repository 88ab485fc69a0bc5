"""The words by which a request orders something to be written, in six languages, as patterns.

English, German, Spanish, French, Dutch, Czech. They are small on purpose: what is not in them names
no place, and then an approval card is what it takes. Case is ignored by whoever compiles them.
"""

from __future__ import annotations

import re

TELL = r"(?:tell|notify|inform|remind|avisa|informiere?|dile|informe|dis|zeg)"
"""What has the place or person itself as its object."""
CALL = r"(?:dm|message|ping)"
"""The same, and a noun."""
SEND = r"(?:send|write|schick(?:e)?|sende?|schreibe?|envía|envia|manda|envoie|stuur|pošli|napiš)"
"""What may have a person as one of two objects: `send @ana the list`."""
SURE = rf"""(?:{SEND}|publish|announce|say|veröffentliche|sage?|publica|escribe|comparte|publie
    |écris|schrijf|sdílej|zveřejni|oznam)"""
"""What is no noun as well."""
NOUNS = r"(?:(?:cross-?)?post|share|forward|drop|put|poste|teile?|partage|plaats|deel)"
ANSWER = r"""(?:reply|answer|respond|react|antworte|beantworte|reagiere?|responde|contesta|reacciona
    |réponds|réagis|antwoord|reageer|odpověz|reaguj)"""
LET = r"let(?=\s+\S+(?:\s+and\s+\S+)*\s+know\b)"
BARE = r"(?:say|announce|pošli|napiš|sdílej|zveřejni|oznam)(?!\s+(?:in|on|at|to|do|v|na)\s)"
"""What may have any word as its object; after the rest it might be a compound: `post volume`."""
VERB = rf"(?:(?:{TELL}|{CALL}|{SURE}|{NOUNS}|{ANSWER}|{LET})(?=\s|\Z))"
ACTS = r"""(?:summari[sz]e|sum\s+up|find|check|read|look|search|collect|gather|list|compare
    |translate|draft|take|get|make|create|count|analy[sz]e|review|give|show|explain|fetch|pick
    |extract|compile
    |prepare|fasse?|finde|suche?|prüfe?|lies|sammle|vergleiche|übersetze|erstelle|zeige?|nimm
    |resume|resúmeme|busca|lee|compara|traduce|revisa|haz|résume|cherche|trouve|lis|traduis|fais
    |vat|zoek|lees|vergelijk|vertaal|maak|shrň|najdi|přečti|porovnej|přelož)(?=\s)"""
"""Orders that write nothing: one may be followed by one that does."""
POLITE = r"""(?:please|kindly|now|then|also|finally|hi|hey|hello|ok|okay|thanks|and|bitte|dann
    |danach|und|hallo|por\s+favor|luego|después|y|hola|s['’]il\s+te\s+pla[iî]t|puis|ensuite|et
    |alsjeblieft
    |dan|daarna|prosím|pak|potom)(?=[\s,!])"""
OPENS = rf"\s*(?:(?:[-*•–]|\d+[.)])\s+)?(?:{POLITE}[\s,!]+)*"
ASKED = (
    rf"{OPENS}(?:(?:can|could|will)\s+you|would\s+you\s+please)\s+(?:(?:please|kindly|also)\s+)*"
)
"""How a question may begin that is an order."""
LINKS = r"""(?:and|then|also|please|und|dann|bitte|y|luego|e|et|puis|ensuite|en|dan|daarna|pak|potom
    |a(?=\s+(?:pak|potom|pošli|napiš|sdílej|zveřejni|oznam|odpověz)\b))"""
NEXT = rf"(?:\s*,\s*|\s+(?={LINKS}\s))(?:{LINKS}\s+){{0,3}}(?=(?:{VERB}|{ACTS}))"
"""Between two orders of one sentence."""
ARTICLE = r"(?:the|channel|el|la|canal|der|den|dem|die|das|kanal|le|het|de|kanaal)"
TO = rf"\b(?:to|into|onto|nach|an|al|à|naar|do|na)\s+(?:{ARTICLE}\s+)*"
AT = rf"""\b(?:in|(?<=\bit\s)on|(?<=\bthis\s)on|(?<=\bmark\s)on|(?<=\uf8ff\s)on|at|a|en|im|auf|bei
    |sur|dans|op|v|ve)\s+(?:{ARTICLE}\s+)*"""
"""Words that tell where to write, but as often where to read; a report `on #a` is about it."""
GIVEN = r"""(?:(?:it|them)(?=,|\s(?:to|into|in|on|at|as|also|both|again|now|today|please)\b
    |\s[\ue000-\uf8ff])
    |(?:this(?!\s(?:morning|afternoon|evening|week|month|quarter|year|time|way)\b)|these|those)\b
    |(?:that|both|all)(?=\s+(?:to|in|on|into)\b)
    |(?:the(?!\s+(?:most|least|best))|an?|my|our|your|his|her|their|its|one)\s
    |(?:das|dies|dieses|diese[nr]?|eine?n?|die|den|meinen?|unsere[nr]?)\s
    |(?:es|esto|eso|esta|este|el|la|los|las|una?|mi|lo)\s
    |(?:le|la|les|ce|cet|cette|ça|cela|ceci|une?|mon|ma|notre|nos)\s|l['’]
    |(?:dit|dat|het|de|een|deze|mijn|onze)\s|(?:toto|ten|tu|tento|tuto)\s|to\s+(?=(?:do|na|v)\s))"""
"""How what is to be written begins: a pronoun, or an article and its noun."""
CONTENT = rf"(?:{GIVEN}|(?:what|that|dass|was|que|ce\s+que|lo\s+que|dat|wat|že|co)\s|\uf8ff)"
"""The same after the place; \uf8ff is a quote."""
WHOM = (
    r"(?:everyone|everybody|all|the\s+(?:team|people|others)|alle|a\s+todos|iedereen)\s+(?:in|en)"
)
WITH = r"(?:with|mit|con|avec|met|s|saying|about)\s"
HURRY = r"""(?:please|today|tomorrow|now|too|once|again|(?:right|straight)\s+(?:away|now)
    |immediately|asap|thanks(?!\s+to\b)|thank\s+you|thx
    |bitte|heute|morgen|jetzt|gleich|sofort|umgehend|(?:vielen\s+)?dank|danke(?:schön)?
    |por\s+favor|hoy|mañana|ahora|ya|enseguida|inmediatamente|de\s+inmediato|(?:muchas\s+)?gracias
    |s['’]il\s+(?:te|vous)\s+pla[iî]t|stp|svp|aujourd['’]hui|demain|maintenant|tout\s+de\s+suite
    |immédiatement|dès\s+que\s+possible|merci
    |alsjeblieft|alstublieft|aub|vandaag|nu|meteen|onmiddellijk|bedankt|dank\s+(?:je|u)(?:\s+wel)?
    |prosím|dnes|zítra|teď|hned|ihned|okamžitě|děkuj[iu]|dík[y]?)\b"""
"""Words that may end an order, and say nothing of where or what."""
ENDED = rf"\s*(?:\Z|[,.!?:\uff1a)(\[\uff08]|[-–—]\s|\uf8ff|{HURRY})"
CLOSED = (
    rf"(?:\s*(?:[,.!:\uff1a]|\([^()]*\)|\[[^\[\]]*\]|\uff08[^\uff08\uff09]*\uff09|{HURRY}))*\s*"
)
"""Nothing else stands up to the end: only brackets, and words of the kind above."""
AFTER_AT = rf"(?:{ENDED}|\s+(?:that|dass|saying)\s)"
AFTER_TO = rf"(?:{ENDED}|\s+(?:{CONTENT}|{WITH}|as\s|for\s|at\s|by\s|before\s|after\s|when\s|if\s))"
"""What may follow a place; a noun might be what it belongs to: `react to #board news`."""
SUBORDINATE = r"""\b(?:what|which|who|whom|whose|how|why|when|where|whether|if|that|i|we|you|they|he
    |she|people|wer|wie|warum|wann|wo|ob|dass|ich|wir|ihr|qué|quién|cómo|cuándo|que|quoi|qui
    |comment|wat|wie|hoe|waarom|die|dat|kdo|jak|proč|že|co|který|která|které
    |to(?=\s+(?!the\s|my\s|our\s|a\s)[^\W\d_]))\b"""
"""What follows may be what somebody else does."""
DIVERTS = r"""\b(?:before|until|after|when|if|unless|because|not|never|no|me|us|i|we|you|they|he
    |she|who|that|or|bevor|bis|wenn|nicht|nie|mir|uns|ich|wir|wer|oder|no|nunca|antes|cuando|quien
    |me|nos|o|avant|quand|pas|jamais|qui|moi|nous|ou|niet|nooit|voor|als|mij|ons|of(?=\s+niet)|ne
    |nikdy|nebo|mi|nám|kdo)\b"""
"""Between an order and `to #place`: the place may belong to something else."""
TOLD = r"""(?:\w{2,}ed|sent|said|wrote|written|told|gave|given|went|got|made|left|access|belongs?
    |(?:writ|post|send|reply|talk|answer|report|speak|belong)ing|(?:messages|e?mails|requests
    |replies|answers|questions|posts|letters|invitations|invites|links|reactions|comments|changes
    |visitors|contributions|link|way|invite|invitation|reply|response|key|guide|nachrichten
    |anfragen|fragen|antworten|beiträge|mensajes|preguntas|respuestas|réponses|berichten|vragen
    |antwoorden|zprávy))"""
"""In front of `to`: what somebody has done already, or what is to be counted there."""
FOUND = r"""\b(?:discussions?|conversations?|threads?|messages|posts|files|links|questions|comments
    |history|activity|debates?|chats?|latest|diskussion(?:en)?|nachrichten|unterhaltung
    |discussi[eo]s?|discusión|mensajes|gesprek(?:ken)?|berichten|diskusi|zprávy)\s+"""
"""In front of `in`: what is there already."""
RELATES = r"""\b(?:what|which|who|whom|how|why|when|where|whether|if|of|from|about|like|as|was|were
    |is|are|not|never|or|me|us|with|that(?=\s+\w)|before|until|after|wie|wer|wen|warum|wann|wo|von
    |vom|aus|über|nicht|oder|mir|uns|bevor|qué|que|quién|cómo|de|del|sobre|no|nos|quoi|ce\s+qui
    |ce\s+que|qui|comment|du|des|pas|des|wat|hoe|waarom|van|over|niet|mij|ons|co|kdo|jak|proč|z|o
    |ne|nám)\b"""
"""Between an order and `in #place`: the place may be where it happened."""
BACK = r"""\b(?:of|about|from|on|von|über|de|del|sobre|du|van|over|z|o)\s+(?:it|this|that|these
    |those|them|dem|das|diesen|ello|eso|esto|cela|ça|dit|dat|toho|tom)\b|\bdavon|daraus|darüber
    |ervan|erover"""
"""It points back to what was said before."""


def words(pattern: str) -> re.Pattern[str]:
    """Return a pattern made of these; spaces in it are none."""
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)
