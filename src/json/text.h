/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes JSON straight into the bytes of an answer. A program's output becomes up to six times
 * as long as JSON; a tree of values and a text beside it would hold it three times more. So the
 * writer goes over the answer twice: to measure it, and, once that much is counted and
 * allocated, to write it. */

#include "base/answer.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
    char *to;
    size_t room; /* what is past it is measured, not written */
    size_t len;
    char partial[4]; /* the beginning of a code point, in a string */
    size_t partial_len;
};

/* Called twice with the same context; has to write the same both times. */
typedef void json_writer(struct json_text *t, const void *context);

/* NULL when there is no room in the ledger (NULL: nobody counts) or no memory. */
struct answer *json_text_answer(
    struct ledger *ledger, int owner, json_writer *write, const void *context);

/* The same as a value; NULL without memory. For small ones, and for programs of one user. */
json_t *json_text_load(json_writer *write, const void *context);

/* As it is: names and punctuation. */
void json_text_add(struct json_text *t, const char *text);

/* A string of bytes that are not UTF-8 in all places: each invalid part becomes U+FFFD, as by
 * utf8_repair(). In parts: open, any number of parts, close. */
void json_text_string(struct json_text *t, const char *data, size_t len);
void json_text_open(struct json_text *t);
void json_text_part(struct json_text *t, const char *data, size_t len);
void json_text_close(struct json_text *t);

/* A NUL-terminated one; NULL becomes null. */
void json_text_word(struct json_text *t, const char *word);

/* Base64 as a string. */
void json_text_base64(struct json_text *t, const void *data, size_t len);

void json_text_int(struct json_text *t, int64_t number);
void json_text_real(struct json_text *t, double number); /* twelve digits, as 79.35 and 3.0 */
void json_text_bool(struct json_text *t, bool is_true);

/* Any value, compact. */
void json_text_value(struct json_text *t, const json_t *value);
