/*
 * The bar that a window is drawn as: so many columns for so many tokens.
 *
 *      SSPPPFFFFMMMMRRTTTTTTTTTTTTTTTTTT......................
 *
 * Columns go by largest remainder. What is there at all must be seen: a kind that would get none is
 * given one of the widest kind's, from left to right, as long as that one has two.
 */
#include <string.h>

#include "client/window.h"

static const struct {
    const char *name;
    char letter;
} kinds[BAR_KINDS] = {
    [BAR_SYSTEM] = {"system", 'S'},     [BAR_PINS] = {"pins", 'P'},
    [BAR_FACTS] = {"facts", 'F'},       [BAR_SUMMARY] = {"summary", 'M'},
    [BAR_RECALLED] = {"recalled", 'R'}, [BAR_TURNS] = {"turns", 'T'},
    [BAR_FREE] = {"free", '.'},
};

const char *bar_name(enum bar_kind kind)
{
    return kinds[kind].name;
}

char bar_letter(enum bar_kind kind)
{
    return kinds[kind].letter;
}

enum bar_kind bar_kind_of(const char *item_kind)
{
    if (item_kind && !strcmp(item_kind, "template"))
        return BAR_SYSTEM;
    for (int i = 0; item_kind && i < BAR_FREE; i++)
        if (!strcmp(item_kind, kinds[i].name))
            return (enum bar_kind)i;
    return BAR_TURNS;
}

/* Hands out what rounding down left over, the largest remainder first. */
static void share_rest(const double *exact, int rest, int *ret)
{
    for (; rest > 0; rest--) {
        int best = -1;
        for (int i = 0; i < BAR_KINDS; i++)
            if (exact[i] > 0 && (best < 0 || exact[i] - ret[i] > exact[best] - ret[best]))
                best = i;
        ret[best < 0 ? BAR_FREE : best]++;
    }
}

static int widest(const int *columns)
{
    int best = 0;
    for (int i = 1; i < BAR_KINDS; i++)
        if (columns[i] > columns[best])
            best = i;
    return best;
}

void bar_columns(const int64_t *tokens, int n_columns, int *ret)
{
    double sum = 0, exact[BAR_KINDS];
    int used = 0;
    for (int i = 0; i < BAR_KINDS; i++)
        sum += tokens[i] > 0 ? (double)tokens[i] : 0;
    for (int i = 0; i < BAR_KINDS; i++) {
        exact[i] = tokens[i] > 0 ? (double)tokens[i] / sum * n_columns : 0;
        ret[i] = (int)exact[i];
        used += ret[i];
    }
    share_rest(exact, n_columns - used, ret);
    for (int i = 0; i < BAR_KINDS; i++) {
        const int from = widest(ret);
        if (tokens[i] > 0 && ret[i] == 0 && ret[from] > 1) {
            ret[from]--;
            ret[i]++;
        }
    }
}
