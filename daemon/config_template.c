/*
 * --chat-template, the one option that may be given several times: once for each model.
 *
 *     FILE|NAME           --model's
 *     MODEL=FILE|NAME     MODEL's, by its file's name; "default" is --model's
 *
 * A file whose own name has a '=' is written with a slash before it: ./a=b.jinja.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/limits.h"

#define SUFFIX ".gguf"

/* Where the value begins; *ret_n: bytes of the model's name before it, 0: --model's. */
static const char *split(const char *text, size_t *ret_n)
{
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : 0, n_suffix = strlen(SUFFIX);
    *ret_n = 0;
    if (n == 0 || memchr(text, '/', n))
        return text;
    const bool has_suffix = n > n_suffix && !strncasecmp(equals - n_suffix, SUFFIX, n_suffix);
    *ret_n = has_suffix ? n - n_suffix : n;
    if (*ret_n == strlen("default") && strncmp(text, "default", *ret_n) == 0)
        *ret_n = 0;
    return equals + 1;
}

static struct config_template *find(const struct config *c, const char *model, size_t n)
{
    for (size_t i = 0; i < c->n_templates; i++)
        if (strlen(c->templates[i].model) == n && memcmp(c->templates[i].model, model, n) == 0)
            return &c->templates[i];
    return NULL;
}

/* An entry more, or NULL. */
static struct config_template *grow(struct config *c)
{
    struct config_template *all = realloc(c->templates, (c->n_templates + 1) * sizeof *all);
    if (!all)
        return NULL;
    c->templates = all;
    all[c->n_templates] = (struct config_template){.model = NULL};
    return &all[c->n_templates];
}

int config_template_set(struct config *c, const char *text, const char *where, struct err *e)
{
    size_t n;
    const char *value = split(text, &n);
    const bool is_flag = strncmp(where, "--", 2) == 0;
    struct config_template *t = find(c, text, n);
    if (!value[0])
        return err_set(e, ERR_INVAL, "%s is \"%s\": FILE or NAME is missing", where, text);
    if (t && t->is_flag == is_flag)
        return err_set(e, ERR_INVAL, "%s is given twice for %s", where,
                       n > 0 ? t->model : "the default model");
    if (!t && c->n_templates == LIMIT_SERVED)
        return err_set(e, ERR_LIMIT, "%s: at most %d models have one", where, LIMIT_SERVED);
    char *copy = strdup(value), *model = t ? t->model : strndup(text, n);
    if (!t && copy && model)
        t = grow(c);
    if (!copy || !model || !t) {
        free(copy);
        if (!t)
            free(model);
        return err_set(e, ERR_NOMEM, "%s: out of memory", where);
    }
    c->n_templates += t->model == NULL;
    free(t->value);
    *t = (struct config_template){model, copy, is_flag};
    return 0;
}

int config_templates_check(const struct config *c, struct err *e)
{
    for (size_t i = 0; i < c->n_templates; i++) {
        const char *value = c->templates[i].value;
        const bool is_file = strchr(value, '/') || access(value, F_OK) == 0;
        int rc = is_file ? config_check_file("chat template", value, e) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

const char *config_template_of(const struct config *c, const char *id, bool is_default)
{
    const struct config_template *own = id[0] ? find(c, id, strlen(id)) : NULL;
    if (!own && is_default)
        own = find(c, "", 0);
    return own ? own->value : NULL;
}

void config_templates_done(struct config *c)
{
    for (size_t i = 0; i < c->n_templates; i++) {
        free(c->templates[i].model);
        free(c->templates[i].value);
    }
    free(c->templates);
    c->templates = NULL;
    c->n_templates = 0;
}
