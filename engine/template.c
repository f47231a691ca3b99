/* A chat by the model's own template: see template.h. */
#include "engine/template.h"

#include <string.h>

#include "engine/jinja.h"

#define RUN_BYTES_MAX ((size_t)256 << 20)

static int nomem(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for the template");
}

static int message(struct arena *a, const struct template_message *m, struct jinja_value *ret)
{
    const char *role = chat_role_name(m->role);
    struct jinja_value name = jinja_text(role, strlen(role));
    struct jinja_value content = {.type = JINJA_STR, .str = m->content};
    int rc = jinja_dict_new(a, ret);
    if (rc == 0)
        rc = jinja_dict_set(a, ret, "role", &name);
    if (rc == 0)
        rc = jinja_dict_set(a, ret, "content", &content);
    /* each family's name for it */
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    const struct jinja_value thought = {.type = JINJA_STR, .str = m->thought};
    for (size_t i = 0; rc == 0 && m->thought.n > 0 && i < sizeof names / sizeof *names; i++)
        rc = jinja_dict_set(a, ret, names[i], &thought);
    return rc;
}

static int variables(struct arena *arena, const struct template_args *a, struct jinja_value *ret)
{
    struct jinja_value messages, m, bos = jinja_text(a->bos.s, a->bos.n),
                                    eos = jinja_text(a->eos.s, a->eos.n),
                                    prompt = jinja_bool(a->add_generation_prompt);
    int rc = jinja_dict_new(arena, ret);
    if (rc == 0)
        rc = jinja_list_new(arena, &messages);
    for (size_t i = 0; rc == 0 && i < a->n_messages; i++) {
        rc = message(arena, &a->messages[i], &m);
        if (rc == 0)
            rc = jinja_list_add(arena, &messages, &m);
    }
    if (rc == 0)
        rc = jinja_dict_set(arena, ret, "messages", &messages);
    if (rc == 0)
        rc = jinja_dict_set(arena, ret, "add_generation_prompt", &prompt);
    if (rc == 0)
        rc = jinja_dict_set(arena, ret, "bos_token", &bos);
    if (rc == 0)
        rc = jinja_dict_set(arena, ret, "eos_token", &eos);
    static const char *const names[] = {"enable_thinking", "thinking"};
    const struct jinja_value thinks = jinja_bool(a->thinking == CHAT_THINKING_ON);
    for (size_t i = 0; rc == 0 && a->thinking && i < sizeof names / sizeof *names; i++)
        rc = jinja_dict_set(arena, ret, names[i], &thinks);
    return rc;
}

int template_run(const struct jinja *j, const struct template_args *a, struct arena *arena,
                 struct buf *ret, struct buf *ret_marks, struct err *e)
{
    struct jinja_value vars;
    struct jinja_output out = {.text = ret, .marks = ret_marks};
    return variables(arena, a, &vars) < 0 ? nomem(e)
                                          : jinja_render(j, arena, &vars, a->now, &out, e);
}

int template_render(const struct jinja *j, const struct template_args *a,
                    const struct chat_message *m, struct buf *ret, struct err *e)
{
    struct arena arena;
    struct template_args args = *a;
    arena_init(&arena, RUN_BYTES_MAX);
    struct template_message *v = arena_array(&arena, a->n_messages, sizeof *v);
    for (size_t i = 0; v && i < a->n_messages; i++)
        v[i] = (struct template_message){
            .role = m[i].role, .content = {.s = m[i].text ? m[i].text : "", .n = m[i].n_text}};
    args.messages = v;
    int rc = v ? template_run(j, &args, &arena, ret, NULL, e) : nomem(e);
    arena_done(&arena);
    return rc;
}
