/* SPDX-License-Identifier: Apache-2.0 */

/* Lists files below /box: for callers, and to find the files that an exec changed. */

#include "session/files/transfer.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "run/encode.h"
#include "session/internal.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    LIST_MAX = 10000, /* entries of a listing */
    ITEM_COST = 1536, /* bytes of memory that an entry takes as JSON values, beside its name */
    LIST_NAME_BYTES = 4 << 20, /* all names together */
    LIST_MS = 5000,            /* the helper stops walking after this */
    CHANGED_MAX = 1000,        /* entries of files_changed */
    CHANGED_NAME_BYTES = 256 << 10,
    CHANGED_MS = 200,        /* short: every exec waits for this walk */
    WATCHER_STALL_MS = 2000, /* the watcher is given up after this */
    /* Waits for the next file stamp: 40 steps of 0.5 ms, longer than a clock tick. */
    STAMP_STEPS = 40,
    STAMP_STEP_NS = 500000,
};

struct item {
    char *name;
    struct files_record entry;
};

struct items {
    struct item *list;
    size_t count;
    size_t room;
    size_t name_bytes;
    int64_t stamp_ns;
    bool cut;
};

static void items_done(struct items *items)
{
    for (size_t i = 0; i < items->count; i++)
        free(items->list[i].name);
    free(items->list);
}

static void items_add(struct items *items, const struct files_record *entry, const char *name)
{
    if (items->count == items->room) {
        items->room = items->room ? items->room * 2 : 64;
        items->list = xreallocarray(items->list, items->room, sizeof(*items->list));
    }
    items->list[items->count++] = (struct item){.name = xstrdup(name), .entry = *entry};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

/* Takes the entries of an answer up to its end. When a helper sends more than it was asked for,
 * the caller ends the conversation. */
static int take_items(struct transfer *t, size_t max, size_t max_bytes, struct items *items)
{
    char name[FILES_NAME_MAX + 1];
    struct files_record record;
    int r;
    while ((r = transfer_next(t, &record, name)) == 0 && record.kind == FILES_ENTRY) {
        items->name_bytes += record.name_len;
        if (items->count == max || items->name_bytes > max_bytes) {
            items->cut = true;
            return -E2BIG;
        }
        if (!purse_take(&t->purse, ITEM_COST + 3 * (size_t)record.name_len))
            return -ENOMEM;
        items_add(items, &record, name);
    }
    if (r == 0 && record.kind == FILES_END) {
        items->cut = record.error == -E2BIG;
        items->stamp_ns = record.mtime_ns;
        r = items->cut || record.error > 0 ? 0 : record.error;
    } else if (r == 0) {
        r = -EBADMSG;
    }
    if (items->count)
        qsort(items->list, items->count, sizeof(*items->list), by_name);
    return r;
}

static const char *type_name(unsigned mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "link";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

static json_t *item_json(const struct item *item)
{
    const struct files_record *e = &item->entry;
    char mode[8];
    char when[40];
    struct tm tm;
    time_t seconds = (time_t)(e->mtime_ns / 1000000000);
    if (!gmtime_r(&seconds, &tm))
        tm = (struct tm){.tm_mday = 1};
    size_t len = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(when + len, sizeof(when) - len, ".%03uZ",
        (unsigned)(e->mtime_ns / 1000000 % 1000) % 1000);
    (void)snprintf(mode, sizeof(mode), "%04o", e->mode & 07777);
    return json_pack("{s:o, s:s, s:I, s:b, s:s, s:s}", "name",
        result_text_json(item->name, strlen(item->name), ENCODE_UTF8), "type",
        type_name(e->mode), "size", (json_int_t)e->size, "executable",
        S_ISREG(e->mode) && e->mode & 0111, "mode", mode, "mtime", when);
}

int session_file_list(
    struct session *s, const char *dir, bool recursive, json_t **ret, struct err *err)
{
    CLEANUP(items_done) struct items items = {0};
    const struct files_request request = {.op = FILES_LIST,
        .flags = recursive ? FILES_RECURSIVE : 0,
        .max_entries = LIST_MAX,
        .max_ms = LIST_MS};
    struct transfer *t;
    int r = transfer_open(s, &t, err);
    if (r < 0)
        return r;
    r = transfer_ask(t, request, dir);
    if (r == 0 || r == -EPIPE)
        r = take_items(t, LIST_MAX, LIST_NAME_BYTES, &items);
    if (r == -E2BIG)
        r = 0;
    if (r < 0)
        r = r == -ENOMEM ? state_full(err) : transfer_error(t, r, err);
    if (r == 0) {
        json_t *list = json_array();
        for (size_t i = 0; i < items.count; i++)
            (void)json_array_append_new(list, item_json(&items.list[i]));
        *ret =
            json_pack("{s:s, s:o, s:b}", "path", dir, "entries", list, "truncated", items.cut);
    }
    transfer_done(t);
    return r;
}

/* Each session keeps one helper for this, so that an exec does not wait for a fork. Sessions in
 * other places have none: the directory there may be a whole home, and a walk after each exec
 * would be too slow. */
static int watcher_open(struct session *s)
{
    if (s->spec.place)
        return -EOPNOTSUPP;
    s->watcher.s = s;
    s->watcher.stall_ms = WATCHER_STALL_MS;
    (void)pthread_mutex_lock(&s->lock);
    int r = s->box.socket < 0 ? -EPIPE : transfer_connect(&s->watcher);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static int64_t file_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void session_changes_note(struct session *s, int64_t stamp_ns)
{
    (void)pthread_mutex_lock(&s->lock);
    if (stamp_ns > s->stamp_ns)
        s->stamp_ns = stamp_ns;
    (void)pthread_mutex_unlock(&s->lock);
}

/* The clock that stamps files advances in steps of milliseconds. A known change may have the
 * current stamp. Wait for the next stamp then, or the change would be attributed to this exec.
 */
void session_changes_begin(struct session *s, struct session_changes *changes)
{
    (void)pthread_mutex_lock(&s->lock);
    int64_t stamp_ns = s->stamp_ns;
    s->stamp_ns = 0;
    (void)pthread_mutex_unlock(&s->lock);
    if (s->watcher.fd < 0)
        (void)watcher_open(s);
    changes->since_ns = file_clock_ns();
    for (int i = 0; i < STAMP_STEPS && changes->since_ns <= stamp_ns; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = STAMP_STEP_NS}, NULL);
        changes->since_ns = file_clock_ns();
    }
}

static int ask_changes(struct session *s, const struct session_changes *changes)
{
    return transfer_ask(&s->watcher,
        (struct files_request){.op = FILES_LIST,
            .flags = FILES_RECURSIVE | FILES_CHANGED,
            .max_entries = CHANGED_MAX,
            .since_ns = changes->since_ns,
            .max_ms = CHANGED_MS},
        "");
}

/* Asks early and reads late: the helper walks while the server settles the end of the exec. */
void session_changes_ask(struct session *s, struct session_changes *changes)
{
    changes->is_asked = s->watcher.fd >= 0 && ask_changes(s, changes) == 0;
}

json_t *session_changes_end(
    struct session *s, const struct session_changes *changes, bool *ret_cut)
{
    CLEANUP(items_done) struct items items = {0};
    int r = changes->is_asked ? take_items(&s->watcher, CHANGED_MAX, CHANGED_NAME_BYTES, &items)
                              : -EPIPE;
    /* The helper ended with the interpreter, or user code killed it. Start another one if there
     * is still a box. */
    if (r == -EPIPE && items.count == 0) {
        close_fd(&s->watcher.fd);
        r = watcher_open(s);
        if (r == 0 && (r = ask_changes(s, changes)) == 0)
            r = take_items(&s->watcher, CHANGED_MAX, CHANGED_NAME_BYTES, &items);
    }
    if (r < 0)
        close_fd(&s->watcher.fd);
    session_changes_note(s, items.stamp_ns);
    *ret_cut = items.cut;
    if (r < 0 && r != -E2BIG)
        return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < items.count; i++)
        (void)json_array_append_new(list,
            result_text_json(items.list[i].name, strlen(items.list[i].name), ENCODE_UTF8));
    return list;
}
