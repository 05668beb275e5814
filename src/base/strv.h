/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A list of owned strings. */

#include <stdbool.h>
#include <stddef.h>

struct strv {
    char **items; /* NULL-terminated when not NULL */
    size_t count;
};
void strv_add(struct strv *v, const char *s); /* copies */
void strv_add_owned(struct strv *v, char *s); /* takes */
void strv_add_all(struct strv *v, const struct strv *other);
bool strv_has(const struct strv *v, const char *s);
void strv_done(struct strv *v);
