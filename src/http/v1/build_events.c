/* SPDX-License-Identifier: Apache-2.0 */

/* See build_events.h. The work runs on a thread of its own; the connection's thread sends
 * its events. */

#include "http/v1/build_events.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/routes.h"
#include "run/encode.h"
#include "json/body.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Bytes of the log that wait for the client; seconds between two signs of life. STEP_MAX: bytes
 * of one step. */
enum { LOG_MAX = 1 << 20, PAUSE_S = 15, STEP_MAX = 200 };

/* Begins a line of build.sh that tells its next step. */
static const char step_mark[] = "hermes: ";

struct stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct build_work work;
    struct buf log;
    char step[STEP_MAX]; /* the last step that was not sent yet, or "" */
    bool is_done;
    bool is_told;
    unsigned long long count; /* events sent */
    json_t *end;              /* the answer, or {"error": ...} */
    int cancel_fd;
    struct http_request *req; /* NULL until the first event is read */
};

/* Finds the last line of build.sh itself in a piece of the log. A package can write such a
 * line, too: it is only shown. */
static void note_step(struct stream *s, const char *data, size_t len)
{
    size_t mark = sizeof(step_mark) - 1;
    const char *end = data + len;
    for (const char *line = data; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((next ? next : end) - line);
        if (size > mark && size - mark < STEP_MAX && memcmp(line, step_mark, mark) == 0) {
            memcpy(s->step, line + mark, size - mark);
            s->step[size - mark] = '\0';
        }
        line = next ? next + 1 : end;
    }
}

static void on_log(void *context, const char *data, size_t len)
{
    struct stream *s = context;
    (void)pthread_mutex_lock(&s->lock);
    (void)buf_append_some(&s->log, data, len);
    note_step(s, data, len);
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static void *work_thread(void *context)
{
    struct stream *s = context;
    const struct service_log log = {on_log, s, s->cancel_fd};
    struct err err = {0};
    json_t *end = NULL;
    int r = s->work.run(s->work.context, &log, &end, &err);
    if (r < 0)
        end = json_pack("{s:o}", "error", json_error(&err));
    (void)pthread_mutex_lock(&s->lock);
    s->end = end;
    s->is_done = true;
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int write_event(struct stream *s, struct buf *to, const char *name, json_t *data)
{
    cleanup_free char *text = json_dumps(data, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(data);
    return text && buf_printf(
                       to, "id: %llu\nevent: %s\ndata: %s\n\n", ++s->count, name, text) == 0
               ? 1
               : -ENOMEM;
}

/* The log as text. A build can write any bytes; invalid UTF-8 becomes U+FFFD. */
static int write_log(struct stream *s, struct buf *to)
{
    json_t *text = result_text_json(s->log.data, s->log.len, ENCODE_UTF8);
    s->log.len = 0;
    return write_event(s, to, "log", json_pack("{s:o}", "text", text));
}

static int write_step(struct stream *s, struct buf *to)
{
    json_t *text = result_text_json(s->step, strlen(s->step), ENCODE_UTF8);
    s->step[0] = '\0';
    return write_event(s, to, "progress", json_pack("{s:o}", "step", text));
}

static int read_event(void *context, struct http_request *req, struct buf *to)
{
    struct stream *s = context;
    struct timespec until;
    int r = 0;
    if (!s->req)
        http_follow(req, s->cancel_fd);
    s->req = req;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PAUSE_S;
    (void)pthread_mutex_lock(&s->lock);
    while (!s->log.len && !s->step[0] && !s->is_done && r == 0)
        r = pthread_cond_clockwait(&s->changed, &s->lock, CLOCK_MONOTONIC, &until);
    if (s->step[0]) {
        r = write_step(s, to);
    } else if (s->log.len) {
        r = write_log(s, to);
    } else if (s->is_done && !s->is_told) {
        s->is_told = true;
        r = write_event(s, to, "end", json_incref(s->end));
    } else if (s->is_done) {
        r = 0;
    } else {
        r = buf_append_str(to, ": still building\n\n") == 0 ? 1 : -ENOMEM;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static void free_stream(struct stream *s)
{
    s->work.done(s->work.context);
    buf_done(&s->log);
    json_decref(s->end);
    close_fd(&s->cancel_fd);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
    free(s);
}

static void end_reading(void *context)
{
    struct stream *s = context;
    const uint64_t one = 1;
    if (s->req)
        http_unfollow(s->req);
    if (write(s->cancel_fd, &one, sizeof(one)) < 0) /* harmless after the end of the build */
        errno = 0;
    (void)pthread_join(s->thread, NULL);
    free_stream(s);
}

int build_events_reply(struct http_request *req, const struct build_work *work,
    struct http_reply *reply, struct err *err)
{
    struct stream *s = xcalloc(1, sizeof(*s));
    s->work = *work;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    buf_init(&s->log, LOG_MAX);
    s->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = s->cancel_fd < 0 ? errno : pthread_create(&s->thread, NULL, work_thread, s);
    if (r) {
        free_stream(s);
        return err_set(err, ERR_UNAVAILABLE, r,
            "the server has no thread left for this build; try again later");
    }
    reply_events(reply, read_event, end_reading, s);
    return 0;
}
