/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Errors that a user may see. The caller owns a struct err on its stack. Functions that take
 * one return 0 or a negative errno and fill it in on failure only. A user program that fails is
 * not an error but a run_result. */

#include <stddef.h>

enum err_code {
    ERR_NONE = 0,
    ERR_INVALID, /* the request is wrong; `field` may name the part */
    ERR_UNAUTHORIZED,
    ERR_FORBIDDEN,
    ERR_DENIED,
    ERR_APPROVAL_UNAVAILABLE,
    ERR_NOT_FOUND,
    ERR_METHOD,
    ERR_CONFLICT,
    ERR_TOO_LARGE,
    ERR_URI_TOO_LONG,
    ERR_MEDIA_TYPE,
    ERR_MISDIRECTED,
    ERR_UPGRADE,
    ERR_BUILD_FAILED,
    ERR_LIMIT,
    ERR_HEADERS_TOO_LARGE,
    ERR_BUSY,
    ERR_INTERNAL,
    ERR_UNSUPPORTED,
    ERR_VERSION,
    ERR_BACKEND,
    ERR_UNAVAILABLE,
    ERR_NO_SPACE,
    ERR_CODE_COUNT
};

struct err {
    enum err_code code;
    int errnum;        /* positive errno behind it, or 0 */
    unsigned retry_s;  /* seconds after which a retry makes sense; 0: not known */
    const char *kind;  /* of a backend's failure (proto/place.h), or NULL */
    char field[96];    /* request field or flag at fault, or "" */
    char message[512]; /* one line: what happened and what to do next */
};

/* One row per code, err_table[code]: the only mapping of a code to the outside. */
struct err_info {
    const char *name; /* "invalid_request": the code in JSON */
    int http_status;
    int exit_status;  /* of the command line */
    const char *text; /* what it means, for the docs */
};
extern const struct err_info err_table[ERR_CODE_COUNT];

/* Sets *err and returns -errnum (or -EINVAL when errnum is 0), so that a failing function can
 * `return err_set(...)`. A message that does not fit is cut. err may be NULL. */
int err_set(struct err *err, enum err_code code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with ERR_INVALID and EINVAL, and with the name of the request field at fault. */
int err_field(struct err *err, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds when a retry makes sense to an err that is set; returns ret unchanged. */
int err_retry(struct err *err, int ret, unsigned retry_s);

/* The code for a system call that failed. ERR_UNAVAILABLE when the machine is only short of
 * something for the moment (descriptors, processes, memory, space); otherwise ERR_INTERNAL. */
enum err_code err_code_of(int errnum);

/* Puts "context: " in front of the message in err; returns ret unchanged. An err that is still
 * ERR_NONE becomes ERR_INTERNAL first. */
int err_wrap(struct err *err, int ret, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
