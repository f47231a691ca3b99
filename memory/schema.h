/*
 * The history's schema, and the steps that lead to it from every earlier version.
 *
 *      conversation ◄──────── message ◄──────── message_tokens   (message, render id) → token ids
 *        owner                  │  ▲ parent: a plain column
 *        title, metadata        └──┘
 *        activity             ◄──────── turn                     what the answer cost
 *          ▲                    ▲
 *          ├──── response ──────┘                                /v1/responses: resp_… → its answer
 *          ├──── block_use                                       what the cache keeps for it: ids
 *          ├──── path_saved                                      rows of its path, when it is long
 *          └──── conversation_savings, conversation_miss         sums over its turns, for life
 *
 *      owner_savings, owner_miss                       the same for all of an owner's turns
 *      reply_owner ◄─ reply                            stateless chats: chain hash → generated ids
 *
 *      message_fts, search_state                       full text: a row a message (memory/index.c)
 *
 *      conversation ◄─ cut                             what left its window, and the head instead
 *                   ◄─ pin ─► message                  what must not leave
 *      message ◄─ message_context ◄─ context_source    text put before its words; who is quoted
 *
 *      block_gone                                      what was deleted, and the cache still has
 *
 *      arrows are cascading keys: a deleted conversation takes all of it along
 *
 * A conversation's messages form a tree:
 *
 *      1 user ── 2 assistant ── 3 user ── 4 assistant
 *                           ╰── 5 user ── 6 assistant    an edit of 3; the newest row (6) is the
 *                                                        tip: the conversation reads 1 2 5 6
 *
 * `parent` is no key: SQLite would walk it by recursion when a conversation is deleted (limit
 * 1,000), and check it row by row (3 s for 10,000). CHECK (parent < row) makes a loop impossible;
 * that the parent is of the same conversation is checked by messages.c. Rows are AUTOINCREMENT: a
 * deleted row's number never comes back, so that an answer that ends after its conversation was
 * deleted can't reach another.
 *
 * Text is TEXT bound with its length; it may hold NULs. Token ids are int32, little-endian. Times
 * are seconds since 1970. `activity` is a counter per owner: who was used last, without ties.
 */
#ifndef HEARTH_MEMORY_SCHEMA_H
#define HEARTH_MEMORY_SCHEMA_H

#define SCHEMA_APPLICATION_ID 0x48727468 /* "Hrth": the file is a history of ours */

/* Sums over turns, step 3. What was cached is cached_ram + cached_disk. */
#define SCHEMA_SUM_NAMES                                                                           \
    " turns, prompt_tokens, completion_tokens, cached_ram, cached_disk, cached_shared,"            \
    " computed_tokens, restore_us, prefill_us, saved_us"
#define SCHEMA_SUMS                                                                                \
    " turns INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,"                                     \
    " completion_tokens INTEGER NOT NULL, cached_ram INTEGER NOT NULL,"                            \
    " cached_disk INTEGER NOT NULL, cached_shared INTEGER NOT NULL,"                               \
    " computed_tokens INTEGER NOT NULL, restore_us INTEGER NOT NULL, prefill_us INTEGER NOT NULL," \
    " saved_us INTEGER NOT NULL"
#define SCHEMA_SUMS_OF_TURNS                                                                       \
    " count(*), sum(t.prompt_tokens), sum(t.completion_tokens), sum(t.cached_ram),"                \
    " sum(t.cached_disk), sum(t.cached_shared), sum(t.computed_tokens), sum(t.restore_us),"        \
    " sum(t.prefill_us), sum(t.saved_us)"

/* The full-text index (memory/index.c), as step 4 and each rebuilding make it. Columns of one row
 * are filled by words of letters, digits and U+E000: the categories that are no separators. */
#define SCHEMA_SEARCH                                                                              \
    "CREATE VIRTUAL TABLE message_fts USING fts5 (scope, terms,"                                   \
    " tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'\");"

/* Step i leads from user_version i to i + 1, in one transaction. A step is never edited once
 * released; append. */
static const char *const schema_steps[] = {
    /* 1 */
    "CREATE TABLE conversation ("
    "  row INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  title TEXT NOT NULL DEFAULT ''," /* '' : derived from the first user message when read */
    "  metadata TEXT NOT NULL DEFAULT '{}',"
    "  is_hidden INTEGER NOT NULL DEFAULT 0," /* made by a response that named no conversation */
    "  activity INTEGER NOT NULL,"
    "  created_at INTEGER NOT NULL,"
    "  updated_at INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX conversation_by_activity ON conversation (owner, is_hidden, activity);"

    "CREATE TABLE message ("
    "  row INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    /* 0: a first message */
    "  parent INTEGER NOT NULL DEFAULT 0 CHECK (parent >= 0 AND parent < row),"
    "  role INTEGER NOT NULL CHECK (role BETWEEN 1 AND 3),"     /* enum memory_role */
    "  status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 4)," /* enum memory_status */
    "  finish TEXT NOT NULL DEFAULT '',"
    "  model TEXT NOT NULL DEFAULT '',"
    "  created_at INTEGER NOT NULL,"
    "  text TEXT NOT NULL" /* last: the other columns are read without its overflow pages */
    ") STRICT;"
    "CREATE INDEX message_by_conversation ON message (conversation);"
    "CREATE INDEX message_by_parent ON message (parent) WHERE parent > 0;"
    "CREATE INDEX message_generating ON message (row) WHERE status = 1;"

    "CREATE TABLE message_tokens ("
    "  message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,"
    "  render BLOB NOT NULL,"
    "  ids BLOB NOT NULL,"
    "  PRIMARY KEY (message, render)"
    ") STRICT;"

    "CREATE TABLE turn ("
    "  answer INTEGER PRIMARY KEY REFERENCES message ON DELETE CASCADE,"
    "  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,"
    "  cached_tokens INTEGER NOT NULL, cached_ram INTEGER NOT NULL, cached_disk INTEGER NOT NULL,"
    "  cached_shared INTEGER NOT NULL, computed_tokens INTEGER NOT NULL,"
    "  queue_us INTEGER NOT NULL, restore_us INTEGER NOT NULL, prefill_us INTEGER NOT NULL,"
    "  ttft_us INTEGER NOT NULL, decode_us INTEGER NOT NULL, saved_us INTEGER NOT NULL,"
    "  miss_reason TEXT, finish TEXT NOT NULL"
    ") STRICT;"

    "CREATE TABLE response ("
    "  row INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  owner TEXT NOT NULL,"
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  answer INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,"
    "  first_input INTEGER NOT NULL," /* its input: the path above the answer, down to this row */
    "  is_in_conversation INTEGER NOT NULL,"
    "  body TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX response_by_conversation ON response (conversation);"
    "CREATE INDEX response_by_answer ON response (answer);"

    "CREATE TABLE reply_owner ("
    "  row INTEGER PRIMARY KEY,"
    "  owner TEXT NOT NULL UNIQUE,"
    "  bytes INTEGER NOT NULL," /* of all its replies: the budget's sum */
    "  uses INTEGER NOT NULL"   /* counter behind reply.used */
    ") STRICT;"
    "CREATE TABLE reply ("
    "  owner INTEGER NOT NULL REFERENCES reply_owner ON DELETE CASCADE,"
    "  chain BLOB NOT NULL,"
    "  render BLOB NOT NULL,"
    "  used INTEGER NOT NULL,"
    "  ids BLOB NOT NULL,"
    "  PRIMARY KEY (owner, chain, render)"
    ") STRICT;"
    "CREATE INDEX reply_by_use ON reply (owner, used);",

    /* 2 */
    "CREATE TABLE block_use ("
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  block BLOB NOT NULL," /* 32 bytes that mean something to the cache */
    "  PRIMARY KEY (conversation, block)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX block_use_by_block ON block_use (block);",

    /* 3 */
    "ALTER TABLE turn ADD COLUMN miss_at INTEGER;"      /* which message of the window */
    "ALTER TABLE turn ADD COLUMN miss_message INTEGER;" /* its row, when it is a stored one */
    "CREATE TABLE conversation_savings ("
    "  conversation INTEGER PRIMARY KEY REFERENCES conversation ON DELETE CASCADE,"
    SCHEMA_SUMS "," /* of all its turns, those of deleted messages too */
    "  window BLOB NOT NULL DEFAULT x''" /* what its newest turn read: 8 bytes a message */
    ") STRICT;"
    "CREATE TABLE conversation_miss ("
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  reason TEXT NOT NULL, n INTEGER NOT NULL,"
    "  PRIMARY KEY (conversation, reason)"
    ") STRICT, WITHOUT ROWID;"
    /* Since the installation, whatever was deleted since; stateless turns too. */
    "CREATE TABLE owner_savings ("
    "  owner TEXT PRIMARY KEY, since INTEGER NOT NULL," SCHEMA_SUMS
    ") STRICT;"
    "CREATE TABLE owner_miss ("
    "  owner TEXT NOT NULL, reason TEXT NOT NULL, n INTEGER NOT NULL,"
    "  PRIMARY KEY (owner, reason)"
    ") STRICT, WITHOUT ROWID;"
    "INSERT INTO conversation_savings (conversation," SCHEMA_SUM_NAMES ")"
    "  SELECT m.conversation," SCHEMA_SUMS_OF_TURNS
    "  FROM turn t JOIN message m ON m.row = t.answer GROUP BY m.conversation;"
    "INSERT INTO conversation_miss SELECT m.conversation, t.miss_reason, count(*)"
    "  FROM turn t JOIN message m ON m.row = t.answer"
    "  WHERE t.miss_reason IS NOT NULL GROUP BY 1, 2;"
    "INSERT INTO owner_savings (owner, since," SCHEMA_SUM_NAMES ")"
    "  SELECT c.owner, min(m.created_at)," SCHEMA_SUMS_OF_TURNS
    "  FROM turn t JOIN message m ON m.row = t.answer JOIN conversation c"
    "  ON c.row = m.conversation GROUP BY c.owner;"
    "INSERT INTO owner_miss SELECT c.owner, t.miss_reason, count(*)"
    "  FROM turn t JOIN message m ON m.row = t.answer JOIN conversation c"
    "  ON c.row = m.conversation WHERE t.miss_reason IS NOT NULL GROUP BY 1, 2;",

    /* 4 */
    "CREATE TABLE search_state ("
    "  row INTEGER PRIMARY KEY CHECK (row = 1),"
    "  segmenter INTEGER NOT NULL," /* which SEGMENT_VERSION filled message_fts; 0: none yet */
    "  fill INTEGER NOT NULL"       /* messages up to this row aren't in it yet */
    ") STRICT;"
    "INSERT INTO search_state SELECT 1, 1, ifnull(max(row), 0) FROM message;" SCHEMA_SEARCH,

    /* 5: a use knows the message that the block ends in; pins; what is to leave the cache */
    "CREATE TABLE block_use_by_message ("
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  block BLOB NOT NULL,"
    "  message INTEGER NOT NULL," /* its row; 0: before the first, -1: written before step 5 */
    "  PRIMARY KEY (conversation, block, message)"
    ") STRICT, WITHOUT ROWID;"
    "INSERT INTO block_use_by_message SELECT conversation, block, -1 FROM block_use;"
    "DROP TABLE block_use;"
    "ALTER TABLE block_use_by_message RENAME TO block_use;"
    "CREATE INDEX block_use_by_block ON block_use (block);"
    "CREATE TABLE block_pin ("
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  place INTEGER NOT NULL," /* in the chain, from the first block on */
    "  block BLOB NOT NULL,"
    "  model BLOB NOT NULL," /* whose block it is: the engine's fingerprint */
    "  PRIMARY KEY (conversation, place)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX block_pin_by_block ON block_pin (block);"
    "CREATE TABLE block_gone (" /* deleted here; stays until the cache has it no more */
    "  block BLOB PRIMARY KEY,"
    "  batch INTEGER NOT NULL" /* the deletion */
    ") STRICT, WITHOUT ROWID;",

    /* 6: windows (memory/window.h) */
    "CREATE TABLE cut ("
    "  row INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  anchor INTEGER NOT NULL," /* message rows, no keys: window_forget looks after them */
    "  first INTEGER NOT NULL CHECK (first > 0 AND first <= anchor),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1)," /* enum memory_cut_state */
    "  strategy TEXT NOT NULL,"
    "  created_at INTEGER NOT NULL,"
    "  system BLOB NOT NULL," /* three lists of message rows: int64, little-endian, ascending */
    "  dropped BLOB NOT NULL,"
    "  bare BLOB NOT NULL,"
    "  head TEXT NOT NULL,"
    "  summary TEXT NOT NULL,"
    "  facts TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX cut_by_conversation ON cut (conversation, state);"
    "CREATE INDEX message_system ON message (conversation) WHERE role = 1;"

    "CREATE TABLE message_context ("
    "  message INTEGER PRIMARY KEY REFERENCES message ON DELETE CASCADE,"
    "  text TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE context_source ("
    "  message INTEGER NOT NULL REFERENCES message_context ON DELETE CASCADE,"
    "  place INTEGER NOT NULL,"
    "  kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3)," /* enum memory_source_kind */
    "  source INTEGER NOT NULL," /* row of a message, or of a pin: no key */
    "  tokens INTEGER NOT NULL,"
    "  PRIMARY KEY (message, place)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX context_source_by_source ON context_source (source) WHERE kind < 3;"

    "CREATE TABLE pin ("
    "  row INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,"
    "  message INTEGER UNIQUE REFERENCES message ON DELETE CASCADE," /* NULL: a note */
    "  created_at INTEGER NOT NULL,"
    "  text TEXT NOT NULL" /* of a note */
    ") STRICT;"
    "CREATE INDEX pin_by_conversation ON pin (conversation);"

    "ALTER TABLE conversation ADD COLUMN strategy TEXT NOT NULL DEFAULT '';" /* '': the daemon's */
    ,

    /* 7: the cut under which an answer was read; its row, which may be gone; 0: none */
    "ALTER TABLE turn ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;",

    /* 8: vectors of messages (memory/vectors.c) */
    "CREATE TABLE message_vector ("
    "  message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,"
    "  place INTEGER NOT NULL," /* part of a long message */
    "  model BLOB NOT NULL,"    /* 16 bytes of its hash */
    "  scale INTEGER NOT NULL," /* 2^-22: what 1 in v stands for */
    "  v BLOB NOT NULL,"        /* int8 a dimension; empty: nothing to look for */
    "  PRIMARY KEY (message, place)"
    ") STRICT, WITHOUT ROWID;",

    /* 9: a path is read without its messages' texts, and nothing counts a long conversation */
    "DROP INDEX message_by_conversation;"
    "CREATE INDEX message_by_conversation ON message (conversation, row, parent);"
    "ALTER TABLE conversation ADD COLUMN n_messages INTEGER NOT NULL DEFAULT 0;"
    "UPDATE conversation SET n_messages ="
    "  (SELECT count(*) FROM message m WHERE m.conversation = conversation.row);"
    "CREATE TRIGGER message_comes AFTER INSERT ON message BEGIN"
    "  UPDATE conversation SET n_messages = n_messages + 1 WHERE row = new.conversation; END;"
    "CREATE TRIGGER message_goes AFTER DELETE ON message BEGIN"
    "  UPDATE conversation SET n_messages = n_messages - 1 WHERE row = old.conversation; END;",

    /* 10: whether a summary that the head doesn't have is a person's */
    "ALTER TABLE cut ADD COLUMN is_edited INTEGER NOT NULL DEFAULT 0;"
    "UPDATE cut SET is_edited = 1 WHERE summary <> '' AND instr(head, summary) = 0;",

    /* 11: rows of a long path, so that a start needn't read all of its messages' */
    "CREATE TABLE path_saved ("
    "  conversation INTEGER PRIMARY KEY REFERENCES conversation ON DELETE CASCADE,"
    "  steps BLOB NOT NULL" /* memory/paths.c */
    ") STRICT;",

    /* 12: whether an answer's prompt had opened a thought; of those before nobody knows */
    "ALTER TABLE message ADD COLUMN is_opened INTEGER NOT NULL DEFAULT 0;",
};

#define SCHEMA_VERSION ((int)(sizeof(schema_steps) / sizeof(schema_steps[0])))

#endif
