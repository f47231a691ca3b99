/*
 * A conversation's window over the API, below /v1/hearth/conversations/{}:
 *
 *      GET  context         the prompt of the newest turn, its answer last:
 *                           {"object", "limit", "used", "reserve", "strategy", "cut", "items":
 *                            [{"kind", "role", "message", "text", "tokens"}]}
 *      GET  context?next=1  the window for the next turn: one that is being made ready, or the one
 *                           in force
 *      POST context         {"strategy": NAME | null}: the conversation's own, or the daemon's
 *      POST cut             {["strategy"], ["target": TOKENS]}: cuts now
 *      GET  summary         {"summary", "facts", "tokens": {…}} of the cut in force
 *      POST summary         {["summary"], ["facts"]}: edits them
 *
 * What is counted in tokens is counted by the model that answered last in the conversation, or the
 * one that ?model= names; "model" says which, "model_by" why: "request", "conversation", "default".
 * The summary is read without waiting for that model, and without "tokens" while it isn't loaded.
 *
 * kind: template (what the model's own markup adds), system, pins, facts, summary, recalled (all
 * that was put before a person's words), message. The tokens of all items are `used`. Of a long
 * conversation that was never cut the newest messages are shown, and `above` says how many more
 * there are: together they are more than the model takes, and the next turn cuts.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/ahead.h"
#include "daemon/body.h"
#include "daemon/call.h"
#include "daemon/context.h"
#include "daemon/items.h"
#include "daemon/prepare.h"
#include "daemon/served.h"
#include "daemon/window.h"
#include "daemon/wire.h"
#include "memory/facts.h"

/* k->t with the window under a cut (memory_window_want.cut), rendered. An empty one is fine. */
static int load(struct call *k, int64_t cut, struct http_error *ret)
{
    turn_free(k->t);
    k->t = turn_new_background(k->h, k->r->owner, k->r->cancel);
    if (!k->t)
        return http_out_of_memory(ret, "the request");
    int rc = window_load(k->h, k->t, k->c.tip, cut, ret);
    return rc || k->t->window.n == 0 ? rc : prepare_render(k->h, k->t, ret);
}

/* ---- GET context ---- */

static json *add_item(json *to, const char *kind, const struct turn_part *part, const char *role)
{
    json *o = json_add(to, json_object());
    json_set_str(o, "kind", kind);
    if (role)
        json_set_str(o, "role", role);
    else
        json_set_null(o, "role");
    if (part->id[0])
        json_set_str(o, "message", part->id);
    else
        json_set_null(o, "message");
    json_set_strn(o, "text", part->text ? part->text : "", part->n_text);
    return o;
}

static void add_text(json *to, const char *kind, const char *text, size_t n, int tokens)
{
    const struct turn_part part = {.text = text, .n_text = n};
    json_set_int(add_item(to, kind, &part, "system"), "tokens", tokens);
}

/* The head's sections, each counted as what it adds to those before it. */
static int add_head(const struct call *k, json *to)
{
    struct context_section sections[CONTEXT_SECTIONS];
    const struct memory_cut *cut = &k->t->window.cut;
    const int n = context_head_sections(cut->head, cut->n_head, sections);
    int before = 0;
    for (int i = 0; i < n; i++) {
        const size_t end = (size_t)(sections[i].text - cut->head) + sections[i].n_text;
        const int tokens = window_count(k->h, cut->head, end);
        add_text(to, sections[i].kind, sections[i].text, sections[i].n_text, tokens - before);
        before = tokens;
    }
    return before;
}

/* What ends an answer that filled the window: the template's markup, which nobody has read yet. */
#define ANSWER_END_TOKENS 8
static int n_unread(const struct call *k)
{
    const struct turn_window *w = &k->t->window;
    const int over = w->n > 0 ? (int)w->starts[w->n] - k->h->ctx : 0;
    const bool is_answer = w->n > 0 && w->v[w->n - 1].role == CHAT_ASSISTANT;
    return is_answer && w->n_above == 0 && over > 0 && over <= ANSWER_END_TOKENS ? over : 0;
}

static void add_message(const struct call *k, json *to, size_t i)
{
    static const char *const roles[] = {
        [CHAT_NONE] = "", [CHAT_SYSTEM] = "system", [CHAT_USER] = "user",
        [CHAT_ASSISTANT] = "assistant"};
    const struct turn_window *w = &k->t->window;
    const struct turn_part *p = &w->parts[i];
    const char *role = roles[w->v[i].role];
    int tokens = window_tokens(k->t, i);
    if (p->context.n_text > 0) {
        const struct turn_part injected = {.text = p->context.text, .n_text = p->context.n_text};
        int n = window_count(k->h, p->context.text, p->context.n_text);
        n = n < 0 ? 0 : n > tokens ? tokens : n;
        json_set_int(add_item(to, "recalled", &injected, role), "tokens", n);
        tokens -= n;
    }
    json *o = add_item(to, w->v[i].role == CHAT_SYSTEM ? "system" : "message", p, role);
    if ((int)i == w->head_at)
        tokens -= add_head(k, to);
    json_set_int(o, "tokens", tokens - (i + 1 == w->n ? n_unread(k) : 0));
}

static json *cut_json(const struct call *k)
{
    const struct memory_cut *cut = &k->t->window.cut;
    struct memory_message anchor;
    struct err e;
    if (!k->t->window.has_cut)
        return NULL;
    json *o = json_object();
    json_set_str(o, "strategy", plan_strategy_name(cut->strategy));
    json_set_str(o, "state", cut->state == MEMORY_CUT_READY ? "ready" : "prepared");
    json_set_int(o, "created_at", cut->created_at);
    if (memory_message_by_row(k->h->memory, cut->anchor, &anchor, &k->t->arena, &e) == 0)
        json_set_str(o, "at_message", anchor.id);
    return o;
}

static void reply_context(struct call *k)
{
    const struct turn_window *w = &k->t->window;
    const struct plan_budget b = context_budget(k->h, 0);
    const int used = w->n > 0 ? (int)w->starts[w->n] - n_unread(k) : 0;
    json *o = json_object();
    json_set_str(o, "object", "hearth.context");
    json_set_str(o, "conversation", k->c.id);
    served_name(k->h, o);
    json_set_int(o, "limit", k->h->ctx);
    json_set_int(o, "used", used);
    if (w->n_above > 0)
        json_set_int(o, "above", (int64_t)w->n_above);
    json_set_int(o, "reserve", b.limit - plan_room(&b));
    json_set_str(o, "strategy", plan_strategy_name(context_strategy(k->h, k->c.row)));
    json *cut = cut_json(k);
    if (cut)
        json_set(o, "cut", cut);
    else
        json_set_null(o, "cut");
    json *items = json_set(o, "items", json_array());
    if (w->n > 0 && w->starts[0] > 0)
        add_text(items, "template", "", 0, (int)w->starts[0]);
    for (size_t i = 0; i < w->n; i++)
        add_message(k, items, i);
    history_reply_json(k->h, k->r, 200, o);
}

/* One that was made since is for the next turn. */
static int cut_of_newest(const struct context_of *of, int64_t *ret_cut, struct http_error *ret)
{
    struct memory_turn last;
    struct memory_cut cut;
    struct err e;
    if (memory_turn_get(of->h->memory, of->tip, &last, of->arena, &e))
        return 0; /* imported, or nobody has answered yet */
    *ret_cut = last.cut ? last.cut : MEMORY_WHOLE_PATH;
    const int rc = last.cut ? memory_cut_by_row(of->h->memory, last.cut, &cut, of->arena, &e) : 0;
    if (rc == ERR_NOTFOUND) { /* it went with a message that it may have quoted */
        *ret_cut = 0;
        return 0;
    }
    return rc ? items_error(ret, &e, NULL) : 0;
}

int context_cut_of(const struct context_of *of, int64_t *ret_cut, struct http_error *ret_error)
{
    struct memory_cut cut;
    struct err e;
    char *next = NULL;
    *ret_cut = 0;
    bool is_next = request_query(of->r, "next", &next) == 0 && strcmp(next, "0") != 0;
    free(next);
    if (of->tip == 0)
        return 0;
    if (!is_next)
        return cut_of_newest(of, ret_cut, ret_error);
    int rc = memory_cut_prepared(of->h->memory, of->tip, &cut, of->arena, &e);
    if (rc == 0)
        *ret_cut = cut.row;
    return rc == 0 || rc == ERR_NOTFOUND ? 0 : items_error(ret_error, &e, NULL);
}

int api_context_get(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    int64_t cut = 0;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    const struct context_of of = {.h = h, .r = r, .tip = k.c.tip, .arena = &k.arena};
    if (rc == 0)
        rc = context_cut_of(&of, &cut, ret);
    if (rc == 0)
        rc = load(&k, cut, ret);
    if (rc == 0)
        reply_context(&k);
    call_done(&k);
    return rc;
}

/* ---- POST context ---- */

static int read_strategy(const json *body, enum plan_strategy *ret_strategy, struct http_error *ret)
{
    const char *name = NULL;
    int rc = body_str(body, "strategy", "strategy", &name, ret);
    if (rc || !name || plan_strategy_parse(name, ret_strategy))
        return rc;
    return body_refused(ret, "invalid_value", "strategy",
                        "strategy: \"%.64s\" is none; these are: %s", name, plan_strategy_names());
}

/* null says something here: the daemon's strategy again. A field of another name doesn't. */
static bool has_strategy(const json *body)
{
    const json *it = json_first(body);
    while (it && strcmp(json_key(it), "strategy") != 0)
        it = json_next(it);
    return it != NULL;
}

static int set_strategy(struct call *k, struct http_error *ret)
{
    enum plan_strategy s = PLAN_UNSET;
    struct err e;
    int rc = k->body && has_strategy(k->body)
                 ? read_strategy(k->body, &s, ret)
                 : body_refused(ret, "invalid_value", "strategy", "strategy is missing");
    if (rc)
        return rc;
    if (memory_strategy_set(k->h->memory, k->c.row, s, &e))
        return items_error(ret, &e, "conversation_id");
    json *o = json_object();
    json_set_str(o, "object", "hearth.context.strategy");
    json_set_str(o, "conversation", k->c.id);
    json_set_str(o, "strategy", plan_strategy_name(context_strategy(k->h, k->c.row)));
    json_set_bool(o, "is_own", s != PLAN_UNSET);
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_context_set(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0)
        rc = set_strategy(&k, ret);
    call_done(&k);
    return rc;
}

/* ---- POST cut ---- */

/* is_cut false: the window is under its target, or nothing can leave. */
static void reply_cut(struct call *k, const struct turn_receipt *r, bool is_cut)
{
    json *o = json_object();
    json_set_str(o, "object", "hearth.cut");
    json_set_str(o, "conversation", k->c.id);
    served_name(k->h, o);
    json_set_bool(o, "cut", is_cut);
    json_set_int(o, "before", r->before);
    json_set_int(o, "after", r->after);
    wire_set_changes(o, "dropped", &r->dropped);
    wire_set_changes(o, "summarised", &r->summarised);
    history_reply_json(k->h, k->r, 200, o);
}

static int read_cut(struct call *k, struct context_cut *to, struct http_error *ret)
{
    int64_t target = 0;
    const double most = k->h->ctx - 1;
    int rc = 0;
    to->strategy = context_strategy(k->h, k->c.row);
    to->budget = context_budget(k->h, 0);
    if (k->body && ((rc = read_strategy(k->body, &to->strategy, ret)) ||
                    (rc = body_int(k->body, "target", (struct body_range){1, most}, &target, ret))))
        return rc;
    to->budget.target = (int)target;
    if (to->strategy == PLAN_ERROR) /* whoever cuts by hand wants one */
        to->strategy = PLAN_AUTO;
    return 0;
}

/* The same tokens: nothing left, and nothing moved into the head. */
static bool is_same(const struct turn *a, const struct turn *b)
{
    return a->prompt.n == b->prompt.n &&
           ids_common(a->prompt.v, a->prompt.n, b->prompt.v, b->prompt.n) == a->prompt.n;
}

/* The window under the cut that was made, of k->t, which goes to *ret_before: its arena has the
 * receipt's lists. Without a difference the cut goes again. */
static int put_in_force(struct call *k, const struct memory_cut *cut, struct turn **ret_before,
                        bool *ret_is_cut, struct http_error *ret)
{
    int64_t row;
    struct err e;
    if (memory_cut_add(k->h->memory, cut, &row, &e))
        return items_error(ret, &e, "conversation_id");
    *ret_before = k->t;
    k->t = NULL;
    int rc = load(k, row, ret);
    *ret_is_cut = rc == 0 && !is_same(*ret_before, k->t);
    const int stored = *ret_is_cut ? memory_cut_ready(k->h->memory, row, &e)
                                   : memory_cut_remove(k->h->memory, row, &e);
    return rc == 0 && stored ? items_error(ret, &e, "conversation_id") : rc;
}

static int cut_now(struct call *k, struct http_error *ret)
{
    struct context_cut request = {.h = k->h, .conversation = k->c.row, .anchor = k->c.tip};
    struct memory_cut cut;
    struct turn *before = NULL;
    bool is_cut = false;
    int rc = read_cut(k, &request, ret);
    if (rc == 0)
        rc = load(k, 0, ret);
    if (rc)
        return rc;
    const struct turn_window *w = &k->t->window;
    struct turn_receipt receipt = {.before = w->n > 0 ? (int)w->starts[w->n] : 0};
    receipt.after = receipt.before;
    request.t = k->t;
    rc = w->n > 0 ? context_cut_make(&request, &cut, ret) : ERR_NOTFOUND;
    if (rc == 0)
        rc = put_in_force(k, &cut, &before, &is_cut, ret);
    if (rc == 0 && is_cut) {
        receipt.dropped = before->receipt.dropped;
        receipt.summarised = before->receipt.summarised;
        receipt.after = (int)k->t->window.starts[k->t->window.n];
        ahead_warm(k->h, k->r->owner, k->c.row, k->c.tip);
    }
    if (rc == 0 || rc == ERR_NOTFOUND)
        reply_cut(k, &receipt, is_cut);
    turn_free(before);
    return rc == ERR_NOTFOUND ? HANDLED : rc;
}

int api_cut(struct history *h, struct request *r, const struct route_args *args,
            struct http_error *ret)
{
    struct call k;
    bool is_parked = false;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0 && !history_claim(h, k.c.row, r, &is_parked)) {
        rc = is_parked ? PARKED : http_out_of_memory(ret, "the request");
    } else if (rc == 0) {
        rc = cut_now(&k, ret);
        history_release(h, k.c.row);
    }
    call_done(&k);
    return rc;
}

/* ---- summary ---- */

static int find_cut(struct call *k, struct memory_cut *ret_cut, struct http_error *ret)
{
    struct err e;
    int rc = k->c.tip ? memory_cut_find(k->h->memory, k->c.tip, ret_cut, &k->arena, &e)
                      : err_set(&e, ERR_NOTFOUND, "no cut");
    if (rc != ERR_NOTFOUND)
        return rc ? items_error(ret, &e, NULL) : 0;
    http_error_set(ret, 404, "not_found", "conversation_id",
                   "nothing of conversation %s has been summed up: it was never cut", k->c.id);
    return rc;
}

/* What they cost as the model reads them; absent without a model that could say. */
static void set_tokens(struct call *k, json *o, const struct memory_cut *cut)
{
    struct facts list = {.n = 0};
    struct buf text;
    struct err e;
    buf_init(&text, cut->n_facts + FACTS_LINE_MAX);
    if (cut->n_facts > 0 && facts_parse(cut->facts, cut->n_facts, &k->arena, &list, &e))
        list.n = 0;
    facts_compose(&list, &text);
    const int summary = window_count(k->h, cut->summary ? cut->summary : "", cut->n_summary),
              facts = window_count(k->h, text.data ? text.data : "", text.len);
    buf_done(&text);
    if (summary < 0 || facts < 0)
        return;
    json *tokens = json_set(o, "tokens", json_object());
    json_set_int(tokens, "summary", summary);
    json_set_int(tokens, "facts", facts);
}

static void reply_summary(struct call *k, const struct memory_cut *cut, const char *note)
{
    json *o = json_object();
    json_set_str(o, "object", "hearth.summary");
    json_set_str(o, "conversation", k->c.id);
    served_name(k->h, o);
    json_set_strn(o, "summary", cut->summary ? cut->summary : "", cut->n_summary);
    json_set_strn(o, "facts", cut->facts ? cut->facts : "", cut->n_facts);
    json_set_int(o, "created_at", cut->created_at);
    set_tokens(k, o, cut);
    if (note)
        json_set_str(o, "note", note);
    history_reply_json(k->h, k->r, 200, o);
}

int api_summary_get(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    struct memory_cut cut;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0)
        rc = find_cut(&k, &cut, ret);
    if (rc == 0)
        reply_summary(&k, &cut, NULL);
    call_done(&k);
    return rc;
}

/* A list is read up to FACTS_LINE_MAX bytes a line and FACTS_MAX lines, and a cut hands on as many
 * bytes as it stores: what would be left out is refused. */
static int check_facts(const struct memory_cut_edit *edit, struct http_error *ret)
{
    size_t n_lines = 0, n_bytes = 0;
    for (size_t i = 0; i < edit->n_facts;) {
        const char *end = memchr(edit->facts + i, '\n', edit->n_facts - i);
        const size_t n = end ? (size_t)(end - edit->facts) - i : edit->n_facts - i;
        n_lines += n > 0;
        n_bytes += n > 0 && edit->facts[i + n - 1] != '}' ? n + 3 : 0; /* as composed: "- " */
        if (n > FACTS_LINE_MAX)
            return body_refused(ret, "summary_too_long", "facts",
                                "line %zu of the facts has %zu bytes, the limit is %d", n_lines, n,
                                FACTS_LINE_MAX);
        i += n + 1;
    }
    if (n_lines > FACTS_MAX)
        return body_refused(ret, "summary_too_long", "facts", "%zu facts, the limit is %d", n_lines,
                            FACTS_MAX);
    if (n_bytes > CONTEXT_FACTS_BYTES - FACTS_LINE_MAX)
        return body_refused(ret, "summary_too_long", "facts",
                            "lines of one's own have %zu bytes, the limit is %d", n_bytes,
                            CONTEXT_FACTS_BYTES - FACTS_LINE_MAX);
    return 0;
}

/* The next turn reads them whole, before its question: what is too long would have it refused. */
static int check_edit(struct call *k, const struct memory_cut *cut,
                      const struct memory_cut_edit *edit, struct http_error *ret)
{
    const int limit = context_share(k->h, CONTEXT_PINS_PERCENT, 0);
    const bool has_facts = edit->facts, has_summary = edit->summary;
    const char *summary = has_summary ? edit->summary : cut->summary;
    struct facts list = {.n = 0};
    struct buf notes;
    struct err e;
    if (facts_parse(has_facts ? edit->facts : cut->facts, has_facts ? edit->n_facts : cut->n_facts,
                    &k->arena, &list, &e))
        return items_error(ret, &e, "facts");
    buf_init(&notes, FACTS_MAX * (FACTS_LINE_MAX + 1));
    for (size_t i = 0; i < list.n; i++) {
        if (list.v[i].kind != FACT_NOTE)
            continue;
        buf_add(&notes, list.v[i].text, list.v[i].n_text);
        buf_char(&notes, '\n');
    }
    const int n_summary =
        window_count(k->h, summary ? summary : "", has_summary ? edit->n_summary : cut->n_summary);
    const int n_notes =
        buf_error(&notes) ? -1 : window_count(k->h, notes.data ? notes.data : "", notes.len);
    buf_done(&notes);
    if (n_summary < 0 || n_notes < 0)
        return http_out_of_memory(ret, "the request");
    if (n_summary + n_notes <= limit)
        return 0;
    return body_refused(ret, "summary_too_long", has_summary ? "summary" : "facts",
                        "a summary and lines of one's own may take %d tokens, a quarter of the "
                        "window; the summary has %d, the lines have %d",
                        limit, n_summary, n_notes);
}

static int edit_summary(struct call *k, struct http_error *ret)
{
    struct memory_cut cut;
    struct memory_cut_edit edit = {.summary = NULL};
    struct err e;
    int rc = find_cut(k, &cut, ret);
    if (rc)
        return rc;
    if ((rc = body_str(k->body, "summary", "summary", &edit.summary, ret)) ||
        (rc = body_str(k->body, "facts", "facts", &edit.facts, ret)))
        return rc;
    if (!edit.summary && !edit.facts)
        return body_refused(ret, "invalid_value", "summary", "summary or facts is expected");
    edit.n_summary = edit.summary ? strlen(edit.summary) : 0;
    edit.n_facts = edit.facts ? strlen(edit.facts) : 0;
    if ((edit.summary &&
         (rc = prepare_check_text(k->h, "summary", edit.summary, edit.n_summary, ret))) ||
        (edit.facts && (rc = prepare_check_text(k->h, "facts", edit.facts, edit.n_facts, ret))) ||
        (edit.facts && (rc = check_facts(&edit, ret))) || (rc = check_edit(k, &cut, &edit, ret)))
        return rc;
    if (memory_cut_edit(k->h->memory, cut.row, &edit, &e) ||
        memory_cut_by_row(k->h->memory, cut.row, &cut, &k->arena, &e))
        return items_error(ret, &e, "conversation_id");
    reply_summary(k, &cut,
                  "the next turn reads what is new at the window's end; it moves to the head at "
                  "the next cut");
    return HANDLED;
}

int api_summary_set(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0 && !k.body)
        rc = body_refused(ret, "invalid_value", "summary", "summary or facts is expected");
    if (rc == 0)
        rc = edit_summary(&k, ret);
    call_done(&k);
    return rc;
}
