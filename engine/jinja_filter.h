/* Shared by jinja_filter*.c. */
#ifndef HEARTH_ENGINE_JINJA_FILTER_H
#define HEARTH_ENGINE_JINJA_FILTER_H

#include "engine/jinja_impl.h"

#define FILTER(name)                                                                               \
    static int name(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,  \
                    struct jinja_value *ret)

/* What items are sorted and compared by. */
struct jinja_by {
    const struct jinja_value *attribute; /* or NULL */
    const struct jinja_value *missing;   /* stands for what is undefined on the way; or NULL */
    bool is_case_sensitive;
    int64_t item; /* of a pair; -1: all of it */
};
int jinja_key_of(struct jinja_run *r, const struct jinja_value *v, const struct jinja_by *by,
                 struct jinja_value *ret) MUST_USE;
/* In place, stable. is_listed: keys are compared as the items of lists are, by == before <. */
int jinja_sort(struct jinja_run *r, struct jinja_list *l, const struct jinja_by *by,
               bool is_reverse, bool is_listed) MUST_USE;
/* Whether an argument was given and is true. */
bool jinja_is_true(const struct jinja_value *v);
/* Arguments that Python wants to be bool or int: anything else is refused. */
int jinja_need_flag(struct jinja_run *r, const struct jinja_value *v) MUST_USE;

const struct jinja_filter *jinja_find_group_filter(const struct jinja_str *name);
const struct jinja_filter *jinja_find_list_filter(const struct jinja_str *name);

#endif
