"""All tables, the refusal to change the log of decisions, and the full-text indexes."""

from __future__ import annotations

from alembic import op

from bot.storage.tables import METADATA

revision = "0019"
down_revision = None

APPEND_ONLY_ERROR = "the log of decisions is append-only"

SQLITE = f"""
CREATE TRIGGER decisions_no_update BEFORE UPDATE ON decisions
BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY_ERROR}'); END;;

CREATE TRIGGER decisions_no_delete BEFORE DELETE ON decisions
BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY_ERROR}'); END;;

CREATE VIRTUAL TABLE notes_search
USING fts5(title_words, words, content='notes', content_rowid='id', tokenize='ascii');;

CREATE TRIGGER notes_search_insert AFTER INSERT ON notes BEGIN
INSERT INTO notes_search (rowid, title_words, words) VALUES (new.id, new.title_words, new.words);
END;;

CREATE TRIGGER notes_search_delete AFTER DELETE ON notes BEGIN
INSERT INTO notes_search (notes_search, rowid, title_words, words)
VALUES ('delete', old.id, old.title_words, old.words);
END;;

CREATE TRIGGER notes_search_update AFTER UPDATE OF title_words, words ON notes BEGIN
INSERT INTO notes_search (notes_search, rowid, title_words, words)
VALUES ('delete', old.id, old.title_words, old.words);
INSERT INTO notes_search (rowid, title_words, words) VALUES (new.id, new.title_words, new.words);
END;;

CREATE VIRTUAL TABLE conversations_search
USING fts5(words, content='conversations', content_rowid='id', tokenize='ascii');;

CREATE TRIGGER conversations_search_insert AFTER INSERT ON conversations BEGIN
INSERT INTO conversations_search (rowid, words) VALUES (new.id, new.words);
END;;

CREATE TRIGGER conversations_search_delete AFTER DELETE ON conversations BEGIN
INSERT INTO conversations_search (conversations_search, rowid, words)
VALUES ('delete', old.id, old.words);
END
"""
"""The words are split and cleaned already, so the plainest tokenizer does. The words of a
conversation are never changed."""

POSTGRESQL = f"""
CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION '{APPEND_ONLY_ERROR}'; END $$;;

CREATE TRIGGER decisions_no_change BEFORE UPDATE OR DELETE ON decisions
FOR EACH ROW EXECUTE FUNCTION append_only();;

CREATE TRIGGER decisions_no_truncate BEFORE TRUNCATE ON decisions
FOR EACH STATEMENT EXECUTE FUNCTION append_only();;

ALTER TABLE notes ADD COLUMN search tsvector GENERATED ALWAYS AS (
setweight(to_tsvector('simple', title_words), 'A') || to_tsvector('simple', words)) STORED;;

CREATE INDEX notes_by_word ON notes USING gin (search);;

ALTER TABLE conversations ADD COLUMN search tsvector
GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED;;

CREATE INDEX conversations_by_word ON conversations USING gin (search)
"""


def upgrade() -> None:
    bind = op.get_bind()
    METADATA.create_all(bind)
    for statement in (SQLITE if bind.dialect.name == "sqlite" else POSTGRESQL).split(";;"):
        bind.exec_driver_sql(statement)
