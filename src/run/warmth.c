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

/* Interpreters and the C library read variables with these prefixes when they start. */
static bool is_read_early(const char *assignment)
{
    static const char *const prefixes[] = {"PYTHON", "NODE_", "UV_", "JAVA", "JDK_", "_JAVA",
        "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "SSL", "OPENSSL_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (str_has_prefix(assignment, prefixes[i]))
            return true;
    }
    return false;
}

const char *warmth_words_problem(
    const struct strv *argv, const struct strv *env, const struct strv *asked)
{
    if (words_size(argv) + words_size(env) > WORDS_MAX)
        return "long_words";
    for (size_t i = 0; asked && i < asked->count; i++) {
        if (is_read_early(asked->items[i]))
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
    return warmth_words_problem(&q->stage->argv, &q->stage->env, q->asked);
}
