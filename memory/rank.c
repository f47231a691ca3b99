/*
 * Lists of rows that were ranked by different measures, made one. Ranks and not scores are added:
 * BM25 and cosines have no common scale.
 */
#include "memory/search.h"

#include <stdlib.h>

#include "base/sys.h"

/* Smooths the first ranks; the paper's value. */
#define RANK_OFFSET 60.0

static int compare_rows(const void *a, const void *b)
{
    const struct memory_ranked *x = a, *y = b;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int compare_scores(const void *a, const void *b)
{
    const struct memory_ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

int64_t memory_recall_merge(const struct memory_list *lists, size_t n_lists,
                            struct memory_ranked *ret, size_t max)
{
    size_t n_all = 0, n = 0;
    for (size_t i = 0; i < n_lists; i++)
        n_all += lists[i].n;
    if (n_all == 0 || max == 0)
        return 0;
    struct memory_ranked *all =
        n_all <= SIZE_MAX / sizeof(*all) ? sys.malloc(n_all * sizeof(*all)) : NULL;
    if (!all)
        return -1;
    for (size_t i = 0; i < n_lists; i++) {
        const double offset = lists[i].offset > 0 ? lists[i].offset : RANK_OFFSET;
        for (size_t k = 0; k < lists[i].n; k++)
            all[n++] =
                (struct memory_ranked){.row = lists[i].v[k].row,
                                       .score = lists[i].weight / (offset + (double)(k + 1))};
    }
    qsort(all, n, sizeof(*all), compare_rows);
    size_t n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_rows > 0 && all[n_rows - 1].row == all[i].row)
            all[n_rows - 1].score += all[i].score;
        else
            all[n_rows++] = all[i];
    }
    qsort(all, n_rows, sizeof(*all), compare_scores);
    if (n_rows > max)
        n_rows = max;
    for (size_t i = 0; i < n_rows; i++)
        ret[i] = all[i];
    free(all);
    return (int64_t)n_rows;
}
