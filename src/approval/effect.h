/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Effects: what code in a box does to something outside the box. An approval concerns one
 * effect in its canonical form: a JSON object with `kind` and every field of the kind (null
 * when it has no value), names sorted, without spaces. What is shown, matched by rules and
 * bound by grants is this form, never the text of a command. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum effect_kind {
    EFFECT_TOOL_CALL,
    EFFECT_NET_CONNECT,
    EFFECT_MOUNT_RW,
    EFFECT_SECRET_USE,
    EFFECT_HOST_EXEC,
    EFFECT_PUBLISH, /* no caller yet */
    EFFECT_KIND_COUNT
};

/* How a pattern of a rule is compared with a field. */
enum effect_match {
    MATCH_GLOB,    /* string: `*` stops at `.` and `/`, `**` does not */
    MATCH_HOST,    /* string: a name, *.name (every name below it), or * */
    MATCH_ADDRESS, /* string: an address, a range, or * */
    MATCH_NUMBER,  /* whole number: 443, "80-90", or "*" */
    MATCH_FLAG,    /* true or false */
    MATCH_WORDS, /* list of words: a string is as MATCH_GLOB, a last "**" takes the rest. A word
                    whose value is not known is {"dynamic": SOURCE} */
    MATCH_OBJECT, /* object: the members of the pattern, each by its type */
};

struct effect_field {
    const char *name;
    enum effect_match match;
    bool is_required;
    bool is_bound; /* a grant binds it; other fields are only shown, because they differ between
                      two attempts at the same effect */
};

enum { EFFECT_FIELDS_MAX = 12, EFFECT_TEXT_MAX = 64 << 10, EFFECT_DIGEST = 65 };

struct effect_row {
    const char *name;
    const char *text;       /* what it is, for documents */
    bool asks_without_mode; /* asked also when approval_mode is off */
    bool carries_out;       /* data may leave with it (the third flow flag) */
    struct effect_field fields[EFFECT_FIELDS_MAX];
};
extern const struct effect_row effect_table[EFFECT_KIND_COUNT];

/* -ENOENT when there is no such kind. */
int effect_kind_find(const char *name);
const struct effect_field *effect_field_find(enum effect_kind kind, const char *name);

struct effect {
    enum effect_kind kind;
    json_t *json;               /* the canonical form */
    char *text;                 /* its bytes */
    char digest[EFFECT_DIGEST]; /* SHA-256 of the bound fields in hexadecimal, for grants */
};

/* Makes an effect from its fields (borrowed). An unknown, missing or wrong field is
 * ERR_INVALID; a text of more than EFFECT_TEXT_MAX bytes is ERR_TOO_LARGE. */
int effect_make(
    enum effect_kind kind, const json_t *fields, struct effect *ret, struct err *err);
int effect_copy(const struct effect *from, struct effect *ret);
void effect_done(struct effect *effect);

/* Reads a canonical form, or an example of a rule: an object with `kind` and fields. */
int effect_read(const json_t *object, struct effect *ret, struct err *err);

/* The effect as one short line for a person: "connect to example.com:443 (tcp)". The caller
 * frees it. Bytes of a stranger are made printable. */
char *effect_describe(const struct effect *effect);

/* The one spelling of a host: lower case, without a trailing dot, an address as it is printed.
 * -EINVAL when it is not ASCII or too long: an international name is written in its xn-- form.
 */
enum { EFFECT_HOST = 256 };
int effect_host(const char *text, char out[EFFECT_HOST]);

/* SHA-256 of bytes as hexadecimal text. */
void digest_hex(const void *data, size_t len, char out[EFFECT_DIGEST]);
