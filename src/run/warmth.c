/* SPDX-License-Identifier: Apache-2.0 */

/* See warmth.h. */

#include "run/warmth.h"

#include "base/str.h"

#include <string.h>

/* Bytes of arguments and environment. Longer ones start cold, so that execve() reports E2BIG.
 */
enum { WORDS_MAX = 100000 };

static size_t words_size(const struct strv *words)
{
    size_t size = 0;
    for (size_t i = 0; i < words->count; i++)
        size += strlen(words->items[i]) + 1;
    return size;
}

static bool has_prefix_of(
    const char *assignment, const char *const *prefixes, size_t prefix_count)
{
    for (size_t i = 0; i < prefix_count; i++) {
        if (str_has_prefix(assignment, prefixes[i]))
            return true;
    }
    return false;
}

/* Programs of every language read variables with these prefixes when they start: the dynamic
 * loader and the C library do. Those of the interpreter are in runtime.json. */
static bool is_read_early(const struct stage_def *def, const char *assignment)
{
    static const char *const all[] = {"LD_", "LC_", "LANG", "GLIBC_", "MALLOC_"};
    return has_prefix_of(assignment, all, sizeof(all) / sizeof(all[0])) ||
           has_prefix_of(
               assignment, (const char *const *)def->early_env.items, def->early_env.count);
}

const char *warmth_words_problem(const struct stage_def *def, const struct strv *argv,
    const struct strv *env, const struct strv *asked)
{
    if (words_size(argv) + words_size(env) > WORDS_MAX)
        return "long_words";
    for (size_t i = 0; asked && i < asked->count; i++) {
        if (is_read_early(def, asked->items[i]))
            return "environment";
    }
    return NULL;
}

const char *warmth_problem(const struct warmth_question *q)
{
    if (!q->def->warm.count && !q->def->park.max)
        return "language";
    if (q->stage->exec != 0)
        return "program";
    if (q->has_image)
        return "image";
    if (q->mount_count)
        return "mounts";
    if (q->has_template && q->collects)
        return "collect";
    if (q->has_template && q->has_network)
        return "network";
    /* A pool would serve only the first few of them, and their times would differ. */
    if (q->is_compared && q->def->park.max)
        return "compared";
    return warmth_words_problem(q->def, &q->stage->argv, &q->stage->env, q->asked);
}
