/* SPDX-License-Identifier: Apache-2.0 */

/* Events of a run and where a reader takes them up again: output in pieces of any bytes, then
 * any Last-Event-ID. A reader that resumes gets the end of what one from the beginning got. */

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "state/history/history.h"
#include "store/run_store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* There is no store here. */
int run_store_put(struct run_store *store, const struct run_row *row, struct err *err)
{
    abort();
}
void run_store_put_later(
    struct run_store *store, struct run_row *row, enum run_store_haste haste)
{
    abort();
}
int run_store_get_own(
    struct run_store *store, const char *id, const struct run_asker *asker, struct run_row *ret)
{
    abort();
}
int run_store_get_request(
    struct run_store *store, const char *id, const struct run_asker *asker, struct answer **ret)
{
    abort();
}
void run_store_remove(struct run_store *store, const char *id)
{
    abort();
}
void run_store_expire(struct run_store *store, int64_t before_ms, uint64_t max_bytes)
{
    abort();
}
void run_row_release(struct run_row *row)
{
    abort();
}

enum { LARGE = 70000 };

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void read_all(struct history_run *run, uint64_t after_id, struct buf *to)
{
    cleanup_buf struct buf piece;
    struct history_cursor cursor = {.after_id = after_id};
    int r;
    buf_init(&piece, 64 << 20);
    do {
        struct history_cursor before = cursor;
        buf_clear(&piece);
        r = history_read(run, &cursor, 0, &piece);
        check(r >= 0 && cursor.after_id >= before.after_id);
        check(r == 0 || cursor.after_id > before.after_id || cursor.end_at > before.end_at);
        check(buf_append(to, piece.data, piece.len) == 0);
    } while (r > 0);
}

/* Past the comment that says what is no longer kept. */
static const char *first_event(const struct buf *text)
{
    const char *at = text->len ? text->data : "";
    return at[0] == ':' ? strstr(at, "\n\n") + 2 : at;
}

static void resume(struct history_run *run, const struct buf *all, const char *last_event_id)
{
    cleanup_buf struct buf rest;
    uint64_t after_id = 0;
    buf_init(&rest, 64 << 20);
    if (str_parse_u64(last_event_id, &after_id) < 0)
        return;
    bool is_read = history_is_read(run, after_id);
    read_all(run, after_id, &rest);
    const char *from = first_event(&rest);
    size_t len = rest.len ? (size_t)(rest.data + rest.len - from) : 0;
    check((len == 0) == is_read && len <= all->len);
    check(memcmp(all->data + all->len - len, from, len) == 0);
    check(len == 0 || strncmp(from, "id: ", 4) == 0);
    if (len)
        check(strtoull(from + 4, NULL, 10) > after_id);
}

static void produce(struct history_run *run, const uint8_t *data, size_t size)
{
    static char large[LARGE];
    history_started(run);
    for (size_t at = 0; at + 1 < size;) {
        enum run_stream stream = data[at] & 1 ? STREAM_STDERR : STREAM_STDOUT;
        size_t len = data[at + 1];
        if (data[at] == 0xfe) {
            memset(large, data[at + 1], sizeof(large));
            history_output(run, stream, large, sizeof(large));
            len = 0;
        }
        len = len < size - at - 2 ? len : size - at - 2;
        if (len)
            history_output(run, stream, (const char *)data + at + 2, len);
        at += 2 + len;
    }
}

/* The id to resume at up to the first NUL, then pieces of output. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size < 64 ? size : 64);
    struct history_run *run;
    struct err err = {0};
    cleanup_buf struct buf all;
    buf_init(&all, 64 << 20);
    if (!end)
        return 0;
    struct history *history =
        history_new(&(struct history_options){.ttl_ms = 1000, .memory_bytes = 64 << 20});
    enum result_encoding encoding = size % 2 ? ENCODE_BASE64 : ENCODE_UTF8;
    struct history_owner nobody = {.name = "", .index = -1};
    const struct history_entry entry = {.mode = RUN_STREAMED, .encoding = encoding};
    check(history_add(history, "run_1", nobody, &entry, &run, &err) == 0);
    produce(run, end + 1, size - (size_t)(end + 1 - data));
    struct answer *answer = answer_of_text("{}");
    history_finish(run, RUN_OK, answer);
    answer_release(answer);
    read_all(run, 0, &all);
    check(utf8_valid(all.data, all.len) && all.len > 4);
    check(strcmp(all.data + all.len - 3, "}\n\n") == 0);
    resume(run, &all, (const char *)data);
    for (char digit[2] = "0"; digit[0] <= '9'; digit[0]++)
        resume(run, &all, digit);
    history_unref(run);
    history_free(history);
    return 0;
}
