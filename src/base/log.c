/* SPDX-License-Identifier: Apache-2.0 */

/* One event, one line, one write(2). A line is at most PIPE_BUF long. The kernel writes that
 * much to a pipe in one piece, so lines of several threads and processes never mix. Values that
 * do not fit are cut. A line that cannot be written is dropped: logging must not stop a run. */

#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static const char *const level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARN] = "warn",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

static atomic_int current_level = LOG_INFO;
static atomic_int log_fd = STDERR_FILENO;

struct line {
    char text[PIPE_BUF];
    size_t len;
};

/* Bytes kept free at the end of a line for its closing quote, brace and newline. */
enum { LINE_TAIL = 3 };

int log_set_level(const char *name)
{
    if (!name)
        return -EINVAL;
    if (strcmp(name, "warning") == 0)
        name = "warn";
    for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            current_level = i;
            return 0;
        }
    }
    return -EINVAL;
}

enum log_level log_get_level(void)
{
    return (enum log_level)current_level;
}

void log_set_fd(int fd)
{
    log_fd = fd;
}

static size_t room(const struct line *line)
{
    size_t end = sizeof(line->text) - LINE_TAIL;
    return line->len < end ? end - line->len : 0;
}

/* Adds text as a whole or not at all. */
static bool add(struct line *line, const char *text, size_t len)
{
    if (len > room(line))
        return false;
    memcpy(line->text + line->len, text, len);
    line->len += len;
    return true;
}

/* Writes the JSON form of one code point to out; returns its length. */
static size_t escape(uint32_t code, const char *bytes, size_t len, char out[8])
{
    if (code == UTF8_INVALID)
        return (size_t)snprintf(out, 8, "\\ufffd");
    if (code == '"' || code == '\\')
        return (size_t)snprintf(out, 8, "\\%c", (char)code);
    if (code == '\n')
        return (size_t)snprintf(out, 8, "\\n");
    if (code == '\t')
        return (size_t)snprintf(out, 8, "\\t");
    /* 0x80 to 0x9f are controls too: some terminals take U+009B as the start of a sequence. */
    if (code < 0x20 || (code >= 0x7f && code <= 0x9f))
        return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)code);
    memcpy(out, bytes, len);
    return len;
}

/* Adds a quoted string, cut where the line is full. */
static void add_quoted(struct line *line, const char *s)
{
    size_t len = strlen(s);

    if (!add(line, "\"", 1))
        return;
    for (size_t i = 0; i < len;) {
        uint32_t code;
        char out[8];
        size_t n = utf8_next(s + i, len - i, &code);
        size_t out_len = escape(code, s + i, n, out);

        if (!add(line, out, out_len))
            break;
        i += n;
    }
    line->text[line->len++] = '"'; /* uses the tail when the line is full */
}

/* Adds ,"name":"value" if there is room for the name and an empty value at least. */
static bool add_field(struct line *line, const char *name, const char *value)
{
    /* Escaping makes at most six bytes of one input byte. */
    size_t worst = strlen(name) * 6 + strlen(",\"\":null");

    if (worst > room(line))
        return false;
    if (line->len > 1)
        (void)add(line, ",", 1);
    add_quoted(line, name);
    (void)add(line, ":", 1);
    if (value)
        add_quoted(line, value);
    else
        (void)add(line, "null", 4);
    return true;
}

static void add_time(struct line *line)
{
    struct timespec now;
    struct tm tm;
    char text[64];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, &tm))
        memset(&tm, 0, sizeof(tm));
    size_t len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + len, sizeof(text) - len, ".%03dZ", (int)(now.tv_nsec / 1000000));
    (void)add_field(line, "time", text);
}

void log_event(enum log_level level, const char *msg, ...)
{
    if ((int)level > current_level)
        return;

    int saved_errno = errno;
    struct line line;
    va_list args;

    line.text[0] = '{';
    line.len = 1;
    add_time(&line);
    (void)add_field(&line, "level", level_names[level]);
    (void)add_field(&line, "msg", msg);
    va_start(args, msg);
    for (;;) {
        const char *name = va_arg(args, const char *);
        if (!name)
            break;
        const char *value = va_arg(args, const char *);
        if (!add_field(&line, name, value) || !value)
            break;
    }
    va_end(args);
    line.text[line.len++] = '}';
    line.text[line.len++] = '\n';

    ssize_t n;
    do {
        n = write(log_fd, line.text, line.len);
    } while (n < 0 && errno == EINTR);
    errno = saved_errno;
}
