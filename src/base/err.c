/* SPDX-License-Identifier: Apache-2.0 */

/* Errors as values. err_table is the only place that maps a code to its name in JSON, its HTTP
 * status and the exit status of the command line: 2 when the request has to change, 125 when
 * Hermes could not do its job. Messages quote names that strangers chose. Therefore this file
 * replaces everything that is not printable UTF-8, so that every message is one line that JSON
 * can carry. */

#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { EXIT_WRONG_REQUEST = 2, EXIT_HERMES_FAILED = 125 };

const struct err_info err_table[ERR_CODE_COUNT] = {
    [ERR_NONE] = {"ok", 200, 0, "Nothing went wrong."},
    [ERR_INVALID] = {"invalid_request", 400, EXIT_WRONG_REQUEST,
        "The request is malformed or a value is not allowed; `field` names the part at fault."},
    [ERR_UNAUTHORIZED] = {"unauthorized", 401, EXIT_WRONG_REQUEST,
        "The API key is missing or wrong."},
    [ERR_FORBIDDEN] = {"forbidden", 403, EXIT_WRONG_REQUEST,
        "The caller is known but may not do this."},
    [ERR_DENIED] = {"approval_denied", 403, EXIT_WRONG_REQUEST,
        "An effect that needs an approval was denied, or not answered in time."},
    [ERR_APPROVAL_UNAVAILABLE] = {"approval_unavailable", 403, EXIT_WRONG_REQUEST,
        "An effect needs an approval, and no approver is reachable."},
    [ERR_NOT_FOUND] = {"not_found", 404, EXIT_WRONG_REQUEST,
        "The object that the request names does not exist."},
    [ERR_METHOD] = {"method_not_allowed", 405, EXIT_WRONG_REQUEST,
        "The path exists but does not take this method."},
    [ERR_CONFLICT] = {"conflict", 409, EXIT_WRONG_REQUEST,
        "The request conflicts with the current state of the object that it names."},
    [ERR_TOO_LARGE] = {"too_large", 413, EXIT_WRONG_REQUEST,
        "The body, a file or a value is larger than allowed."},
    [ERR_URI_TOO_LONG] = {"uri_too_long", 414, EXIT_WRONG_REQUEST,
        "The request's path or query is too long."},
    [ERR_MEDIA_TYPE] = {"unsupported_media_type", 415, EXIT_WRONG_REQUEST,
        "The body's content type is not accepted here."},
    [ERR_MISDIRECTED] = {"misdirected", 421, EXIT_WRONG_REQUEST,
        "The request's Host is not a name of this server."},
    [ERR_UPGRADE] = {"upgrade_required", 426, EXIT_WRONG_REQUEST,
        "The path speaks another protocol than HTTP; the message says which."},
    [ERR_BUILD_FAILED] = {"build_failed", 422, EXIT_WRONG_REQUEST,
        "An image could not be built; the message has the last lines of the log."},
    [ERR_LIMIT] = {"unsupported_limit", 422, EXIT_WRONG_REQUEST,
        "The backend cannot enforce a limit that the request names; `field` says which."},
    [ERR_HEADERS_TOO_LARGE] = {"headers_too_large", 431, EXIT_WRONG_REQUEST,
        "The request's header fields are too large."},
    [ERR_BUSY] = {"busy", 429, EXIT_HERMES_FAILED,
        "Too much is going on at once; try again after `Retry-After` seconds."},
    [ERR_INTERNAL] = {"internal_error", 500, EXIT_HERMES_FAILED,
        "Hermes failed; the user's program is not to blame."},
    [ERR_UNSUPPORTED] = {"unsupported", 501, EXIT_HERMES_FAILED,
        "This host or this build cannot do or enforce what was asked."},
    [ERR_VERSION] = {"version_not_supported", 505, EXIT_WRONG_REQUEST,
        "The request's HTTP version is not 1.1 or 1.0."},
    [ERR_BACKEND] = {"backend_failed", 502, EXIT_HERMES_FAILED,
        "A backend could not be used; `detail.kind` is auth, not_found, refused, limit, "
        "unreachable or lost."},
    [ERR_UNAVAILABLE] = {"unavailable", 503, EXIT_HERMES_FAILED,
        "A part that is needed is not there at the moment."},
    [ERR_NO_SPACE] = {"no_space", 507, EXIT_HERMES_FAILED,
        "The host has no room left for what the request needs."},
};

/* Copies text so that the result is one line of printable UTF-8 and cut between code points. */
static void set_line(char *out, size_t out_size, const char *text)
{
    size_t len = strlen(text);
    size_t used = 0;

    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t n = utf8_next(text + i, len - i, &code);
        bool is_printable = code != UTF8_INVALID && !utf8_is_hidden(code);
        const char *from = is_printable ? text + i : (code == '\n' || code == '\t') ? " " : "?";
        size_t from_len = is_printable ? n : 1;

        if (used + from_len >= out_size)
            break;
        memcpy(out + used, from, from_len);
        used += from_len;
        i += n;
    }
    out[used] = '\0';
}

/* Formats into memory of its own first: the arguments may point into err. */
static void set_message(struct err *err, const char *fmt, va_list args)
{
    char text[sizeof(err->message)];

    if (vsnprintf(text, sizeof(text), fmt, args) < 0)
        text[0] = '\0';
    /* vsnprintf() may have cut through a code point; its first bytes would show as invalid. */
    text[utf8_floor(text, strlen(text))] = '\0';
    set_line(err->message, sizeof(err->message), text);
}

int err_set(struct err *err, enum err_code code, int errnum, const char *fmt, ...)
{
    va_list args;

    if (errnum < 0)
        errnum = -errnum;
    if (err) {
        va_start(args, fmt);
        set_message(err, fmt, args);
        va_end(args);
        err->code = code;
        err->errnum = errnum;
        err->field[0] = '\0';
        err->retry_s = 0;
    }
    return errnum ? -errnum : -EINVAL;
}

int err_retry(struct err *err, int ret, unsigned retry_s)
{
    if (err)
        err->retry_s = retry_s;
    return ret;
}

int err_field(struct err *err, const char *field, const char *fmt, ...)
{
    va_list args;

    if (err) {
        char name[sizeof(err->field)];

        set_line(name, sizeof(name), field ? field : "");
        va_start(args, fmt);
        set_message(err, fmt, args);
        va_end(args);
        err->code = ERR_INVALID;
        err->errnum = EINVAL;
        memcpy(err->field, name, sizeof(name));
    }
    return -EINVAL;
}

enum err_code err_code_of(int errnum)
{
    static const int passing[] = {
        EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, ETOOMANYREFS};

    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (errnum == passing[i])
            return ERR_UNAVAILABLE;
    }
    return ERR_INTERNAL;
}

int err_wrap(struct err *err, int ret, const char *fmt, ...)
{
    char context[sizeof(err->message)];
    char text[sizeof(err->message) * 2 + 2];
    va_list args;

    if (!err)
        return ret;

    /* A failure whose function did not fill in err must not look like success. */
    if (err->code == ERR_NONE) {
        (void)err_set(
            err, ERR_INTERNAL, -ret, "%s", ret < 0 ? strerror(-ret) : "unknown error");
    }
    va_start(args, fmt);
    int len = vsnprintf(context, sizeof(context), fmt, args);
    va_end(args);
    if (len < 0)
        return ret;
    (void)snprintf(text, sizeof(text), "%s: %s", context, err->message);
    set_line(err->message, sizeof(err->message), text);
    return ret;
}
