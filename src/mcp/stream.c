/* SPDX-License-Identifier: Apache-2.0 */

/* See stream.h. Event ids are STREAM-EVENT: unique in a session, and they name their stream. */

#include "mcp/stream.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/ledger.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

struct event {
    uint64_t number;
    char *text; /* NULL: the reader hangs up */
    size_t len;
    unsigned retry_ms;
    struct event *next;
};

struct mcp_stream {
    atomic_uint refs;
    uint64_t number;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct event *first, *last;
    uint64_t count; /* events so far */
    size_t bytes;
    unsigned kept;
    bool is_over;
    struct purse purse;
};

struct mcp_stream *mcp_stream_new(uint64_t number, struct ledger *ledger, int owner)
{
    struct mcp_stream *s = xcalloc(1, sizeof(*s));
    pthread_condattr_t attributes;
    s->refs = 1;
    s->number = number;
    purse_open(&s->purse, ledger, owner);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->news, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return s;
}

struct mcp_stream *mcp_stream_ref(struct mcp_stream *s)
{
    s->refs++;
    return s;
}

static void drop_first(struct mcp_stream *s)
{
    struct event *e = s->first;
    s->first = e->next;
    if (!s->first)
        s->last = NULL;
    s->bytes -= e->len;
    s->kept--;
    purse_give(&s->purse, e->len);
    free(e->text);
    free(e);
}

void mcp_stream_unref(struct mcp_stream *s)
{
    if (!s || --s->refs)
        return;
    while (s->first)
        drop_first(s);
    purse_close(&s->purse);
    (void)pthread_cond_destroy(&s->news);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

uint64_t mcp_stream_number(const struct mcp_stream *s)
{
    return s->number;
}

/* Takes text. */
static void put(struct mcp_stream *s, char *text, unsigned retry_ms)
{
    struct event *e = xcalloc(1, sizeof(*e));
    e->text = text;
    e->len = text ? strlen(text) : 0;
    e->retry_ms = retry_ms;
    if (!purse_take(&s->purse, e->len)) {
        free(e->text);
        free(e);
        mcp_stream_end(s);
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    e->number = ++s->count;
    if (s->last)
        s->last->next = e;
    else
        s->first = e;
    s->last = e;
    s->bytes += e->len;
    s->kept++;
    while (s->first != s->last && (s->kept > MCP_STREAM_EVENTS || s->bytes > MCP_STREAM_BYTES))
        drop_first(s);
    (void)pthread_cond_broadcast(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
}

void mcp_stream_put(struct mcp_stream *s, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    if (text)
        put(s, text, 0);
}

void mcp_stream_prime(struct mcp_stream *s)
{
    put(s, xstrdup(""), 0);
}

void mcp_stream_hang_up(struct mcp_stream *s, unsigned retry_ms)
{
    put(s, NULL, retry_ms);
}

void mcp_stream_end(struct mcp_stream *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->is_over = true;
    (void)pthread_cond_broadcast(&s->news);
    (void)pthread_mutex_unlock(&s->lock);
}

static int append(const struct mcp_stream *s, const struct event *e, struct buf *to)
{
    if (!e->text)
        return buf_printf(to, "retry: %u\n\n", e->retry_ms) < 0 ? -ENOMEM : 0;
    int r = s->number ? buf_printf(to, "id: %llu-%llu\n", (unsigned long long)s->number,
                            (unsigned long long)e->number)
                      : 0;
    if (r >= 0 && e->len)
        r = buf_append_str(to, "event: message\n");
    if (r >= 0)
        r = buf_append_str(to, "data: ");
    if (r >= 0)
        r = buf_append(to, e->text, e->len);
    if (r >= 0)
        r = buf_append_str(to, "\n\n");
    return r < 0 ? r : 1;
}

static struct event *next_of(const struct mcp_stream *s, uint64_t after)
{
    struct event *e = s->first;
    while (e && e->number <= after)
        e = e->next;
    return e;
}

int mcp_stream_read(struct mcp_stream *s, uint64_t *after, int timeout_ms, struct buf *to)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)timeout_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&s->lock);
    struct event *e;
    int r = 0;
    while (!(e = next_of(s, *after)) && !s->is_over && r == 0)
        r = pthread_cond_timedwait(&s->news, &s->lock, &until);
    if (e) {
        r = append(s, e, to);
        *after = e->number;
        if (!s->number)
            drop_first(s);
    } else {
        r = s->is_over ? 0 : -ETIMEDOUT;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}
