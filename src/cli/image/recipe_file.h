/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The recipe of `hermes image build`, from its options and its file, as the JSON of
 * POST /v1/images. */

#include "base/err.h"
#include "base/strv.h"

#include <jansson.h>

struct recipe_words {
    const char *name;     /* or NULL */
    const char *language; /* or NULL */
    struct strv pip;
    struct strv npm;
};
void recipe_words_done(struct recipe_words *words);

/* `file` may be NULL. Options win over members of a JSON file. The caller owns *ret. */
int recipe_file_read(
    const struct recipe_words *words, const char *file, json_t **ret, struct err *err);
