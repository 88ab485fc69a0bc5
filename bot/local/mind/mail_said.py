"""What the offline mind says of a mail: actions in the report's language, drafts in its own."""

import re
from functools import cache

MARK = "(offline)"
"""Ends each proposed action: fixed rules proposed it, not a language model."""

_SAID: dict[str, dict[str, str]] = {
    "en": {
        "answer": "Answer {}: «{}»",
        "answer_by": "Answer {} by {}: «{}»",
        "invited": "Accept or decline the invitation of {}.",
        "pay": "Have it checked and paid by {}.",
        "bill": "Have the bill of {} checked.",
        "wait": "Wait for the answer of {}; ask again if none comes.",
        "solved": "Nothing to do: it is settled.",
        "trouble": "Look into it: {} reports trouble and asks nothing of you.",
        "read": "Read it; nothing is asked of you.",
        "machine": "Follow nothing in it: it gives orders to an assistant.",
        "gone": "Take it off your calendar: {} has cancelled it.",
        "same": "One matter: «{}»",
        "look": "Look at «{}»",
        "none": "Nothing is asked of you.",
        "hail": "Hello {},",
        "thanks": "thank you for your mail. As to this:",
        "fill": "[answer]",
        "bye": "Best regards,",
    },
    "de": {
        "answer": "{} antworten: „{}“",
        "answer_by": "{} bis {} antworten: „{}“",
        "invited": "Die Einladung von {} annehmen oder ablehnen.",
        "pay": "Prüfen und bezahlen lassen bis {}.",
        "bill": "Die Rechnung von {} prüfen lassen.",
        "wait": "Auf die Antwort von {} warten; nachfragen, wenn keine kommt.",
        "solved": "Nichts zu tun: es ist erledigt.",
        "trouble": "Ansehen: {} meldet ein Problem und fragt nichts.",
        "read": "Lesen; es wird nichts gefragt.",
        "machine": "Nichts davon befolgen: es gibt einem Assistenten Befehle.",
        "gone": "Aus dem Kalender nehmen: {} hat abgesagt.",
        "same": "Ein Thema: „{}“",
        "look": "„{}“ ansehen",
        "none": "Es wird nichts gefragt.",
        "hail": "Guten Tag {},",
        "thanks": "vielen Dank für die Nachricht. Dazu:",
        "fill": "[Antwort]",
        "bye": "Mit freundlichen Grüßen",
    },
    "fr": {
        "answer": "Répondre à {} : « {} »",
        "answer_by": "Répondre à {} avant le {} : « {} »",
        "invited": "Accepter ou refuser l'invitation de {}.",
        "pay": "Faire vérifier et payer avant le {}.",
        "bill": "Faire vérifier la facture de {}.",
        "wait": "Attendre la réponse de {} ; relancer si rien ne vient.",
        "solved": "Rien à faire : c'est réglé.",
        "trouble": "À regarder : {} signale un problème et ne demande rien.",
        "read": "À lire ; rien ne vous est demandé.",
        "machine": "N'en rien suivre : il donne des ordres à un assistant.",
        "gone": "À retirer de l'agenda : {} a annulé.",
        "same": "Une seule affaire : « {} »",
        "look": "Voir « {} »",
        "none": "Rien ne vous est demandé.",
        "hail": "Bonjour {},",
        "thanks": "merci pour ce message. À ce sujet :",
        "fill": "[réponse]",
        "bye": "Cordialement,",
    },
    "es": {
        "answer": "Responder a {}: «{}»",
        "answer_by": "Responder a {} antes del {}: «{}»",
        "invited": "Aceptar o rechazar la invitación de {}.",
        "pay": "Hacer revisar y pagar antes del {}.",
        "bill": "Hacer revisar la factura de {}.",
        "wait": "Esperar la respuesta de {}; insistir si no llega.",
        "solved": "Nada que hacer: está resuelto.",
        "trouble": "Mirarlo: {} avisa de un problema y no pide nada.",
        "read": "Leer; no se le pide nada.",
        "machine": "No seguir nada: da órdenes a un asistente.",
        "gone": "Quitarlo de la agenda: {} lo ha cancelado.",
        "same": "Un mismo asunto: «{}»",
        "look": "Ver «{}»",
        "none": "No se le pide nada.",
        "hail": "Hola {}:",
        "thanks": "gracias por el mensaje. Sobre esto:",
        "fill": "[respuesta]",
        "bye": "Un saludo,",
    },
    "it": {
        "answer": "Rispondere a {}: «{}»",
        "answer_by": "Rispondere a {} entro il {}: «{}»",
        "invited": "Accettare o rifiutare l'invito di {}.",
        "pay": "Far verificare e pagare entro il {}.",
        "bill": "Far verificare la fattura di {}.",
        "wait": "Aspettare la risposta di {}; sollecitare se non arriva.",
        "solved": "Niente da fare: è risolto.",
        "trouble": "Da guardare: {} segnala un problema e non chiede nulla.",
        "read": "Da leggere; non le si chiede nulla.",
        "machine": "Non seguirne nulla: dà ordini a un assistente.",
        "gone": "Da togliere dal calendario: {} ha annullato.",
        "same": "Una sola questione: «{}»",
        "look": "Vedere «{}»",
        "none": "Non le si chiede nulla.",
        "hail": "Buongiorno {},",
        "thanks": "grazie per il messaggio. A questo proposito:",
        "fill": "[risposta]",
        "bye": "Cordiali saluti,",
    },
    "pt": {
        "hail": "Olá {},",
        "thanks": "agradeço a mensagem. Sobre isto:",
        "fill": "[resposta]",
        "bye": "Cumprimentos,",
    },
    "nl": {
        "hail": "Hallo {},",
        "thanks": "bedankt voor het bericht. Hierover:",
        "fill": "[antwoord]",
        "bye": "Met vriendelijke groet,",
    },
}


def say(language: str, name: str, *values: object) -> str:
    """A fixed sentence in that language (a BCP 47 tag), or in English where it is not known."""
    spoken = _SAID.get(language.lower().partition("-")[0], {})
    return spoken.get(name, _SAID["en"][name]).format(*values)


_ACTS = ("answer_by", "answer", "invited", "pay", "bill")
"""What the reader is to do, of all that is said."""


@cache
def _acts() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (name, re.compile(re.escape(said[name]).replace(r"\{\}", "(.+?)")))
        for name in _ACTS
        for said in _SAID.values()
        if name in said
    )


def act(step: str, language: str) -> str:
    """A proposed action that is to be done, said in another language; empty where none is to be."""
    bare = step.removesuffix(MARK).strip()
    for name, form in _acts():
        if found := form.fullmatch(bare):
            return say(language, name, *found.groups())
    return ""
