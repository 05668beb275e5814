/* SPDX-License-Identifier: Apache-2.0 */

/* See strv.h. Sizes are those of Hermes' own lists, so running out of memory ends the
 * program. */

#include "base/strv.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void strv_add_owned(struct strv *v, char *s)
{
    /* The terminating NULL takes a place too, so the count that decides on growth includes
     * it. */
    v->items = xgrow(v->items, v->count + 1, sizeof(*v->items));
    v->items[v->count++] = s;
    v->items[v->count] = NULL;
}

void strv_add(struct strv *v, const char *s)
{
    strv_add_owned(v, xstrdup(s));
}

void strv_add_all(struct strv *v, const struct strv *other)
{
    for (size_t i = 0; i < other->count; i++)
        strv_add(v, other->items[i]);
}

bool strv_has(const struct strv *v, const char *s)
{
    for (size_t i = 0; i < v->count; i++) {
        if (strcmp(v->items[i], s) == 0)
            return true;
    }
    return false;
}

void strv_done(struct strv *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->items[i]);
    free(v->items);
    *v = (struct strv){0};
}
