/* SPDX-License-Identifier: Apache-2.0 */

/* Starts the far shell in a place. A small script looks for it by its hash, asks for it when it
 * is not there, tries it, and becomes it. So a place needs sh, bash and head, and one start of
 * a program is enough. What comes before the nonce is dropped: banners, output of profiles. */

#include "backend/backend.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    OPEN_MS = 30000,     /* from the start of the client to the far shell's first line */
    NOISE_MAX = 1 << 20, /* bytes before that line */
    LINE_MAX_ = 256,
};

/* %1$s nonce, %2$s path of the far shell, %3$s what is done when it is not there, %4$s how it
 * is started. A directory that is not ours is
 * not used: another user could have made it. It is entered before it is looked at, because that
 * user could exchange the name between two looks. */
static const char SCRIPT[] =
    "umask 077; d=; for x in \"${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/hermes\" "
    "\"/tmp/hermes-$(id -u)\"; do f=$(mkdir -p \"$x\" 2>&1); [ -L \"$x\" ] || "
    "d=$(cd -P \"$x\" 2>/dev/null && [ -O . ] && [ -w . ] && pwd -P) && break; done; "
    "say() { printf \"\\\\001%%s\\\\002%%.200s\\\\n\" %1$s \"$1\"; }; "
    "[ -n \"$d\" ] || { say \"nodir ${f##*: }\"; exit 1; }; "
    "command -v bash >/dev/null || { say nobash; exit 1; }; "
    "f=%2$s; if [ ! -x \"$f\" ] || ! \"$f\" --version >/dev/null 2>&1; then %3$s fi; %4$s";

/* Takes it from the stream. %zu: its size. The end of an error's text is what the system says:
 * "No space left on device". */
static const char TAKE[] =
    "say \"need $(uname -m)\"; "
    "x=$( { head -c %zu >\"$f.$$\" && chmod 700 \"$f.$$\" && "
    "mv -f \"$f.$$\" \"$f\"; } 2>&1) || "
    "{ rm -f \"$f.$$\"; say \"nowrite ${x##*: }\"; exit 1; }; "
    "x=$(\"$f\" --version 2>&1 >/dev/null) || { say \"norun ${x##*: }\"; exit 1; };";
static const char ASK[] = "say noshell; exit 1;";
static const char NO_SHELL[] = "noshell";

static const struct {
    const char *line;
    enum place_error error;
    const char *words;
} answers[] = {
    {"gone", PLACE_LOST, "the far shell has ended, and the session's state with it"},
    {"nodir", PLACE_REFUSED,
        "the user has no directory for the far shell: neither ~/.cache/hermes nor "
        "/tmp/hermes-UID can be written"},
    {"nowrite", PLACE_REFUSED, "the far shell cannot be written there"},
    {"nobash", PLACE_REFUSED, "there is no bash in this place; install it"},
    {"norun", PLACE_REFUSED,
        "the far shell was written but does not run there: its directory may be mounted "
        "noexec"},
};

struct opening {
    struct backend *b;
    struct backend_stream *stream;
    uint64_t until_ms;
    bool has_shell; /* it was sent once; a place that asks again is refused */
    bool lacks_shell;
};

enum place_error backend_fail(
    struct backend *b, enum place_error error, const char *format, ...)
{
    char words[2 * PLACE_SAYS]; /* `args` may be b->words */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    (void)place_words(b->words, sizeof(b->words), words, strlen(words));
    return error;
}

void backend_take_request(struct backend *b, const struct place_head *head)
{
    const struct place_limits *most = &b->row->limits;
    b->request = *head;
    b->request.owner[PLACE_ID - 1] = b->request.session[PLACE_ID - 1] = '\0';
    b->request.limits.asked |= most->asked;
    for (uint32_t i = 0; i < PLACE_LIMITS; i++) {
        uint32_t *value = &b->request.limits.value[i];
        if (most->value[i] && (!*value || *value > most->value[i]))
            *value = most->value[i];
    }
}

static void new_id(char out[33])
{
    unsigned char noise[16];
    id_random(noise, sizeof(noise));
    str_hex(noise, sizeof(noise), out);
}

void backend_shell_path(const struct backend *b, char *ret, size_t size)
{
    (void)snprintf(ret, size, "/.hermes/shell-%s", b->hash);
}

static char *make_script(struct backend *b, bool puts, bool is_again)
{
    char path[96];
    cleanup_free char *how = NULL;
    cleanup_free char *otherwise = puts ? xstrdup(ASK) : xasprintf(TAKE, b->shell_len);
    if (puts)
        backend_shell_path(b, path, sizeof(path));
    else
        (void)snprintf(path, sizeof(path), "$d/shell-%s", b->hash);
    new_id(b->nonce);
    if (is_again)
        how = xasprintf("exec \"$f\" --attach \"$d/s-%s\" %s", b->id, b->nonce);
    else if (b->row->reconnect_s)
        how = xasprintf("exec \"$f\" --stay \"$d/s-%s\" %u %s \"$(command -v bash)\"", b->id,
            b->row->reconnect_s, b->nonce);
    else
        how = xasprintf("exec \"$f\" --stdio %s \"$(command -v bash)\"", b->nonce);
    return xasprintf(SCRIPT, b->nonce, path, otherwise, how);
}

/* Takes one byte of the stream: 1, or 0 at its end, after the deadline, or when the session
 * is cancelled. */
static int take_byte(struct opening *o, char *ret)
{
    for (;;) {
        uint64_t now = clock_ms();
        struct pollfd fds[] = {{o->stream->in_fd, POLLIN, 0}, {o->stream->err_fd, POLLIN, 0},
            {o->b->watch_fd, 0, 0}};
        ssize_t n = backend_read(o->stream, ret, 1);
        if (n == 1)
            return 1;
        if (n == 0 || (errno != EAGAIN && errno != EINTR) || now >= o->until_ms)
            return 0;
        if (poll(fds, 3, (int)(o->until_ms - now)) > 0 && fds[1].revents)
            backend_listen(o->stream);
        if (fds[2].revents)
            return 0;
    }
}

/* Waits for the nonce and takes the line behind it. */
static int take_line(struct opening *o, char line[LINE_MAX_])
{
    char mark[40], byte;
    size_t len = (size_t)snprintf(mark, sizeof(mark), "\001%s\002", o->b->nonce);
    size_t matched = 0, used = 0;
    for (size_t seen = 0; matched < len; seen++) {
        if (seen == NOISE_MAX || !take_byte(o, &byte))
            return -EPIPE;
        /* The mark begins with a byte that is nowhere else in it. */
        matched = byte == mark[matched] ? matched + 1 : byte == mark[0] ? 1 : 0;
    }
    while (take_byte(o, &byte)) {
        if (byte == '\n') {
            line[used] = '\0';
            return 0;
        }
        if (used + 1 == LINE_MAX_)
            return -EPROTO;
        line[used++] = byte;
    }
    return -EPIPE;
}

static enum place_error upload(struct opening *o, const char *machine)
{
    struct utsname own;
    if (uname(&own) == 0 && !str_eq(own.machine, machine))
        return backend_fail(o->b, PLACE_REFUSED,
            "the place is %.32s, and there is a far shell for %.32s only", machine,
            own.machine);
    o->has_shell = true;
    if (backend_send(o->b, o->stream, o->b->shell, o->b->shell_len, o->until_ms) == -ETIMEDOUT)
        return backend_fail(o->b, PLACE_UNREACHABLE,
            "the place did not receive the far shell in time; try again");
    return PLACE_FINE; /* another failure shows when the answer is read */
}

/* No far shell answered. The last line of the client's stderr says why. */
static enum place_error explain(struct opening *o, const struct backend_ops *ops)
{
    char quoted[PLACE_SAYS];
    const char *line = backend_last_line(o->stream);
    place_quote(quoted, sizeof(quoted), line);
    (void)backend_fail(o->b, PLACE_REFUSED, "%s",
        line[0]                     ? quoted
        : clock_ms() >= o->until_ms ? "there was no answer for 30 s"
                                    : "the connection ended before the far shell answered");
    return ops->judge(o->b, o->stream->said);
}

/* Reads a line that says why there is no far shell: a word of the table, and the far system's
 * own words. False when the line is something else. */
static bool take_refusal(struct backend *b, const char *line, enum place_error *ret)
{
    char quoted[PLACE_SAYS / 2];
    size_t len = strcspn(line, " ");
    bool has_words = line[len] && line[len + 1];
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (strncmp(line, answers[i].line, len) != 0 || answers[i].line[len])
            continue;
        place_quote(quoted, sizeof(quoted), has_words ? line + len + 1 : "");
        *ret = backend_fail(b, answers[i].error, "%s%s%s", answers[i].words,
            has_words ? ": " : "", has_words ? quoted : "");
        return true;
    }
    return false;
}

static enum place_error converse(
    struct opening *o, const struct backend_ops *ops, uint64_t *ret_received)
{
    char line[LINE_MAX_], quoted[48];
    for (;;) {
        if (take_line(o, line) < 0)
            return explain(o, ops);
        if (str_parse_u64(line, ret_received) == 0)
            return PLACE_FINE;
        o->lacks_shell = str_eq(line, NO_SHELL);
        enum place_error error;
        if (take_refusal(o->b, line, &error))
            return error;
        place_quote(quoted, sizeof(quoted), line);
        error =
            (!ops->put || o->b->takes_stream) && !o->has_shell && str_has_prefix(line, "need ")
                ? upload(o, line + strlen("need "))
                : backend_fail(o->b, PLACE_REFUSED,
                      "the place sent an answer that no far shell sends: %s", quoted);
        if (error)
            return error;
    }
}

/* Makes one attempt. *ret_lacks: the place does not have the far shell. */
static enum place_error join(struct backend *b, const struct backend_ops *ops, bool is_again,
    struct backend_stream *ret, uint64_t *ret_received, bool *ret_lacks)
{
    cleanup_free char *script = make_script(b, ops->put && !b->takes_stream, is_again);
    struct opening o = {.b = b, .stream = ret, .until_ms = clock_ms() + OPEN_MS};
    backend_stream_init(ret);
    enum place_error error = ops->stream(b, script, ret);
    if (error == PLACE_FINE) {
        error = converse(&o, ops, ret_received);
        *ret_lacks = error && o.lacks_shell;
        b->was_joined = b->was_joined || !error;
        ret->said_len = 0; /* the words so far are not the cause of a later end */
        ret->said[0] = '\0';
    }
    if (error)
        backend_stream_close(ret);
    return error;
}

enum place_error backend_open(
    struct backend *b, bool is_again, struct backend_stream *ret, uint64_t *ret_received)
{
    const struct backend_ops *ops = backend_ops_of(b->row->kind);
    bool lacks = false;
    if (!b->id[0])
        new_id(b->id);
    backend_stream_init(ret);
    if (!ops)
        return backend_fail(
            b, PLACE_REFUSED, "hermes-places does not know this kind of backend");
    enum place_error error = ops->open ? ops->open(b, is_again) : PLACE_FINE;
    if (error == PLACE_FINE)
        error = join(b, ops, is_again, ret, ret_received, &lacks);
    if (lacks && ops->put && (error = ops->put(b)) == PLACE_FINE)
        error = join(b, ops, is_again, ret, ret_received, &lacks);
    return error;
}

void backend_close(struct backend *b)
{
    const struct backend_ops *ops = backend_ops_of(b->row->kind);
    if (ops && ops->close)
        ops->close(b);
}

const struct backend_ops *backend_ops_of(uint32_t kind)
{
    static const struct backend_ops *const rows[PLACE_KINDS] = {[PLACE_LOCAL] = &backend_local,
        [PLACE_SSH] = &backend_ssh,
        [PLACE_PLUGIN] = &backend_plugin,
        [PLACE_APPTAINER] = &backend_apptainer,
        [PLACE_DOCKER] = &backend_docker};
    return kind < PLACE_KINDS ? rows[kind] : NULL;
}
