"""Labels as Google Takeout writes them into an mbox, in the language of the account."""

import csv

from bot.local.google.gmail_headers import decoded

_NAMES = """
INBOX: Inbox, Posteingang, Recibidos, Bandeja de entrada, Boîte de réception, Messages reçus,
 Posta in arrivo, Caixa de entrada, Postvak IN, Doručená pošta, Doručené, Odebrane, Входящие,
 受信トレイ
SENT: Sent, Sent Mail, Gesendet, Enviados, Enviado, Messages envoyés, Envoyés, Posta inviata,
 Inviata, Inviati, E-mails enviados, Verzonden, Verzonden berichten, Odeslaná pošta, Odeslané,
 Wysłane, Отправленные, 送信済みメール
DRAFT: Draft, Drafts, Entwürfe, Entwurf, Borrador, Borradores, Brouillon, Brouillons, Bozza,
 Bozze, Rascunho, Rascunhos, Concepten, Concept, Koncepty, Wersje robocze, Черновики, 下書き
SPAM: Spam, Junk, Junk-E-Mail, Correo no deseado, Courrier indésirable, Posta indesiderata,
 Spamu, Ongewenst, Спам, 迷惑メール
TRASH: Trash, Bin, Deleted, Papierkorb, Papelera, Corbeille, Cestino, Lixeira, Lixo, Prullenbak,
 Koš, Kosz, Корзина, ゴミ箱
UNREAD: Unread, Ungelesen, No leído, No leídos, Sin leer, Non lu, Non lus, Messages non lus,
 Da leggere, Non letto, Non letti, Não lido, Não lidos, Não lidas, Ongelezen, Nepřečtené,
 Nieprzeczytane, Непрочитанные, 未読
STARRED: Starred, Markiert, Destacado, Destacados, Suivis, Messages suivis, Suivi, Speciali,
 Speciale, Com estrela, Met ster, S hvězdičkou, Oznaczone gwiazdką, Помеченные, スター付き
IMPORTANT: Important, Wichtig, Importante, Importantes, Importanti, Belangrijk, Důležité, Ważne,
 Важное, 重要
CATEGORY_PERSONAL: Category Personal, Kategorie: Persönlich, Categoría: Personal,
 Catégorie: Personnel
CATEGORY_SOCIAL: Category Social, Kategorie: Soziale Netzwerke, Categoría: Social,
 Catégorie: Réseaux sociaux
CATEGORY_PROMOTIONS: Category Promotions, Kategorie: Werbung, Categoría: Promociones,
 Catégorie: Promotions
CATEGORY_UPDATES: Category Updates, Kategorie: Benachrichtigungen, Categoría: Notificaciones,
 Catégorie: Notifications
CATEGORY_FORUMS: Category Forums, Kategorie: Foren, Categoría: Foros, Catégorie: Forums
CHAT: Chat, Chats
-: Opened, Geöffnet, Abierto, Abiertos, Ouvert, Ouverts, Messages ouverts, Aperto, Aperti,
 Aberto, Abertos, Geopend, Otevřené, Otevřeno, Otwarte, Archived, Archiviert, Archivado,
 Archivados, Archivé, Archivés, Messages archivés, Archiviato, Archiviati, Arquivado,
 Gearchiveerd, Archivováno, Archivované, Zarchiwizowane
"""
"""System label: how Takeout names it. The last row holds what is no label of Gmail's."""


MAX_HEADER = 20_000
"""Characters of the header that are read."""


def _table() -> dict[str, str]:
    rows = (row.partition(":") for row in _NAMES.strip().replace("\n ", " ").splitlines())
    return {
        name.strip().casefold(): "" if label == "-" else label
        for label, _, names in rows
        for name in names.split(",")
    }


_LABELS = _table()


def takeout_labels(header: str) -> frozenset[str]:
    """The labels of an `X-Gmail-Labels`: ids of Gmail's own, names of the user's.

    Names with a comma are quoted, and the whole is in encoded words where it is not ASCII.
    """
    text = " ".join(decoded(header[:MAX_HEADER]).split())
    row = next(csv.reader([text], skipinitialspace=True), [])
    names = [name.strip() for name in row]
    return frozenset(_LABELS.get(name.casefold(), name) for name in names) - {""}
