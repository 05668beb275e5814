/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Strict reading of the JSON files that ship with Hermes or that an operator adds. Unknown
 * fields, wrong types and duplicate keys are refused with a message that names file and
 * field. */

#include "base/err.h"
#include "lang/runtime.h"

#include <jansson.h>
#include <stdbool.h>

struct json_file {
    const char *path; /* for messages; borrowed */
    struct err *err;  /* receives problems; borrowed */
    json_t *root;
};

/* Parses text (len bytes) that was read from path. The root must be an object. */
int json_file_parse(
    struct json_file *f, const char *path, const char *text, size_t len, struct err *err);
void json_file_done(struct json_file *f);

/* Reports a problem with one field: "PATH: FIELD: message". Returns -EINVAL. */
int json_file_problem(const struct json_file *f, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A place in the file: an object and its dotted name ("" for the root). */
struct json_at {
    const struct json_file *file;
    json_t *object;
    const char *name;
};

/* Refuses keys that are not in the list, which ends with NULL. */
int json_at_keys(struct json_at at, const char *const *keys);

/* These functions leave *ret as it is when the key is missing and not required. Strings are
 * copied. */
int json_at_string(struct json_at at, const char *key, bool required, char **ret);
int json_at_strv(struct json_at at, const char *key, struct strv *ret);
int json_at_map(struct json_at at, const char *key, struct strv *ret); /* "KEY=value" */
int json_at_count(struct json_at at, const char *key, uint32_t max, uint32_t *ret);
int json_at_limits(struct json_at at, const char *key, struct run_limits *ret);

/* Adds a list of paths to *root. A path is "/usr/lib/x" or {"host": ..., "box": ...,
 * "optional": true, "copy": true}. hostpath_expand() expands its text, and {home} and {dir}
 * come from rt (rt may be NULL). */
int json_at_paths(
    struct json_at at, const char *key, const struct runtime *rt, struct root_spec *root);

/* Returns the object under key, or an `at` whose object is NULL when the key is missing.
 * `name_buf` holds the dotted name and must live as long as the result. */
int json_at_object(struct json_at at, const char *key, char name_buf[96], struct json_at *ret);
