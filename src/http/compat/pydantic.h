/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks request fields as FastAPI does, for routes whose users come from there. All problems
 * are reported at once, as {"detail": [{"type", "loc", "msg", "input", "ctx"?}]} with status
 * 422; any other error is {"detail": "text"}. Types are lax ("10" and 10.0 are integers, "yes"
 * and 1 are true) and unknown fields are ignored. */

#include "http/http.h"
#include "http/routes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT,
    FIELD_NUMBER, /* an integer */
    FIELD_BOOL,
    FIELD_TEXTS,  /* an object whose values are strings */
    FIELD_OBJECT, /* an object with `members` */
};

struct field {
    const char *name;
    enum field_kind kind;
    bool required;
    bool nullable;               /* null counts as absent */
    const struct field *members; /* of FIELD_OBJECT */
    size_t member_count;
};

struct field_value {
    const json_t *json; /* borrowed from the body; NULL when absent, null or invalid */
    int64_t number;     /* the integer, or 0 and 1 for FIELD_BOOL */
};

/* Parses the body of the request into an object that the caller owns. Otherwise returns -EINVAL
 * and adds the problem to `detail`. */
int fastapi_body(const struct http_request *req, json_t **ret, json_t *detail);

/* Checks the body against `count` fields and fills in `count` values. */
void fastapi_check(const json_t *body, const struct field *fields, size_t count,
    struct field_value *values, json_t *detail);

/* Reads the integer `name` of the query. Keeps *value when it is absent. */
void fastapi_query_number(
    const struct http_request *req, const char *name, int64_t *value, json_t *detail);

/* Adds a problem of ["body", field]. The text gets pydantic's prefix "Value error, ". */
void fastapi_value_error(json_t *detail, const char *field, const json_t *input,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Adds a problem of [where, field] when the number is out of range. */
void fastapi_check_range(json_t *detail, const char *where, const char *field,
    const json_t *input, int64_t number, int64_t least, int64_t most);

/* Replies 422 with the list of problems. */
void fastapi_refuse(struct http_reply *reply, const json_t *detail);
