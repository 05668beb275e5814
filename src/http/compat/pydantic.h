/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How FastAPI looks at a request and tells what is wrong with it, for surfaces whose users come
 * from there: every problem at once, as {"detail": [{"type", "loc", "msg", "input", "ctx"?}]}
 * with status 422; any other error is {"detail": "text"}. It is lax about types ("10" and 10.0
 * are whole numbers, "yes" and 1 are true) and ignores fields it does not know. */

#include "http/http.h"
#include "http/routes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT,
    FIELD_NUMBER, /* whole */
    FIELD_BOOL,
    FIELD_TEXTS,  /* an object whose values are strings */
    FIELD_OBJECT, /* an object with `members` */
};

struct field {
    const char *name;
    enum field_kind kind;
    bool required;
    bool nullable;               /* null is as good as left out */
    const struct field *members; /* of FIELD_OBJECT */
    size_t member_count;
};

struct field_value {
    const json_t *json; /* borrowed from the body; NULL when left out, null or not valid */
    int64_t number;     /* of FIELD_NUMBER, 0 or 1 of FIELD_BOOL */
};

/* Parses the request's body into an object that the caller owns. Otherwise -EINVAL, and the
 * reason is in detail. */
int fastapi_body(const struct http_request *req, json_t **ret, json_t *detail);

/* Checks body against `count` fields and fills in as many values. */
void fastapi_check(const json_t *body, const struct field *fields, size_t count,
    struct field_value *values, json_t *detail);

/* The whole number `name` of the query; keeps *value when it is not there. */
void fastapi_query_number(
    const struct http_request *req, const char *name, int64_t *value, json_t *detail);

/* Adds a problem of ["body", field]; `say` is completed by pydantic's "Value error, ". */
void fastapi_value_error(json_t *detail, const char *field, const json_t *input,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Adds a problem of [where, field] when number is outside the bounds. */
void fastapi_check_range(json_t *detail, const char *where, const char *field,
    const json_t *input, int64_t number, int64_t least, int64_t most);

/* 422 with the list. */
void fastapi_refuse(struct http_reply *reply, const json_t *detail);
