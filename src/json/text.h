/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes JSON straight into the bytes of an answer. JSON makes the output of a program up to
 * six times as long; a tree of values and a text beside it would hold it three times more. So
 * the writer runs twice: once to measure, and once to write, after that much was counted and
 * allocated. */

#include "base/answer.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
    char *to;
    size_t room; /* bytes at `to`; text beyond them is measured but not written */
    size_t len;
    char partial[4]; /* the first bytes of a code point that continues in the next part */
    size_t partial_len;
};

/* Called twice with the same context. Must write the same text both times. */
typedef void json_writer(struct json_text *t, const void *context);

/* Returns NULL when the ledger refuses or memory is short. With a NULL ledger the bytes are not
 * counted. `held` counts what is encoded, which the caller frees if there is no answer; or
 * NULL. */
struct answer *json_text_answer(struct ledger *ledger, int owner, struct purse *held,
    json_writer *write, const void *context);

/* The same as a jansson value; NULL when memory is short. For small values, and for programs
 * that serve one user. */
json_t *json_text_load(json_writer *write, const void *context);

/* Adds text unchanged: names and punctuation. */
void json_text_add(struct json_text *t, const char *text);

/* Adds a string of bytes that may be invalid UTF-8. Each invalid part becomes U+FFFD, as in
 * utf8_repair(). json_text_string() adds it at once; the other three add it in parts: open, any
 * number of parts, close. */
void json_text_string(struct json_text *t, const char *data, size_t len);
void json_text_open(struct json_text *t);
void json_text_part(struct json_text *t, const char *data, size_t len);
void json_text_close(struct json_text *t);

/* Adds a NUL-terminated string; NULL becomes null. */
void json_text_word(struct json_text *t, const char *word);

/* Adds bytes as a base64 string. */
void json_text_base64(struct json_text *t, const void *data, size_t len);

void json_text_int(struct json_text *t, int64_t number);
void json_text_real(struct json_text *t, double number); /* twelve digits: 79.35, 3.0 */
void json_text_bool(struct json_text *t, bool is_true);

/* Adds any value in compact form. */
void json_text_value(struct json_text *t, const json_t *value);
