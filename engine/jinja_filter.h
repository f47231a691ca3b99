/* Shared by jinja_filter.c and jinja_filter_list.c. */
#ifndef HEARTH_ENGINE_JINJA_FILTER_H
#define HEARTH_ENGINE_JINJA_FILTER_H

#include "engine/jinja_impl.h"

#define FILTER(name)                                                                               \
    static int name(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,  \
                    struct jinja_value *ret)

const struct jinja_filter *jinja_find_list_filter(const struct jinja_str *name);

#endif
