/* SPDX-License-Identifier: Apache-2.0 */

/* See run_events.h. */

#include "core/run_events.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENTS_MAX = 2 << 20, /* bytes of one run's events; the oldest are dropped */
};

struct event {
    struct event *next;
    uint64_t id;
    size_t len;
    char text[];
};

static void drop_first(struct run_events *events)
{
    struct event *e = events->first;
    events->first = e->next;
    if (!events->first)
        events->last = NULL;
    events->dropped_id = e->id;
    events->bytes -= sizeof(*e) + e->len;
    free(e);
}

bool run_events_shed(struct run_events *events)
{
    if (events->first == events->last)
        return false;
    drop_first(events);
    return true;
}

void run_events_drop(struct run_events *events)
{
    while (events->first)
        drop_first(events);
}

void run_events_add(struct run_events *events, const char *name, const char *data)
{
    char head[64];
    uint64_t id = ++events->last_id;
    int head_len = snprintf(
        head, sizeof(head), "id: %llu\nevent: %s\ndata: ", (unsigned long long)id, name);
    size_t data_len = strlen(data);
    size_t len = (size_t)head_len + data_len + 2;
    struct event *e = malloc(sizeof(*e) + len + 1);
    if (!e) {
        events->dropped_id = id;
        return;
    }
    e->next = NULL;
    e->id = id;
    e->len = len;
    memcpy(e->text, head, (size_t)head_len);
    memcpy(e->text + head_len, data, data_len);
    memcpy(e->text + head_len + data_len, "\n\n", 3);
    if (events->last)
        events->last->next = e;
    else
        events->first = e;
    events->last = e;
    events->bytes += sizeof(*e) + len;
    while (events->bytes > EVENTS_MAX && run_events_shed(events))
        ;
}

/* Bytes as text; NULL when nothing of it is whole. */
static json_t *text_json(
    struct run_events *events, enum run_stream stream, const char *data, size_t len)
{
    size_t kept = events->partial[stream].len;
    cleanup_free char *joined = xmalloc(kept + len);
    memcpy(joined, events->partial[stream].bytes, kept);
    memcpy(joined + kept, data, len);
    size_t whole = utf8_floor(joined, kept + len);
    if (kept + len - whole > sizeof(events->partial[stream].bytes))
        whole = kept + len;
    events->partial[stream].len = kept + len - whole;
    memcpy(events->partial[stream].bytes, joined + whole, events->partial[stream].len);
    size_t text_len;
    cleanup_free char *text = utf8_repair(joined, whole, &text_len);
    return text_len ? json_stringn_nocheck(text, text_len) : NULL;
}

char *run_events_output(struct run_events *events, enum result_encoding encoding,
    enum run_stream stream, const char *data, size_t len)
{
    json_t *value;
    if (encoding == ENCODE_BASE64) {
        cleanup_free char *text = result_base64(data, len);
        value = json_string(text);
    } else {
        value = text_json(events, stream, data, len);
    }
    if (!value)
        return NULL;
    json_t *object = json_pack("{s:o}", "data", value);
    char *text = json_dumps(object, 0);
    json_decref(object);
    return text;
}

int run_events_copy(const struct run_events *events, uint64_t *after_id, struct buf *to)
{
    if (*after_id < events->dropped_id) {
        (void)buf_printf(to, ": events up to %llu are no longer kept\n\n",
            (unsigned long long)events->dropped_id);
        *after_id = events->dropped_id;
    }
    for (const struct event *e = events->first; e; e = e->next) {
        if (e->id <= *after_id)
            continue;
        if (to->len && to->len + e->len > EVENTS_READ_MAX)
            return 1;
        if (buf_append(to, e->text, e->len) < 0)
            return -EMSGSIZE;
        *after_id = e->id;
    }
    return 0;
}
