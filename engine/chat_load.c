/*
 * Recognising a chat template, and the proof that it is what it seems.
 *
 * chat_new trusts no template by its looks. It renders synthetic chats twice, by the template
 * itself (template.c) and as segments, and compares the text of all of them, and the ids of those
 * without look-alikes of control tokens: segments in a row against the whole text encoded at once
 * with specials. What trims, reorders, drops or strips something fails one of them, and is then run
 * over whole windows (chat_window.c). What can't be run, or doesn't print a plain chat, is refused
 * by name.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

#define TEMPLATE_TITLE_BYTES 60
#define MESSAGE(r, t)                                                                              \
    {                                                                                              \
        .role = (r), .text = (t), .n_text = sizeof(t) - 1                                          \
    }
#define CHECK_MESSAGES_MAX 6

/*
 * Synthetic chats. has_look_alikes: holds strings that some vocabularies have as special tokens, so
 * only texts are compared.
 */
static const struct check_chat {
    struct chat_message m[CHECK_MESSAGES_MAX];
    size_t n;
    bool has_look_alikes;
} check_chats[] = {
    {{MESSAGE(CHAT_USER, "Is it far?")}, 1, false},
    {{MESSAGE(CHAT_SYSTEM, "Be brief."), MESSAGE(CHAT_USER, "Is it far?")}, 2, false},
    {{MESSAGE(CHAT_USER, "one"), MESSAGE(CHAT_ASSISTANT, "two"), MESSAGE(CHAT_USER, "three")},
     3,
     false},
    {{MESSAGE(CHAT_SYSTEM, "S"), MESSAGE(CHAT_USER, "a"), MESSAGE(CHAT_ASSISTANT, "b"),
      MESSAGE(CHAT_USER, "c"), MESSAGE(CHAT_ASSISTANT, "d")},
     5,
     false},
    {{MESSAGE(CHAT_SYSTEM, ""), MESSAGE(CHAT_USER, ""), MESSAGE(CHAT_ASSISTANT, "")}, 3, false},
    {{MESSAGE(CHAT_SYSTEM, " \n s \n "), MESSAGE(CHAT_USER, "\n\n u\t"),
      MESSAGE(CHAT_ASSISTANT, "  a\r\n"), MESSAGE(CHAT_USER, "\n")},
     4,
     false},
    {{MESSAGE(CHAT_USER, "one"), MESSAGE(CHAT_USER, "more"), MESSAGE(CHAT_ASSISTANT, "x"),
      MESSAGE(CHAT_ASSISTANT, "y")},
     4,
     false},
    {{MESSAGE(CHAT_ASSISTANT, "I begin."), MESSAGE(CHAT_USER, "Good.")}, 2, false},
    {{MESSAGE(CHAT_USER, "a"), MESSAGE(CHAT_SYSTEM, "late"), MESSAGE(CHAT_USER, "b")}, 3, false},
    {{MESSAGE(CHAT_USER, "{{ messages }} {% if x %}"),
      MESSAGE(CHAT_ASSISTANT, "\xC3\xA9 \xE9\x9B\xA8 'q' \"w\" \\n"), MESSAGE(CHAT_USER, "0")},
     3,
     false},
    {{MESSAGE(CHAT_USER, "/no_think a"), MESSAGE(CHAT_ASSISTANT, "<think>\nhm\n</think>\n\nb"),
      MESSAGE(CHAT_USER, "<tool_response>\nc\n</tool_response>"),
      MESSAGE(CHAT_ASSISTANT, "[INST] d </think>"), MESSAGE(CHAT_USER, CHAT_OPEN "x" CHAT_CLOSE)},
     5,
     true},
};

struct loading {
    struct chat *c;
    const char *source;
    struct jinja *jinja;
};

static struct tok_str special_text(const struct tok *tok, int32_t id)
{
    struct tok_str s = {.s = "", .n = 0};
    if (id >= 0)
        s.s = tok_piece(tok, id, &s.n);
    return s;
}

/* The template's own rendering. */
static int by_template(const struct loading *l, const struct chat_message *m, size_t n,
                       bool add_generation_prompt, struct buf *ret, struct err *e)
{
    struct template_args a = {.n_messages = n, .add_generation_prompt = add_generation_prompt};
    a.bos = l->c->bos;
    a.eos = l->c->eos;
    a.now = l->c->now;
    buf_clear(ret);
    return template_render(l->jinja, &a, m, ret, e);
}

/* Copies text less what it must end with; ERR_UNSUPPORTED when it doesn't. */
static int take_prefix(const struct buf *text, const struct buf *tail, char **ret, size_t *ret_n,
                       struct err *e)
{
    size_t n = text->len - tail->len;
    if (text->len < tail->len || memcmp(text->data + n, tail->data, tail->len) != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "a user message is not rendered as " CHAT_OPEN
                       "user, newline, text, " CHAT_CLOSE ", newline");
    char *copy = malloc(n + 1);
    if (!copy)
        return err_set(e, ERR_NOMEM, "no memory for the chat format");
    memcpy(copy, text->data, n);
    copy[n] = 0;
    *ret = copy;
    *ret_n = n;
    return 0;
}

/* What the template prints before [system, user] is the head: control tokens only. */
static int find_head(struct loading *l, struct buf *whole, struct buf *tail, struct err *e)
{
    struct chat *c = l->c;
    const struct check_chat *chat = &check_chats[1];
    int rc = by_template(l, chat->m, chat->n, false, whole, e);
    buf_clear(tail);
    chat_text_message(&chat->m[0], tail);
    chat_text_message(&chat->m[1], tail);
    if (rc == 0)
        rc = take_prefix(whole, tail, &c->head_text, &c->n_head_text, e);
    if (rc == 0)
        rc = tok_encode(c->tok, c->head_text, c->n_head_text, true, &c->head, e);
    for (size_t i = 0; rc == 0 && i < c->head.n; i++)
        if (!tok_is_control(c->tok, c->head.v[i]))
            rc = err_set(e, ERR_UNSUPPORTED, "it begins with text (\"%.40s\")", c->head_text);
    return rc;
}

/*
 * What it prints between the head and a lone user message is nothing, or a system message: the
 * default.
 */
static int find_default_system(struct loading *l, struct buf *whole, struct buf *tail,
                               struct err *e)
{
    static const char before[] = CHAT_OPEN "system\n", after[] = CHAT_CLOSE CHAT_AFTER_CLOSE;
    struct chat *c = l->c;
    char *prefix = NULL;
    size_t n = 0;
    int rc = by_template(l, check_chats[0].m, 1, false, whole, e);
    buf_clear(tail);
    chat_text_message(&check_chats[0].m[0], tail);
    if (rc == 0)
        rc = take_prefix(whole, tail, &prefix, &n, e);
    if (rc < 0)
        return rc;
    size_t n_before = sizeof before - 1, n_after = sizeof after - 1;
    char *rest = prefix + c->n_head_text;
    size_t n_rest = n - c->n_head_text;
    if (n < c->n_head_text || memcmp(prefix, c->head_text, c->n_head_text) != 0) {
        rc = err_set(e, ERR_UNSUPPORTED, "what comes first depends on the messages");
    } else if (n_rest >= n_before + n_after && memcmp(rest, before, n_before) == 0 &&
               memcmp(rest + n_rest - n_after, after, n_after) == 0) {
        c->n_default_system = n_rest - n_before - n_after;
        memmove(prefix, rest + n_before, c->n_default_system);
        prefix[c->n_default_system] = 0;
        c->default_system = prefix;
        return 0;
    } else if (n_rest > 0) {
        rc = err_set(e, ERR_UNSUPPORTED,
                     "before a chat without a system message it prints \"%.60s\"", rest);
    }
    free(prefix);
    return rc;
}

/* The text encoded in one go, with a BOS if the model wants one and the text has none. */
static int encode_whole(const struct chat *c, const struct buf *text, struct ids *ret,
                        struct err *e)
{
    int32_t bos = tok_bos(c->tok);
    ret->n = 0;
    int rc = tok_encode(c->tok, text->data, text->len, true, ret, e);
    if (rc < 0 || bos < 0 || (ret->n > 0 && ret->v[0] == bos))
        return rc;
    rc = ids_push(ret, bos);
    if (rc < 0)
        return err_set(e, rc, "no room for token ids");
    memmove(ret->v + 1, ret->v, (ret->n - 1) * sizeof *ret->v);
    ret->v[0] = bos;
    return 0;
}

struct check_scratch {
    struct buf whole, segments;
    struct ids whole_ids, ids;
};

static int check_one(const struct loading *l, size_t i, bool add_generation_prompt,
                     struct check_scratch *s, struct err *e)
{
    const struct check_chat *chat = &check_chats[i];
    struct chat_rendering r = {.ids = &s->ids, .text = &s->segments};
    s->ids.n = 0;
    buf_clear(&s->segments);
    int rc = by_template(l, chat->m, chat->n, add_generation_prompt, &s->whole, e);
    if (rc == 0)
        rc = chat_render(l->c, chat->m, chat->n, add_generation_prompt, &r, e);
    if (rc < 0)
        return rc;
    if (s->whole.len != s->segments.len ||
        memcmp(s->whole.data, s->segments.data, s->whole.len) != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "test chat %zu%s is rendered otherwise than as one segment a message", i + 1,
                       add_generation_prompt ? " with a generation prompt" : "");
    if (chat->has_look_alikes)
        return 0;
    rc = encode_whole(l->c, &s->whole, &s->whole_ids, e);
    if (rc == 0 && (s->ids.n != s->whole_ids.n ||
                    ids_common(s->ids.v, s->ids.n, s->whole_ids.v, s->whole_ids.n) != s->ids.n))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "test chat %zu has other token ids in segments than as a whole", i + 1);
    return rc;
}

static int recognise(struct loading *l, struct err *e)
{
    struct check_scratch s = {0};
    buf_init(&s.whole, TEMPLATE_BYTES_MAX);
    buf_init(&s.segments, TEMPLATE_BYTES_MAX);
    int rc = find_head(l, &s.whole, &s.segments, e);
    if (rc == 0)
        rc = find_default_system(l, &s.whole, &s.segments, e);
    for (size_t i = 0; rc == 0 && i < sizeof check_chats / sizeof *check_chats; i++) {
        rc = check_one(l, i, false, &s, e);
        if (rc == 0)
            rc = check_one(l, i, true, &s, e);
    }
    buf_done(&s.whole);
    buf_done(&s.segments);
    ids_done(&s.whole_ids);
    ids_done(&s.ids);
    return rc;
}

static int find_control(const struct tok *tok, const char *name, int32_t *ret, struct err *e)
{
    int32_t id = tok_find(tok, name, strlen(name));
    if (!tok_is_control(tok, id))
        return err_set(e, ERR_UNSUPPORTED,
                       "the vocabulary has no control token %s, which the chat format " CHAT_FAMILY
                       " needs",
                       name);
    *ret = id;
    return 0;
}

/* A format by name: its source, and that the vocabulary has what it needs. */
static int choose_builtin(const struct tok *tok, const char *name, const char **ret_source,
                          const char **ret_family, struct err *e)
{
    char names[CHAT_BUILTIN_NAMES_BYTES];
    const struct chat_builtin *b = chat_builtin_find(name);
    chat_builtin_names(names, sizeof names);
    if (!b)
        return err_set(e, ERR_UNSUPPORTED,
                       "--chat-template \"%.40s\" is neither a template nor a known format (%s)",
                       name, names);
    if (b->token && !tok_is_control(tok, tok_find(tok, b->token, strlen(b->token))))
        return err_set(e, ERR_UNSUPPORTED,
                       "the vocabulary has no control token %s, which the chat format %s needs",
                       b->token, name);
    *ret_source = b->source;
    *ret_family = b->name;
    return 0;
}

static void make_render_id(struct chat *c, const char *source)
{
    struct hash_state h;
    uint8_t tok_hash[HASH_BYTES];
    uint64_t sizes[] = {c->n_head_text, c->default_system != NULL, c->n_default_system};
    tok_fingerprint(c->tok, tok_hash);
    hash_init(&h);
    hash_add(&h, "hearth rendering 1 " CHAT_FAMILY, sizeof "hearth rendering 1 " CHAT_FAMILY);
    hash_add(&h, tok_hash, sizeof tok_hash);
    hash_add(&h, sizes, sizeof sizes);
    if (c->n_head_text > 0)
        hash_add(&h, c->head_text, c->n_head_text);
    if (c->n_default_system > 0)
        hash_add(&h, c->default_system, c->n_default_system);
    if (c->jinja) {
        hash_add(&h, "whole windows 1", sizeof "whole windows 1");
        hash_add(&h, source, strlen(source));
    }
    hash_end(&h, c->render_id);
}

/* Names the template by its first line. */
static int refuse(struct err *e, const char *source)
{
    if (e && e->code == ERR_NOMEM)
        return e->code;
    int n = (int)strcspn(source, "\r\n");
    struct err why = {0};
    if (e)
        why = *e;
    return err_set(e, ERR_UNSUPPORTED,
                   "the chat template (\"%.*s\") is not supported: %s; --chat-template " CHAT_FAMILY
                   " or a file overrides it",
                   n < TEMPLATE_TITLE_BYTES ? n : TEMPLATE_TITLE_BYTES, source, why.text);
}

/* The source to recognise: NULL for the plain family by name. */
static int choose_source(const char *template_text, const char *override, struct loading *l,
                         struct err *e)
{
    const char **ret = &l->source;
    *ret = override ? override : template_text;
    if (!*ret)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model has no chat template; --chat-template " CHAT_FAMILY
                       " or a file gives it one");
    if (!override || strstr(override, "{{") || strstr(override, "{%"))
        return 0;
    *ret = NULL;
    return strcmp(override, CHAT_FAMILY) == 0
               ? 0
               : choose_builtin(l->c->tok, override, ret, &l->c->family, e);
}

static void find_traits(struct chat *c, const struct jinja *j, const char *source)
{
    c->traits = (struct chat_traits){
        .thinks = chat_think_of(source) != NULL,
        .think = chat_think_of(source),
        .has_switch = jinja_names(j, "enable_thinking") || jinja_names(j, "thinking"),
        .tells_time = jinja_names(j, "strftime_now"),
    };
}

/* Segments if the template is proven to be such, else whole windows. */
static int open_source(struct loading *l, bool has_family, struct err *e)
{
    struct err why = {0};
    int rc = jinja_new(l->source, strlen(l->source), &l->jinja, e);
    if (rc < 0)
        return rc;
    find_traits(l->c, l->jinja, l->source);
    if (!l->c->traits.think && (strstr(l->source, "reasoning") || strstr(l->source, "thinking")) &&
        (rc = chat_think_probe(l->c, l->jinja, e)) < 0)
        return rc;
    const struct chat_traits *traits = &l->c->traits;
    const bool is_fixed = !traits->has_switch && !traits->tells_time &&
                          (!traits->think || chat_think_is_common(traits->think));
    rc = has_family && is_fixed ? recognise(l, &why) : ERR_UNSUPPORTED;
    if (rc == ERR_NOMEM)
        return err_set(e, rc, "%s", why.text);
    if (rc == 0)
        return 0;
    struct chat *c = l->c;
    free(c->head_text);
    free(c->default_system);
    c->head_text = c->default_system = NULL;
    c->n_head_text = c->n_default_system = c->head.n = 0;
    c->jinja = l->jinja;
    l->jinja = NULL;
    rc = chat_window_open(c, e);
    return rc < 0 ? rc : chat_derive(c, e);
}

int chat_new(const struct tok *tok, const char *template_text, const char *override,
             struct chat **ret, struct err *e)
{
    struct err own = {0};
    e = e ? e : &own;
    struct loading l = {0};
    struct chat *c = l.c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "no memory for the chat format");
    c->tok = tok;
    int rc = choose_source(template_text, override, &l, e);
    if (rc < 0) {
        chat_free(c);
        return rc;
    }
    c->bos = special_text(tok, tok_bos_token(tok));
    c->eos = special_text(tok, tok_eos_token(tok));
    c->now = (int64_t)time(NULL);
    ids_init(&c->head);
    struct err no_family;
    rc = find_control(tok, CHAT_OPEN, &c->open, &no_family);
    if (rc == 0)
        rc = find_control(tok, CHAT_CLOSE, &c->close, &no_family);
    if (l.source)
        rc = open_source(&l, rc == 0, e);
    else if (rc < 0)
        *e = no_family;
    jinja_free(l.jinja);
    if (rc < 0) {
        chat_free(c);
        return l.source ? refuse(e, l.source) : rc;
    }
    make_render_id(c, l.source);
    *ret = c;
    return 0;
}
