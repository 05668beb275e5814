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
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

/* Adds text with the escapes of JSON, cut where the line is full. */
static void add_escaped(struct line *line, const char *s)
{
    size_t len = strlen(s);

    for (size_t i = 0; i < len;) {
        uint32_t code;
        char out[8];
        size_t n = utf8_next(s + i, len - i, &code);
        size_t out_len = escape(code, s + i, n, out);

        if (!add(line, out, out_len))
            break;
        i += n;
    }
}

static void add_quoted(struct line *line, const char *s)
{
    if (!add(line, "\"", 1))
        return;
    add_escaped(line, s);
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

/* The present time, in UTC; returns the milliseconds. */
static int now_utc(struct tm *ret)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!gmtime_r(&now.tv_sec, ret))
        memset(ret, 0, sizeof(*ret));
    return (int)(now.tv_nsec / 1000000);
}

static void add_time(struct line *line)
{
    struct tm tm;
    char text[64];

    int ms = now_utc(&tm);
    size_t len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + len, sizeof(text) - len, ".%03dZ", ms);
    (void)add_field(line, "time", text);
}

/* Looks at the device number. */
bool log_is_terminal(int fd)
{
    enum { MAJOR_TTY = 4, MAJOR_CONSOLE = 5, MAJOR_PTS_FIRST = 136, MAJOR_PTS_LAST = 143 };
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
        return false;
    unsigned number = major(st.st_rdev);
    return number == MAJOR_TTY || number == MAJOR_CONSOLE ||
           (number >= MAJOR_PTS_FIRST && number <= MAJOR_PTS_LAST);
}

/* The beginning of a line for people: "12:00:00 info  listening". */
static void begin_for_people(struct line *line, enum log_level level, const char *msg)
{
    struct tm tm;
    char text[64];

    (void)now_utc(&tm);
    size_t len = strftime(text, sizeof(text), "%H:%M:%S", &tm);
    len += (size_t)snprintf(text + len, sizeof(text) - len, " %-5s ", level_names[level]);
    (void)add(line, text, len);
    add_escaped(line, msg);
}

/* Adds " name=value", or nothing for an empty value. */
static bool add_for_people(struct line *line, const char *name, const char *value)
{
    if (value && !*value)
        return true;
    if (strlen(name) + 2 > room(line))
        return false;
    (void)add(line, " ", 1);
    (void)add(line, name, strlen(name));
    (void)add(line, "=", 1);
    add_escaped(line, value ? value : "null");
    return true;
}

void log_event(enum log_level level, const char *msg, ...)
{
    if ((int)level > current_level)
        return;

    int saved_errno = errno;
    struct line line;
    va_list args;

    bool for_people = log_is_terminal(log_fd);
    line.len = 0;
    if (for_people) {
        begin_for_people(&line, level, msg);
    } else {
        line.text[line.len++] = '{';
        add_time(&line);
        (void)add_field(&line, "level", level_names[level]);
        (void)add_field(&line, "msg", msg);
    }
    va_start(args, msg);
    for (;;) {
        const char *name = va_arg(args, const char *);
        if (!name)
            break;
        const char *value = va_arg(args, const char *);
        bool fits =
            for_people ? add_for_people(&line, name, value) : add_field(&line, name, value);
        if (!fits || !value)
            break;
    }
    va_end(args);
    if (!for_people)
        line.text[line.len++] = '}';
    line.text[line.len++] = '\n';

    ssize_t n;
    do {
        n = write(log_fd, line.text, line.len);
    } while (n < 0 && errno == EINTR);
    errno = saved_errno;
}
