/* Admission: a counter with two ends. Which of the admitted turns runs next is the worker's affair.
 * */
#include "daemon/sched.h"

#include <assert.h>

void sched_init(struct sched *s, int parallel, int queue)
{
    *s = (struct sched){.parallel = parallel, .queue = queue};
}

bool sched_is_full(const struct sched *s)
{
    return s->n_places >= s->parallel + s->queue;
}

int sched_queued(const struct sched *s)
{
    return s->n_places > s->parallel ? s->n_places - s->parallel : 0;
}

bool sched_take(struct sched *s)
{
    if (sched_is_full(s))
        return false;
    s->n_places++;
    return true;
}

void sched_give_back(struct sched *s)
{
    assert(s->n_places > 0);
    s->n_places--;
}
