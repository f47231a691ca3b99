/* Shared by chat.c (segments), chat_window.c (whole windows) and chat_load.c (which of the two). */
#ifndef HEARTH_ENGINE_CHAT_IMPL_H
#define HEARTH_ENGINE_CHAT_IMPL_H

#include "base/hash.h"
#include "engine/chat.h"
#include "engine/jinja.h"

#define CHAT_OPEN "<|im_start|>"
#define CHAT_CLOSE "<|im_end|>"
#define CHAT_AFTER_CLOSE "\n"
#define CHAT_FAMILY "chatml"

struct chat_control {
    const char *s; /* [n] borrowed from the tokenizer */
    size_t n;
    int32_t id;
};

/* What a template takes as it is. */
struct chat_takes {
    bool system, late_system; /* a system message first; one further on */
    bool alternation;         /* nothing but roles in turn */
};

#define CHAT_ROLES (CHAT_ASSISTANT + 1)

/* Text that always stands at one kind of place. is_bad: it differs, or has no clean edge. */
struct chat_piece {
    char *text;
    size_t n;
    bool is_set, is_bad;
};

/* What chat_derive.c found and proved. */
struct chat_derived {
    struct chat_piece before[CHAT_ROLES][CHAT_ROLES]; /* [previous role][role] */
    struct chat_piece after[CHAT_ROLES];
    struct chat_piece prompt; /* the generation prompt */
    int trims[CHAT_ROLES]; /* of a content: 1 its left side, 2 its right side */
    bool opens[CHAT_ROLES];
    bool folds_system; /* into the user message behind it */
};

struct chat {
    const struct tok *tok;
    struct tok_str bos, eos; /* what a template's bos_token and eos_token print */
    int64_t now;             /* when it was opened, for renderings that don't say theirs */
    struct jinja *jinja;     /* NULL: ChatML, and the rest is its */
    struct chat_derived *derived; /* segments of jinja's template; NULL: whole windows */
    const char *family; /* a built-in one's name, or NULL */
    struct chat_takes takes;
    struct chat_traits traits;
    struct chat_think own; /* marks that chat_think_probe found; points into own_text */
    char *own_text;
    struct chat_control *controls; /* by first byte */
    size_t first_control[257];
    /* segments */
    int32_t open, close; /* control tokens */
    struct ids head;
    char *head_text;
    size_t n_head_text;
    char *default_system; /* or NULL */
    size_t n_default_system;
    uint8_t render_id[HASH_BYTES];
};

/* How many of an assistant's ids can stand for the beginning of its text, and how many bytes they
 * cover. */
size_t chat_usable_ids(const struct chat *c, const struct chat_message *m, size_t *ret_bytes);
/* A text on its way to ids. */
struct chat_text {
    struct buf text, marks; /* 1 + message % TEMPLATE_MARKS on each byte of a message, else 0 */
    size_t *starts;         /* [n + 1] bytes of text at which the messages' shares begin; once ids
                             * are made, indices of these */
    size_t n;
};
void chat_text_init(struct chat_text *t, size_t max);
void chat_text_done(struct chat_text *t);

struct chat_ask {
    bool prompt;
    int64_t now; /* 0: the chat's */
    enum chat_thinking thinking;
};

/* The whole window by the template; ret's starts are bytes. */
int chat_window_text(const struct chat *c, const struct chat_message *m, size_t n,
                     const struct chat_ask *ask, struct chat_text *ret, struct err *e) MUST_USE;
/* Appends the ids of t, whose starts become indices into *ret. is_opening: with a BOS if one is
 * due. */
int chat_window_ids(const struct chat *c, const struct chat_message *m, struct chat_text *t,
                    bool is_opening, struct ids *ret, struct err *e) MUST_USE;
/* chat_render over the whole window; ret->ids may be NULL. */
int chat_window(const struct chat *c, const struct chat_message *m, size_t n,
                bool add_generation_prompt, struct chat_rendering *ret, struct err *e) MUST_USE;
/* Appends what a window ends in behind its last message, by the template. */
int chat_prompt_of(const struct chat *c, struct buf *ret_text, struct ids *ret, struct err *e)
    MUST_USE;
/* Finds what c->jinja takes; its error if it doesn't print a plain chat. */
int chat_window_open(struct chat *c, struct err *e) MUST_USE;

/* Finds a template's marks of thinking by printing an answer with a thought: sets traits.think if
 * there are some. ERR_NOMEM. */
int chat_think_probe(struct chat *c, const struct jinja *j, struct err *e) MUST_USE;
bool chat_piece_is_good(const struct chat_piece *p);
/* chat_derive.c: sets c->derived if segments are found and proven; ERR_NOMEM. */
int chat_derive(struct chat *c, struct err *e) MUST_USE;
void chat_derived_free(struct chat_derived *d);
/* What chat.h says of chat_open_window, chat_segment, chat_end_of_turn and, with a generation
 * prompt, chat_render. */
int chat_derived_open(const struct chat *c, const struct chat_message *m, size_t n,
                      struct chat_rendering *ret, struct err *e) MUST_USE;
int chat_derived_segment(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                         struct ids *ret, struct err *e) MUST_USE;
int chat_derived_end(const struct chat *c, bool had_eog, struct ids *ret, struct err *e) MUST_USE;
int chat_derived_window(const struct chat *c, const struct chat_message *m, size_t n,
                        struct chat_rendering *ret, struct err *e) MUST_USE;

/* chat_builtin.c */
struct chat_builtin {
    const char *name;
    const char *token; /* a control token that the vocabulary must have; NULL: none */
    const char *source;
};
const struct chat_builtin *chat_builtin_find(const char *name); /* NULL: there is none */
/* "chatml, llama3, …" */
#define CHAT_BUILTIN_NAMES_BYTES 256
void chat_builtin_names(char *ret, size_t n);

/* The message as the template prints it. */
void chat_text_message(const struct chat_message *m, struct buf *to);

#endif
