/*
 * hearth verify: has the daemon compute cached blocks again and compare them. One request a
 * conversation, so that each has its line when it is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/conversation.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"

#define PAGE 100

struct sum {
    double blocks, positions;
    int n_different;
};

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

static void print_difference(const json *it)
{
    const char *where = json_str(json_get(it, "where", NULL));
    const double n = number(it, "removed_blocks");
    printf("  block %.0f (position %.0f) ", number(it, "block"), number(it, "position"));
    if (where && strcmp(where, "file") == 0)
        printf("has a file that is not what the model computes; it is written again\n");
    else
        printf("is not what the model computes; removed with what follows it: %.0f block%s\n", n,
               plural(n));
}

static void print_one(const char *id, const json *j)
{
    const double n = number(j, "blocks"), missing = number(j, "missing");
    const double other = number(j, "other_model");
    printf("%s: %.0f block%s, %.0f positions (%.0f in RAM, %.0f on disk)", id, n, plural(n),
           number(j, "positions"), number(j, "ram"), number(j, "disk"));
    if (missing > 0)
        printf(", %.0f block%s not cached any more", missing, plural(missing));
    if (other > 0)
        printf(", %.0f of another model", other);
    putchar('\n');
    for (const json *it = json_first(json_get(j, "different", NULL)); it; it = json_next(it))
        print_difference(it);
    fflush(stdout);
}

static int verify_one(struct client *c, const char *id, struct sum *sum)
{
    json *j = NULL;
    json *body = json_object();
    json_set_str(body, "conversation", id);
    int code = api_call(c, "POST", "/v1/hearth/verify", body, &j);
    if (!code) {
        sum->blocks += number(j, "blocks");
        sum->positions += number(j, "positions");
        for (const json *it = json_first(json_get(j, "different", NULL)); it; it = json_next(it))
            sum->n_different++;
        if (c->is_json)
            code = api_print_json(c, j);
        else
            print_one(id, j);
    }
    json_free(j);
    return code;
}

static int verify_all(struct client *c, struct sum *sum)
{
    char *after = NULL;
    int code = 0;
    do {
        json *page = NULL;
        code = conversation_page(c, "desc", PAGE, after, &page);
        free(after);
        after = code ? NULL : page_next(page);
        for (const json *it = code ? NULL : json_first(json_get(page, "data", NULL)); it && !code;
             it = json_next(it)) {
            const char *id = json_str(json_get(it, "id", NULL));
            if (id)
                code = verify_one(c, id, sum);
        }
        json_free(page);
    } while (after && !code);
    free(after);
    return code;
}

static int verify_named(struct client *c, int n, char **names, struct sum *sum)
{
    char **ids = calloc((size_t)n, sizeof *ids);
    int code = ids ? 0 : api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    for (int i = 0; i < n && !code; i++)
        code = conversation_resolve(c, names[i], &ids[i]);
    for (int i = 0; i < n && !code; i++)
        code = verify_one(c, ids[i], sum);
    for (int i = 0; i < n && ids; i++)
        free(ids[i]);
    free(ids);
    return code;
}

int cmd_verify(struct client *c, int argc, char **argv)
{
    struct options_reader reader = {c, command_find("verify"), NULL, NULL};
    struct sum sum = {0};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    code = first < argc ? verify_named(c, argc - first, argv + first, &sum) : verify_all(c, &sum);
    if (code)
        return code;
    if (!c->is_json && sum.n_different == 0)
        printf("all %.0f blocks (%.0f positions) are the bytes that the model computes\n",
               sum.blocks, sum.positions);
    else if (!c->is_json)
        printf("%d of %.0f blocks differed; what was wrong is removed, and computed anew when "
               "needed\n",
               sum.n_different, sum.blocks);
    return sum.n_different ? EXIT_REFUSED : EXIT_FINE;
}
