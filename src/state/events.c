/* SPDX-License-Identifier: Apache-2.0 */

/* See events.h. */

#include "state/events.h"

#include "json/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

size_t run_events_time(const char *json, size_t len, uint64_t t_ms, char tail[EVENT_TAIL_MAX])
{
    tail[0] = '\0';
    if (len < 2 || json[0] != '{' || json[len - 1] != '}')
        return len;
    (void)snprintf(
        tail, EVENT_TAIL_MAX, "%s\"t\": %llu}", len == 2 ? "" : ", ", (unsigned long long)t_ms);
    return len - 1;
}

void run_events_add(
    struct run_events *events, const char *name, const char *data, uint64_t t_ms)
{
    char head[64], tail[EVENT_TAIL_MAX + 2];
    uint64_t id = ++events->last_id;
    int head_len = snprintf(
        head, sizeof(head), "id: %llu\nevent: %s\ndata: ", (unsigned long long)id, name);
    size_t data_len = run_events_time(data, strlen(data), t_ms, tail);
    size_t tail_len = strlen(tail);
    memcpy(tail + tail_len, "\n\n", 3);
    size_t len = (size_t)head_len + data_len + tail_len + 2;
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
    memcpy(e->text + head_len + data_len, tail, tail_len + 3);
    if (events->last)
        events->last->next = e;
    else
        events->first = e;
    events->last = e;
    events->bytes += sizeof(*e) + len;
    while (events->bytes > EVENTS_MAX && run_events_shed(events))
        ;
}

/* A piece of output, and the incomplete code point before it. */
struct piece {
    const char *data;
    size_t len;
    enum result_encoding encoding;
    char before[4];
    size_t before_len;
};

/* Writes {"data": ...}. An incomplete code point at the end stays in t->partial. */
static void write_piece(struct json_text *t, const struct piece *piece)
{
    json_text_add(t, "{\"data\": ");
    if (piece->encoding == ENCODE_BASE64) {
        json_text_base64(t, piece->data, piece->len);
    } else {
        json_text_open(t);
        memcpy(t->partial, piece->before, sizeof(t->partial));
        t->partial_len = piece->before_len;
        json_text_part(t, piece->data, piece->len);
        json_text_add(t, "\"");
    }
    json_text_add(t, "}");
}

char *run_events_output(struct run_events *events, enum result_encoding encoding,
    enum run_stream stream, const char *data, size_t len)
{
    struct json_text first = {0};
    struct piece piece = {.data = data,
        .len = len,
        .encoding = encoding,
        .before_len = events->partial[stream].len};
    memcpy(piece.before, events->partial[stream].bytes, sizeof(piece.before));
    write_piece(&first, &piece);
    memcpy(events->partial[stream].bytes, first.partial, sizeof(first.partial));
    events->partial[stream].len = first.partial_len;
    char *text = first.len > strlen("{\"data\": \"\"}") ? malloc(first.len + 1) : NULL;
    if (!text)
        return NULL;
    struct json_text second = {.to = text, .room = first.len};
    write_piece(&second, &piece);
    text[first.len] = '\0';
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
