/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about kept runs, in memory and in SQLite. */

#include "test.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime_fixture.h"
#include "state/events.h"
#include "state/history/history.h"
#include "store/run_store.h"

static struct history *make(struct run_store *store, uint64_t bytes)
{
    return history_new(&(struct history_options){.store = store,
        .ttl_ms = 60000,
        .max_bytes = bytes,
        .memory_bytes = bytes,
        .resume_grace_ms = 0});
}

static void finish(struct history_run *run, const char *text)
{
    struct answer *answer = answer_of_text(text);
    history_finish(run, RUN_OK, answer);
    answer_release(answer);
}

static struct history_owner owner(const char *name)
{
    return (struct history_owner){.name = name, .index = -1};
}

static struct history_run *find(struct history *h, const char *id, const char *name)
{
    struct history_run *run = NULL;
    struct err err = {0};
    return history_find(h, id, owner(name), &run, &err) == 0 ? run : NULL;
}

/* The answer as text, which the caller frees; NULL when there is none any more. */
static char *answer_of(struct history_run *run)
{
    struct answer *answer;
    struct err err = {0};
    if (history_answer(run, &answer, &err) < 0)
        return NULL;
    char *text = xstrdup(answer->text);
    answer_release(answer);
    return text;
}

static void a_run_belongs_to_its_owner(void **state)
{
    struct history *h = make(NULL, 1 << 20);
    struct history_run *run, *found;
    struct err err = {0};

    assert_int_equal(history_add(h, "run_1", owner("a"),
                         &(struct history_entry){.mode = RUN_ASYNC}, &run, &err),
        0);
    assert_null(find(h, "run_1", "b"));
    assert_null(find(h, "run_2", "a"));
    found = find(h, "run_1", "a");
    assert_non_null(found);
    char *text = answer_of(found);
    assert_non_null(strstr(text, "queued"));
    free(text);
    finish(run, "{\"x\":1}");
    text = answer_of(found);
    assert_string_equal(text, "{\"x\":1}");
    free(text);
    assert_false(history_cancel(found));
    history_unref(found);
    history_unref(run);
    history_free(h);
}

static void events_resume_where_a_reader_left(void **state)
{
    struct history *h = make(NULL, 1 << 20);
    struct history_run *run;
    struct err err = {0};
    struct buf out;
    struct history_cursor after = {0};

    buf_init(&out, 1 << 20);
    assert_int_equal(history_add(h, "run_1", owner(""),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    assert_int_equal(history_read(run, &after, 10, &out), -ETIMEDOUT);
    history_started(run);
    history_output(run, STREAM_STDOUT, "h\xc3", 2); /* half a code point waits for the rest */
    history_output(run, STREAM_STDOUT, "\xa9!", 2);
    assert_int_equal(history_read(run, &after, 10, &out), 1);
    assert_int_equal(after.after_id, 3);
    assert_non_null(strstr(out.data, "id: 1\nevent: start\n"));
    assert_non_null(strstr(out.data, "id: 2\nevent: stdout\ndata: {\"data\": \"h\", \"t\": "));
    assert_non_null(strstr(out.data, "{\"data\": \"\xc3\xa9!\", \"t\": "));
    finish(run, "{}");
    buf_clear(&out);
    after.after_id = 2;
    assert_int_equal(history_read(run, &after, 10, &out), 0);
    assert_null(strstr(out.data, "id: 2\n"));
    assert_non_null(strstr(out.data, "id: 4\nevent: end\ndata: {\"t\": "));
    assert_true(history_is_read(run, 4));
    assert_false(history_is_read(run, 3));
    buf_done(&out);
    history_unref(run);
    history_free(h);
}

/* The spawner's word that a program runs may come after the program's first output. */
static void the_start_comes_before_any_output(void **state)
{
    struct history *h = make(NULL, 1 << 20);
    struct history_run *run;
    struct err err = {0};
    struct buf out;
    struct history_cursor after = {0};

    buf_init(&out, 1 << 20);
    assert_int_equal(history_add(h, "run_1", owner(""),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    history_output(run, STREAM_STDOUT, "x", 1);
    history_started(run);
    assert_int_equal(history_read(run, &after, 10, &out), 1);
    assert_int_equal(after.after_id, 2);
    assert_non_null(strstr(out.data, "id: 1\nevent: start\n"));
    assert_non_null(strstr(out.data, "id: 2\nevent: stdout\n"));
    finish(run, "{}");
    buf_done(&out);
    history_unref(run);
    history_free(h);
}

/* A client that opens a stream and does not read it must not keep its run in memory. */
static void a_slow_reader_holds_nothing(void **state)
{
    struct history *h = make(NULL, 10000);
    struct history_run *slow, *run;
    struct err err = {0};
    struct buf out;
    struct history_cursor after = {0};

    buf_init(&out, 1 << 20);
    assert_int_equal(history_add(h, "run_0", owner(""),
                         &(struct history_entry){.mode = RUN_STREAMED}, &slow, &err),
        0);
    history_read_begin(slow);
    history_output(slow, STREAM_STDOUT, "x", 1);
    finish(slow, "{}");
    for (int i = 1; i < 100; i++) {
        char id[32];
        (void)snprintf(id, sizeof(id), "run_%d", i);
        assert_int_equal(history_add(h, id, owner(""),
                             &(struct history_entry){.mode = RUN_ASYNC}, &run, &err),
            0);
        finish(run, "{}");
        history_unref(run);
    }
    assert_null(find(h, "run_0", ""));
    assert_int_equal(history_read(slow, &after, 10, &out), -ESTALE);
    assert_null(answer_of(slow));
    history_read_end(slow);
    history_unref(slow);
    buf_done(&out);
    history_free(h);
}

/* However large: somebody may wait for it. */
static void the_latest_answer_is_there_to_be_read(void **state)
{
    struct history *h = make(NULL, 1000);
    struct history_run *run;
    struct err err = {0};
    struct buf out;
    struct history_cursor after = {0};
    char large[5000];

    memset(large, ' ', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    buf_init(&out, 1 << 20);
    assert_int_equal(history_add(h, "run_1", owner(""),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    history_read_begin(run);
    finish(run, large);
    assert_int_equal(history_read(run, &after, 10, &out), 0);
    assert_true(out.len > sizeof(large));
    history_read_end(run);
    history_unref(run);
    buf_done(&out);
    history_free(h);
}

static void memory_is_bounded(void **state)
{
    struct history *h = make(NULL, 100000);
    struct err err = {0};
    size_t runs;
    uint64_t bytes;

    for (int i = 0; i < 1000; i++) {
        struct history_run *run;
        char id[32];
        (void)snprintf(id, sizeof(id), "run_%d", i);
        assert_int_equal(history_add(h, id, owner(""),
                             &(struct history_entry){.mode = RUN_ASYNC}, &run, &err),
            0);
        for (int k = 0; k < 10; k++)
            history_output(run, STREAM_STDERR, "0123456789", 10);
        finish(run, "{\"something\": \"rather long, so that it counts\"}");
        history_unref(run);
    }
    history_get_size(h, &runs, &bytes);
    assert_true(bytes <= 100000);
    assert_in_range(runs, 1, 999);
    assert_null(find(h, "run_0", ""));
    history_free(h);
}

static void add_result(struct history *h, const char *id, const char *name, size_t size)
{
    struct history_run *run;
    struct err err = {0};
    char *text = xcalloc(size + 1, 1);
    memset(text, 'x', size);
    assert_int_equal(
        history_add(h, id, owner(name), &(struct history_entry){.mode = RUN_ASYNC}, &run, &err),
        0);
    finish(run, text);
    history_unref(run);
    free(text);
}

static bool is_there(struct history *h, const char *id, const char *name)
{
    struct history_run *run = find(h, id, name);
    history_unref(run);
    return run;
}

static void nobodys_results_go_because_of_anothers(void **state)
{
    struct history *h = make(NULL, 100000);
    size_t runs;
    uint64_t bytes;
    add_result(h, "run_b", "b", 10000);
    add_result(h, "run_first", "a", 10000);
    for (int i = 0; i < 100; i++) {
        char id[32];
        (void)snprintf(id, sizeof(id), "run_%d", i);
        add_result(h, id, "a", 10000);
    }
    history_get_size(h, &runs, &bytes);
    assert_true(bytes <= 100000);
    assert_true(is_there(h, "run_b", "b"));
    assert_true(is_there(h, "run_99", "a"));
    assert_false(is_there(h, "run_first", "a"));
    for (int i = 0; i < 100; i++) { /* now b has most */
        char id[32];
        (void)snprintf(id, sizeof(id), "run_b%d", i);
        add_result(h, id, "b", 10000);
    }
    assert_false(is_there(h, "run_b", "b"));
    assert_true(is_there(h, "run_99", "a"));
    history_free(h);
}

/* Tiny results count with what is around them, and are bounded in number too. */
static void tiny_results_of_one_owner_leave_those_of_others(void **state)
{
    struct history *h = make(NULL, 64 << 20);
    size_t runs;
    uint64_t bytes;
    add_result(h, "run_b", "b", 1);
    for (int i = 0; i < 21000; i++) {
        char id[32];
        (void)snprintf(id, sizeof(id), "run_%d", i);
        add_result(h, id, "a", 1);
    }
    history_get_size(h, &runs, &bytes);
    assert_in_range(runs, 1, 20000);
    assert_true(bytes > runs * 512);
    assert_true(is_there(h, "run_b", "b"));
    assert_false(is_there(h, "run_0", "a"));
    history_free(h);
}

/* An answer that is past the bound is its readers', counted in the ledger, and one of each
 * owner. */
static void a_large_answer_stays_counted(void **state)
{
    struct ledger *l = ledger_new(100000, 1);
    struct history *h = make(NULL, 1000);
    struct history_run *runs[2];
    struct err err = {0};
    uint64_t bytes;
    size_t count;
    for (int i = 0; i < 2; i++) {
        struct answer *answer = answer_new(l, 0, 5000, NULL);
        assert_int_equal(history_add(h, i ? "run_1" : "run_0", owner("a"),
                             &(struct history_entry){.mode = RUN_STREAMED}, &runs[i], &err),
            0);
        history_read_begin(runs[i]);
        memset(answer->text, ' ', answer->len);
        history_finish(runs[i], RUN_OK, answer);
        answer_release(answer);
        assert_in_range(ledger_sum(l), 5000, 5200); /* of the second alone */
    }
    history_get_size(h, &count, &bytes);
    assert_true(bytes <= 1024);
    assert_false(is_there(h, "run_0", "a"));
    assert_true(is_there(h, "run_1", "a"));
    for (int i = 0; i < 2; i++) {
        history_read_end(runs[i]);
        history_unref(runs[i]);
    }
    history_free(h);
    assert_int_equal(ledger_sum(l), 0);
    ledger_free(l);
}

/* Events of runs that go on are bounded with the rest, however large one of them is. */
static void events_of_running_ones_are_bounded_too(void **state)
{
    enum { MAX = 1 << 20, LARGE = 700 << 10 };
    struct history *h = make(NULL, MAX);
    struct history_run *runs[8];
    struct err err = {0};
    char *large = xcalloc(LARGE, 1);
    uint64_t bytes;
    size_t count;
    memset(large, '1', LARGE - 1);
    for (int i = 0; i < 8; i++) {
        cleanup_free char *id = xasprintf("run_%d", i);
        assert_int_equal(history_add(h, id, owner("a"),
                             &(struct history_entry){.mode = RUN_STREAMED}, &runs[i], &err),
            0);
        history_event(runs[i], "display", large);
        history_output(runs[i], STREAM_STDOUT, "x", 1);
        history_get_size(h, &count, &bytes);
        assert_in_range(bytes, LARGE, MAX); /* the control: the first one is there */
    }
    for (int i = 0; i < 8; i++) {
        struct history_cursor cursor = {0};
        struct buf out;
        buf_init(&out, 2 * MAX);
        assert_int_equal(history_read(runs[i], &cursor, 10, &out), 1);
        assert_non_null(strstr(out.data, i == 0 ? "event: display" : "no longer kept"));
        buf_done(&out);
        finish(runs[i], "{}");
        history_unref(runs[i]);
    }
    history_free(h);
    free(large);
}

/* Shows a value of so many bytes. */
static void show(struct history_run *run, size_t size)
{
    char *text = xcalloc(size + 1, 1);
    memset(text, '1', size);
    history_event(run, "display", text);
    free(text);
}

/* How often a word is in the events of a run that are kept. */
static int count_in_events(struct history_run *run, const char *word)
{
    struct history_cursor cursor = {0};
    struct buf out;
    int found = 0;
    buf_init(&out, 4 << 20);
    for (uint64_t before = 0; history_read(run, &cursor, 10, &out) == 1; buf_clear(&out)) {
        for (const char *at = out.data; at && (at = strstr(at, word)); at++)
            found++;
        if (cursor.after_id == before)
            break;
        before = cursor.after_id;
    }
    buf_done(&out);
    return found;
}

static int add_results(struct history *h, const char *name, int many, size_t size)
{
    int found = 0;
    for (int i = 0; i < many; i++) {
        cleanup_free char *id = xasprintf("run_%s%d", name, i);
        if (size)
            add_result(h, id, name, size);
        found += is_there(h, id, name);
    }
    return found;
}

static int count_results(struct history *h, const char *name, int many)
{
    return add_results(h, name, many, 0);
}

/* The events of a run make no room at the cost of somebody who has less. */
static void events_push_out_nobody_who_has_less(void **state)
{
    enum { MAX = 1 << 20, MANY = 10 };
    struct history *h = make(NULL, MAX);
    struct history_run *run;
    struct err err = {0};
    uint64_t bytes;
    size_t count;
    assert_int_equal(add_results(h, "b", MANY, 20000), MANY);
    assert_int_equal(history_add(h, "run_live", owner("a"),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    for (int i = 0; i < 6; i++)
        show(run, 300000);
    history_get_size(h, &count, &bytes);
    assert_in_range(bytes, MAX / 2, MAX);
    assert_int_equal(count_results(h, "b", MANY), MANY);
    assert_int_equal(count_in_events(run, "event: display"), 2); /* the newest stay */
    assert_int_equal(count_in_events(run, "id: 6"), 1);
    assert_int_equal(add_results(h, "b", 2 * MANY, 40000), 2 * MANY); /* now b has more */
    show(run, 100000);
    assert_true(count_results(h, "b", 2 * MANY) < 2 * MANY);
    assert_int_equal(count_in_events(run, "id: 7"), 1);
    finish(run, "{}");
    history_unref(run);
    history_free(h);
}

/* Events of runs that are not over count for their owner: when it has most, they go before
 * results of others, also when the others ask for room. */
static void live_events_of_one_owner_leave_results_of_others(void **state)
{
    enum { MAX = 1 << 20, LIVE = 3, MANY = 10 };
    struct history *h = make(NULL, MAX);
    struct history_run *runs[LIVE];
    struct err err = {0};
    uint64_t bytes;
    size_t count;
    for (int i = 0; i < LIVE; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "run_live%d", i);
        assert_int_equal(history_add(h, id, owner("a"),
                             &(struct history_entry){.mode = RUN_STREAMED}, &runs[i], &err),
            0);
        for (int k = 0; k < 10; k++)
            show(runs[i], 30000);
    }
    assert_int_equal(add_results(h, "b", MANY, 40000), MANY);
    history_get_size(h, &count, &bytes);
    assert_in_range(bytes, MAX / 2, MAX);
    assert_int_equal(count, LIVE + MANY);
    for (int i = 0; i < LIVE; i++) { /* each lost its oldest events and has its newest */
        assert_int_equal(count_in_events(runs[i], "id: 10\n"), 1);
        assert_true(count_in_events(runs[i], "event: display") < 10);
    }
    /* When they are over, they are results like any other. */
    for (int i = 0; i < LIVE; i++) {
        finish(runs[i], "{}");
        history_unref(runs[i]);
    }
    assert_int_equal(count_results(h, "b", MANY), MANY);
    history_free(h);
}

/* Results that an owner has had go before events of its own that nobody has read yet. */
static void old_results_go_before_new_events(void **state)
{
    enum { MAX = 1 << 20, MANY = 10 };
    struct history *h = make(NULL, MAX);
    struct history_run *run;
    struct err err = {0};
    assert_int_equal(add_results(h, "a", MANY, 90000), MANY);
    assert_int_equal(history_add(h, "run_live", owner("a"),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    for (int i = 0; i < 5; i++)
        show(run, 100000);
    assert_int_equal(count_in_events(run, "event: display"), 5);
    assert_in_range(count_results(h, "a", MANY), 3, MANY - 1);
    assert_false(is_there(h, "run_a0", "a"));
    finish(run, "{}");
    history_unref(run);
    history_free(h);
}

static void of_a_very_large_event_a_note_is_kept(void **state)
{
    struct history *h = make(NULL, 64 << 20);
    struct history_run *run;
    struct err err = {0};
    uint64_t bytes;
    size_t count;
    assert_int_equal(history_add(h, "run_live", owner("a"),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    show(run, 2 << 20); /* the control: as large as may be */
    assert_int_equal(count_in_events(run, "too_large"), 0);
    show(run, (2 << 20) + 1);
    assert_int_equal(count_in_events(run, "too_large"), 1);
    history_get_size(h, &count, &bytes);
    assert_true(bytes < (2 << 20) + 5000);
    finish(run, "{}");
    history_unref(run);
    history_free(h);
}

/* A reader gets a large answer in pieces. */
static void the_end_comes_in_pieces(void **state)
{
    enum { SIZE = 1000000 };
    struct history *h = make(NULL, 4 << 20);
    struct history_run *run;
    struct err err = {0};
    struct history_cursor cursor = {0};
    struct buf out, all;
    int r, pieces = 0;
    add_result(h, "run_1", "a", SIZE);
    run = find(h, "run_1", "a");
    buf_init(&out, 1 << 20);
    buf_init(&all, 2 << 20);
    do {
        buf_clear(&out);
        r = history_read(run, &cursor, 10, &out);
        assert_true(r >= 0 && out.len < 300000);
        assert_int_equal(buf_append(&all, out.data, out.len), 0);
        pieces++;
    } while (r == 1);
    assert_in_range(pieces, 3, 10);
    assert_int_equal(all.len, SIZE + strlen("id: 1\nevent: end\ndata: \n\n"));
    assert_true(history_is_read(run, cursor.after_id));
    assert_int_equal(err.code, ERR_NONE);
    buf_done(&out);
    buf_done(&all);
    history_unref(run);
    history_free(h);
}

static void a_streamed_run_without_readers_is_cancelled(void **state)
{
    struct history *h = make(NULL, 100000);
    struct history_run *run;
    struct err err = {0};
    uint64_t count = 0;

    assert_int_equal(history_add(h, "run_1", owner(""),
                         &(struct history_entry){.mode = RUN_STREAMED}, &run, &err),
        0);
    history_read_begin(run);
    (void)usleep(5000);
    history_tick(h);
    assert_int_equal(read(history_cancel_fd(run), &count, sizeof(count)), -1);
    history_read_end(run);
    (void)usleep(5000);
    history_tick(h);
    assert_int_equal(read(history_cancel_fd(run), &count, sizeof(count)), 8);
    finish(run, "{}");
    history_unref(run);
    history_free(h);
}

static void sqlite_outlives_the_server_and_reports_lost_runs(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct history_run *done, *lost, *found;
    struct err err = {0};

    assert_int_equal(run_store_open(&store, path, &err), 0);
    struct history *h = make(store, 1 << 20);
    assert_int_equal(history_add(h, "run_d", owner("a"),
                         &(struct history_entry){.mode = RUN_SYNC}, &done, &err),
        0);
    assert_int_equal(history_add(h, "run_l", owner("a"),
                         &(struct history_entry){.mode = RUN_ASYNC}, &lost, &err),
        0);
    finish(done, "{\"id\":\"run_d\"}");
    history_unref(done);
    history_unref(lost);
    history_free(h);
    run_store_close(store);

    assert_int_equal(run_store_open(&store, path, &err), 0);
    h = make(store, 1 << 20);
    assert_null(find(h, "run_d", "b"));
    found = find(h, "run_d", "a");
    assert_non_null(found);
    char *text = answer_of(found);
    assert_string_equal(text, "{\"id\":\"run_d\"}");
    free(text);
    history_unref(found);
    found = find(h, "run_l", "a");
    assert_non_null(found);
    text = answer_of(found);
    assert_non_null(strstr(text, "internal_error"));
    free(text);
    history_unref(found);
    run_store_expire(store, INT64_MAX, 0);
    history_free(h);
    run_store_close(store);

    assert_int_equal(run_store_open(&store, path, &err), 0);
    h = make(store, 1 << 20);
    assert_null(find(h, "run_d", "a"));
    history_free(h);
    run_store_close(store);
}

/* Whether it waits, is being written or was: the writer goes its own pace, so many are tried.
 */
static void what_is_removed_does_not_come_back(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    enum { ROWS = 300 };

    assert_int_equal(run_store_open(&store, path, &err), 0);
    for (int i = 0; i < ROWS; i++) {
        cleanup_free char *id = xasprintf("ses_%d", i);
        struct run_row found;
        struct answer *answer = answer_of_text("{}");
        struct run_row row = {.id = xstrdup(id),
            .owner = xstrdup("a"),
            .status = xstrdup("session"),
            .answer = answer_keep(answer)};
        answer_release(answer);
        run_store_put_later(store, &row, i % 2 ? STORE_PROMISED : STORE_WITH_OTHERS);
        if (i == 0) /* the one that shows that the rows are written at all */
            continue;
        run_store_remove(store, id);
        assert_int_equal(run_store_get(store, id, NULL, -1, &found), -ENOENT);
    }
    run_store_close(store);

    assert_int_equal(run_store_open(&store, path, &err), 0);
    for (int i = 0; i < ROWS; i++) {
        cleanup_free char *id = xasprintf("ses_%d", i);
        struct run_row found = {0};
        assert_int_equal(run_store_get(store, id, NULL, -1, &found), i == 0 ? 0 : -ENOENT);
        run_row_release(&found);
    }
    run_store_close(store);
}

static void put(struct run_store *store, const char *id, const char *name, size_t size, int at)
{
    struct answer *answer = answer_new(NULL, -1, size, NULL);
    struct run_row row = {.id = xstrdup(id),
        .owner = xstrdup(name),
        .status = xstrdup("ok"),
        .created_ms = 1,
        .finished_ms = at,
        .answer = answer_keep(answer)};
    struct err err = {0};
    memset(answer->text, 'x', size);
    answer_release(answer);
    assert_int_equal(run_store_put(store, &row, &err), 0);
    run_row_done(&row);
}

/* Expires, and waits until that is done: the store does it before it closes. */
static void expire(
    struct run_store **store, const char *path, int64_t before_ms, uint64_t max_bytes)
{
    struct err err = {0};
    run_store_expire(*store, before_ms, max_bytes);
    run_store_close(*store);
    assert_int_equal(run_store_open(store, path, &err), 0);
}

static bool is_stored(struct run_store *store, const char *id)
{
    struct run_row found;
    bool is_there = run_store_get(store, id, NULL, -1, &found) == 0;
    if (is_there)
        run_row_release(&found);
    return is_there;
}

static void the_store_forgets_from_the_owner_that_has_most(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    assert_int_equal(run_store_open(&store, path, &err), 0);
    put(store, "b", "b", 100000, 1);
    put(store, "c", "c", 200000, 1);
    for (int i = 0; i < 20; i++) {
        cleanup_free char *id = xasprintf("a%d", i);
        put(store, id, "a", 100000, 2 + i);
    }
    expire(&store, path, 0, 1000000);
    assert_true(is_stored(store, "b") && is_stored(store, "c"));
    assert_false(is_stored(store, "a0"));
    assert_true(is_stored(store, "a19") && is_stored(store, "a14")); /* no more than needed */
    expire(&store, path, 0, 350000);
    assert_true(is_stored(store, "b") && is_stored(store, "a19"));
    for (int i = 0; i < 3000; i++) { /* rows that are tiny weigh something too */
        cleanup_free char *id = xasprintf("d%d", i);
        put(store, id, "d", 1, 50 + i);
    }
    expire(&store, path, 0, 500000);
    assert_true(is_stored(store, "b") && is_stored(store, "a19") && is_stored(store, "d2999"));
    assert_false(is_stored(store, "d0"));
    run_store_close(store);
}

static atomic_int statement_count;

static int on_statement(unsigned kind, void *context, void *statement, void *text)
{
    statement_count++;
    return 0;
}

/* SQLite calls it for each connection that is opened. */
static int watch_statements(sqlite3 *db, char **message, const void *api)
{
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, on_statement, NULL);
}

/* Adds rows that finished one after the other, in one statement. */
static void fill(const char *path, const char *name, int rows, int size)
{
    sqlite3 *db;
    cleanup_free char *sql = xasprintf(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT "
        "INTO runs (id, owner, status, created_ms, finished_ms, answer, size) "
        "SELECT '%s' || i, '%s', 'ok', 1, i, zeroblob(%d), %d FROM n",
        rows, name, name, size, size);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* How many of so many rows an owner has left. They have to be the newest. */
static int count_newest(const char *path, const char *name, int rows)
{
    sqlite3 *db;
    sqlite3_stmt *sql;
    cleanup_free char *text = xasprintf(
        "SELECT COUNT(*), MIN(finished_ms), MAX(finished_ms) FROM runs WHERE owner='%s'", name);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &sql, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(sql), SQLITE_ROW);
    int count = sqlite3_column_int(sql, 0);
    assert_int_equal(sqlite3_column_int(sql, 2), rows);
    assert_int_equal(sqlite3_column_int(sql, 1), rows - count + 1);
    assert_int_equal(sqlite3_finalize(sql), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return count;
}

/* Two owners that have nearly as much as each other lose their rows in one statement each, not
 * one row at a time. */
static void many_rows_go_in_few_statements(void **state)
{
    enum { ROWS = 10000, FEW = 100, ROW = 512, A = 1, B = 2, MAX = 5000000 };
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    assert_int_equal(
        sqlite3_auto_extension((void (*)(void))(uintptr_t)watch_statements), SQLITE_OK);
    assert_int_equal(run_store_open(&store, path, &err), 0);
    assert_int_equal(
        sqlite3_cancel_auto_extension((void (*)(void))(uintptr_t)watch_statements), 1);
    fill(path, "a", ROWS, A);
    fill(path, "b", ROWS, B);
    fill(path, "few", FEW, A);
    statement_count = 0;
    run_store_expire(store, 0, MAX);
    run_store_close(store);
    assert_in_range(statement_count, 5, 10); /* the control: they are counted */
    int a = count_newest(path, "a", ROWS) * (ROW + A);
    int b = count_newest(path, "b", ROWS) * (ROW + B);
    assert_in_range(a - b + 2 * ROW, 0, 4 * ROW);
    assert_int_equal(count_newest(path, "few", FEW), FEW);
    int left = a + b + FEW * (ROW + A);
    assert_in_range(left, MAX - 4 * ROW, MAX); /* no more than needed */
}

/* Another process is at the database: who asks does not wait for it, the writer does. */
static void who_lets_rows_expire_does_not_wait(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    sqlite3 *other;
    assert_int_equal(run_store_open(&store, path, &err), 0);
    put(store, "a", "a", 1, 1);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    run_store_expire(store, 2, 1000000); /* had it waited, it would have given up here */
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    run_store_close(store);
    assert_int_equal(run_store_open(&store, path, &err), 0);
    assert_false(is_stored(store, "a"));
    run_store_close(store);
}

static void what_is_read_from_the_store_is_counted(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct ledger *l = ledger_new(250000, 1);
    struct run_store *store;
    struct run_row first, second;
    struct err err = {0};
    assert_int_equal(run_store_open(&store, path, &err), 0);
    put(store, "a", "a", 100000, 1);
    assert_int_equal(run_store_get(store, "a", l, 0, &first), 0);
    assert_int_equal(first.answer->len, 100000);
    assert_int_equal(first.answer->text[99999], 'x');
    assert_in_range(ledger_sum(l), 100000, 100200);
    assert_int_equal(run_store_get(store, "a", l, 0, &second), -ENOMEM);
    run_row_release(&first);
    assert_int_equal(run_store_get(store, "a", l, 0, &second), 0);
    run_row_release(&second);
    assert_int_equal(ledger_sum(l), 0);
    run_store_close(store);
    ledger_free(l);
}

/* An answer that does not fit tells its owner so. Anybody else hears the same as of an id that
 * is not there. */
static void nothing_is_read_for_another_owner(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct ledger *l = ledger_new(50000, 2);
    struct run_store *store;
    struct history_run *run;
    struct err err = {0};
    assert_int_equal(run_store_open(&store, path, &err), 0);
    struct history *h = history_new(&(struct history_options){
        .store = store, .ledger = l, .ttl_ms = 60000, .max_bytes = 1 << 20});
    put(store, "large", "a", 100000, 1);
    const struct history_owner a = {.name = "a", .index = 0}, b = {.name = "b", .index = 1};
    assert_true(history_find(h, "large", a, &run, &err) < 0);
    assert_int_equal(err.code, ERR_UNAVAILABLE); /* the control */
    err = (struct err){0};
    assert_true(history_find(h, "large", b, &run, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(ledger_peak(l), 0);
    history_free(h);
    run_store_close(store);
    ledger_free(l);
}

static void a_broken_database_is_moved_aside(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    cleanup_free char *bad = xasprintf("%s/history.db.bad", dir);
    struct run_store *store = NULL;
    struct err err = {0};

    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        (void)fputs("this is not a database ", f);
    (void)fclose(f);
    assert_int_equal(run_store_open(&store, path, &err), 0);
    assert_int_equal(access(bad, F_OK), 0);
    run_store_close(store);
}

/* A row of a list, as text. */
static void add_to_text(struct buf *to, const struct run_row *row)
{
    (void)buf_printf(to, "%s %s %s %s %d %d\n", row->id, row->owner, row->status, row->language,
        row->exited ? row->exit_code : -1, row->finished_ms != 0);
}

static char *list_runs(struct history *h, struct run_query query)
{
    struct run_list list = {0};
    struct err err = {0};
    struct buf text;
    buf_init(&text, 1 << 20);
    assert_int_equal(history_list(h, &query, &list, &err), 0);
    assert_true(list.count <= query.limit);
    for (size_t i = 0; i < list.count; i++)
        add_to_text(&text, &list.rows[i]);
    run_list_done(&list);
    char *copy = xstrdup(text.data ? text.data : "");
    buf_done(&text);
    return copy;
}

static void assert_list(struct history *h, struct run_query query, const char *expected)
{
    query.before_ms = query.before_ms ? query.before_ms : INT64_MAX;
    query.before_id = query.before_id ? query.before_id : "";
    query.limit = query.limit ? query.limit : RUN_LIST_MAX;
    cleanup_free char *text = list_runs(h, query);
    assert_string_equal(text, expected);
}

static void add_run(struct history *h, const char *id, const char *name, const char *language,
    struct history_run **ret)
{
    struct err err = {0};
    const struct history_entry entry = {.mode = RUN_ASYNC, .language = language};
    assert_int_equal(history_add(h, id, owner(name), &entry, ret, &err), 0);
    (void)usleep(2000); /* runs of one millisecond are ordered by id */
}

static void a_list_has_runs_of_memory_and_store(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct history_run *old, *lost, *other, *live;
    struct err err = {0};

    assert_int_equal(run_store_open(&store, path, &err), 0);
    struct history *h = make(store, 1 << 20);
    add_run(h, "run_z", "a", "python", &old);
    add_run(h, "run_y", "a", "bash", &lost);
    history_exited(old, 3);
    finish(old, "{}");
    assert_list(h, (struct run_query){.owner = "a"},
        "run_y a queued bash -1 0\nrun_z a ok python 3 1\n");
    history_unref(old);
    history_unref(lost);
    history_free(h);
    run_store_close(store);

    assert_int_equal(run_store_open(&store, path, &err), 0);
    h = make(store, 1 << 20);
    struct answer *answer = answer_of_text("{}");
    struct run_row session = {.id = xstrdup("ses_1"),
        .owner = xstrdup("a"),
        .status = xstrdup("session"),
        .created_ms = INT64_MAX - 1,
        .finished_ms = INT64_MAX - 1,
        .answer = answer_keep(answer)};
    answer_release(answer);
    assert_int_equal(run_store_put(store, &session, &err), 0);
    run_row_done(&session);
    add_run(h, "run_x", "b", "bash", &other);
    add_run(h, "run_w", "a", "bash", &live);
    history_started(live);
    assert_list(h, (struct run_query){.owner = "a"},
        "run_w a running bash -1 0\nrun_y a internal_error bash -1 1\n"
        "run_z a ok python 3 1\n");
    assert_list(h, (struct run_query){.owner = "b"}, "run_x b queued bash -1 0\n");
    assert_list(h, (struct run_query){.owner = "c"}, "");
    assert_list(h, (struct run_query){.limit = 2},
        "run_w a running bash -1 0\nrun_x b queued bash -1 0\n");
    assert_list(h, (struct run_query){.owner = "a", .status = "ok"}, "run_z a ok python 3 1\n");
    assert_list(h, (struct run_query){.owner = "a", .language = "bash", .status = "running"},
        "run_w a running bash -1 0\n");
    finish(live, "{}"); /* now memory has it, and the store or its writer */
    assert_list(h, (struct run_query){.owner = "a", .language = "bash"},
        "run_w a ok bash -1 1\nrun_y a internal_error bash -1 1\n");
    finish(other, "{}");
    history_unref(live);
    history_unref(other);
    history_free(h);
    run_store_close(store);
}

/* Pages neither repeat nor leave out a run, also where many have one time. */
static void pages_follow_each_other(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    enum { ROWS = 57, PAGE = 10 };
    bool seen[ROWS] = {false};
    size_t count = 0;

    assert_int_equal(run_store_open(&store, path, &err), 0);
    for (int i = 0; i < ROWS; i++) {
        cleanup_free char *id = xasprintf("run_%02d", i);
        put(store, id, i % 2 ? "a" : "b", 1, INT32_MAX); /* all created at 1 */
    }
    struct run_query query = {.before_ms = INT64_MAX, .before_id = "", .limit = PAGE};
    char last[16] = "";
    for (size_t got = PAGE; got == PAGE; count += got) {
        struct run_list list = {0};
        query.before_id = last;
        assert_int_equal(run_store_list(store, &query, &list, &err), 0);
        for (size_t i = 0; i < list.count; i++) {
            int number = atoi(list.rows[i].id + 4);
            assert_false(seen[number]);
            seen[number] = true;
            (void)snprintf(last, sizeof(last), "%s", list.rows[i].id);
            query.before_ms = list.rows[i].created_ms;
        }
        got = list.count;
        run_list_done(&list);
    }
    assert_int_equal(count, ROWS);
    run_store_close(store);
}

/* The file of a server that knew no languages of runs is brought up to date and keeps its rows.
 */
static void an_old_file_is_migrated(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    struct run_store *store;
    struct err err = {0};
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
            "CREATE TABLE runs (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
            " status TEXT NOT NULL, created_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL,"
            " answer BLOB, size INTEGER NOT NULL) STRICT;"
            "INSERT INTO runs VALUES ('run_1', 'a', 'ok', 1, 9000000000000, x'7b7d', 2)",
            NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    for (int i = 0; i < 2; i++) { /* the second time there is nothing to do */
        assert_int_equal(run_store_open(&store, path, &err), 0);
        struct history *h = make(store, 1 << 20);
        assert_list(h, (struct run_query){.owner = "a"}, "run_1 a ok  -1 1\n");
        history_free(h);
        run_store_close(store);
    }
}

static void an_object_gets_its_time(void **state)
{
    static const struct {
        const char *json, *with_time;
    } rows[] = {
        {"{}", "{\"t\": 7}"},
        {"{\"a\": 1}", "{\"a\": 1, \"t\": 7}"},
        {"{\"t\": 99}", "{\"t\": 99, \"t\": 7}"}, /* the last one counts */
        {"[1]", "[1]"},
        {"{", "{"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char tail[EVENT_TAIL_MAX];
        size_t len = run_events_time(rows[i].json, strlen(rows[i].json), 7, tail);
        cleanup_free char *text = xasprintf("%.*s%s", (int)len, rows[i].json, tail);
        assert_string_equal(text, rows[i].with_time);
    }
}

/* A request counts for the ledger while its run is under way, and for the history afterwards.
 */
static void a_kept_request_is_counted(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    cleanup_free char *path = xasprintf("%s/history.db", dir);
    enum { SIZE = 100000 };
    struct run_store *store;
    struct history_run *run;
    struct err err = {0};
    size_t runs;
    uint64_t before, after;
    struct answer *got = NULL;

    assert_int_equal(run_store_open(&store, path, &err), 0);
    struct history *h = make(store, 1 << 20);
    struct ledger *ledger = ledger_new(1 << 20, 1);
    struct answer *request = answer_new(ledger, 0, SIZE, NULL);
    memset(request->text, 'x', SIZE);
    const struct history_entry entry = {.mode = RUN_ASYNC, .request = request};
    assert_int_equal(history_add(h, "run_1", owner("a"), &entry, &run, &err), 0);
    answer_release(request);
    assert_true(ledger_sum(ledger) >= SIZE);
    history_get_size(h, &runs, &before);
    finish(run, "{}");
    history_get_size(h, &runs, &after);
    assert_in_range(after - before, SIZE, SIZE + 100);
    assert_int_equal(ledger_sum(ledger), 0);
    assert_int_equal(history_request(run, owner("a"), &got, &err), 0);
    assert_int_equal(got->len, SIZE);
    assert_true(ledger_sum(ledger) >= SIZE); /* for the reply */
    answer_release(got);
    assert_int_equal(ledger_sum(ledger), 0);
    history_unref(run);
    history_free(h);
    run_store_close(store);
    ledger_free(ledger);

    assert_int_equal(run_store_open(&store, path, &err), 0);
    h = make(store, 1 << 20);
    run = find(h, "run_1", "a");
    assert_non_null(run);
    assert_int_equal(history_request(run, owner("b"), &got, &err), -ENOENT);
    assert_int_equal(history_request(run, owner("a"), &got, &err), 0);
    assert_int_equal(got->len, SIZE);
    answer_release(got);
    history_unref(run);
    expire(&store, path, 0, SIZE); /* it counts for the bound of the store, too */
    struct run_row row;
    assert_int_equal(run_store_get(store, "run_1", NULL, -1, &row), -ENOENT);
    history_free(h);
    run_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_belongs_to_its_owner),
        cmocka_unit_test(events_resume_where_a_reader_left),
        cmocka_unit_test(an_object_gets_its_time),
        cmocka_unit_test(the_start_comes_before_any_output),
        cmocka_unit_test(a_slow_reader_holds_nothing),
        cmocka_unit_test(the_latest_answer_is_there_to_be_read),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(nobodys_results_go_because_of_anothers),
        cmocka_unit_test(tiny_results_of_one_owner_leave_those_of_others),
        cmocka_unit_test(a_large_answer_stays_counted),
        cmocka_unit_test(events_of_running_ones_are_bounded_too),
        cmocka_unit_test(events_push_out_nobody_who_has_less),
        cmocka_unit_test(live_events_of_one_owner_leave_results_of_others),
        cmocka_unit_test(old_results_go_before_new_events),
        cmocka_unit_test(of_a_very_large_event_a_note_is_kept),
        cmocka_unit_test(the_end_comes_in_pieces),
        cmocka_unit_test(a_streamed_run_without_readers_is_cancelled),
        cmocka_unit_test(sqlite_outlives_the_server_and_reports_lost_runs),
        cmocka_unit_test(what_is_removed_does_not_come_back),
        cmocka_unit_test(the_store_forgets_from_the_owner_that_has_most),
        cmocka_unit_test(many_rows_go_in_few_statements),
        cmocka_unit_test(who_lets_rows_expire_does_not_wait),
        cmocka_unit_test(what_is_read_from_the_store_is_counted),
        cmocka_unit_test(nothing_is_read_for_another_owner),
        cmocka_unit_test(a_broken_database_is_moved_aside),
        cmocka_unit_test(a_list_has_runs_of_memory_and_store),
        cmocka_unit_test(pages_follow_each_other),
        cmocka_unit_test(a_kept_request_is_counted),
        cmocka_unit_test(an_old_file_is_migrated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
