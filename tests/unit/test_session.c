/* SPDX-License-Identifier: Apache-2.0 */

/* The parts of sessions that need no box: what is kept of a long output, and frames. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "proto/websocket.h"
#include "session/channel.h"
#include "session/exec/capture.h"
#include "session/internal.h"
#include "session/terminal.h"

/* Feeds `text` in pieces of random sizes; returns what is kept. The caller frees. */
static char *feed(struct capture *c, const char *text, size_t len, uint64_t *seed, size_t *ret)
{
    for (size_t at = 0; at < len;) {
        size_t n = 1 + test_random(seed) % 700;
        n = n < len - at ? n : len - at;
        capture_add(c, text + at, n);
        at += n;
    }
    char notice[CAPTURE_NOTICE];
    struct iovec pieces[CAPTURE_PIECES];
    struct buf all;
    buf_init(&all, 1 << 20);
    capture_pieces(c, notice, pieces);
    for (size_t i = 0; i < CAPTURE_PIECES; i++)
        assert_int_equal(buf_append(&all, pieces[i].iov_base, pieces[i].iov_len), 0);
    return buf_take(&all, ret);
}

static void capture_keeps_both_ends(void **state)
{
    char text[5000];
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 26);
    for (size_t len = 0; len <= sizeof(text); len += 61) {
        CLEANUP(capture_done) struct capture c;
        size_t kept;
        capture_init(&c, 1000, NULL);
        cleanup_free char *out = feed(&c, text, len, &seed, &kept);
        assert_int_equal(c.total, len);
        assert_int_equal(capture_is_cut(&c), len > 1000);
        if (len <= 1000) {
            assert_int_equal(kept, len);
            assert_memory_equal(out, text, len);
            continue;
        }
        assert_in_range(kept, 1000, 1100);
        assert_memory_equal(out, text, 400);
        assert_memory_equal(out + kept - 600, text + len - 600, 600);
    }
}

static void capture_cuts_between_code_points(void **state)
{
    char text[9000];
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof(text); i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    for (size_t max = 5; max < 200; max++) {
        CLEANUP(capture_done) struct capture c;
        size_t kept;
        capture_init(&c, max, NULL);
        cleanup_free char *out = feed(&c, text, sizeof(text), &seed, &kept);
        assert_true(utf8_valid(out, kept));
    }
}

static void open_pair(struct channel *c, int *ret_theirs)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    channel_init(c, pair[0], NULL);
    *ret_theirs = pair[1];
}

static void close_pair(struct channel *c, int theirs)
{
    (void)close(c->fd);
    (void)close(theirs);
    channel_done(c);
}

/* What channel_next() says once all of `bytes` were written and read. */
static int first_frame(const char *bytes, size_t len, struct channel_frame *ret)
{
    struct channel c;
    int theirs;
    open_pair(&c, &theirs);
    assert_int_equal(write(theirs, bytes, len), len);
    assert_int_equal(channel_read(&c), 1);
    int r = channel_next(&c, ret);
    close_pair(&c, theirs);
    return r;
}

static void frames_come_in_any_pieces(void **state)
{
    static const char bytes[] = "ready 2\n{}display 0\ndone 5\n[1,2]result 1\nx";
    static const enum channel_kind kinds[] = {
        FRAME_READY, FRAME_DISPLAY, FRAME_DONE, FRAME_RESULT};
    static const size_t sizes[] = {2, 0, 5, 1};
    for (size_t piece = 1; piece < sizeof(bytes); piece++) {
        struct channel c;
        struct channel_frame frame;
        int theirs;
        unsigned count = 0;
        open_pair(&c, &theirs);
        for (size_t at = 0; at < sizeof(bytes) - 1; at += piece) {
            size_t n = piece < sizeof(bytes) - 1 - at ? piece : sizeof(bytes) - 1 - at;
            assert_int_equal(write(theirs, bytes + at, n), n);
            assert_int_equal(channel_read(&c), 1);
            int r;
            while ((r = channel_next(&c, &frame)) == 1) {
                assert_int_equal(frame.kind, kinds[count]);
                assert_int_equal(frame.len, sizes[count]);
                count++;
            }
            assert_int_equal(r, 0);
        }
        assert_int_equal(count, 4);
        assert_true(channel_is_clean(&c));
        assert_int_equal(channel_read(&c), 0);
        channel_rest(&c);
        close_pair(&c, theirs);
    }
}

static void what_is_no_frame_is_refused(void **state)
{
    static const char *const bad[] = {"\n", " 5\n", "done\n", "done 5 \n", "done  5\n",
        "done -1\n", "done +1\n", "done 1x\n", "Done 1\nx", "done 16777217\n",
        "done 18446744073709551617\n", "undone 1\nx",
        "0123456789012345678901234567890123456789", "done\t1\nx"};
    struct channel_frame frame;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(first_frame(bad[i], strlen(bad[i]), &frame), -EBADMSG);
    assert_int_equal(first_frame("done\0 1\nx", 9, &frame), -EBADMSG);
    assert_int_equal(first_frame("done 16777216\n", 14, &frame), 0);
}

/* Any bytes: never a crash, never more than was sent. */
static void rubbish_is_survived(void **state)
{
    static const char *const words[] = {
        "done", "ready", "display", " ", "\n", "1", "9", "{}", "x"};
    uint64_t seed = 20261115;
    for (int round = 0; round < 3000; round++) {
        struct channel c;
        struct channel_frame frame;
        int theirs;
        char bytes[512];
        size_t len = 0;
        open_pair(&c, &theirs);
        while (len < 400) {
            const char *word = words[test_random(&seed) % (sizeof(words) / sizeof(words[0]))];
            memcpy(bytes + len, word, strlen(word));
            len += strlen(word);
        }
        assert_int_equal(write(theirs, bytes, len), len);
        assert_int_equal(channel_read(&c), 1);
        size_t taken = 0;
        while (channel_next(&c, &frame) == 1)
            taken += frame.len;
        assert_true(taken < len);
        close_pair(&c, theirs);
    }
}

static void what_is_queued_arrives(void **state)
{
    struct channel c;
    int theirs;
    char got[256 << 10];
    size_t len = 0;
    size_t large = 200 << 10;
    cleanup_free char *data = malloc(large);
    assert_non_null(data);
    memset(data, 'x', large);
    open_pair(&c, &theirs);
    assert_int_equal(channel_queue(&c, "stdin", data, large), 0);
    assert_int_equal(channel_queue(&c, "jobs", NULL, 0), 0);
    while (channel_has_more(&c)) {
        assert_int_equal(channel_write(&c), 0);
        ssize_t n;
        while ((n = read(theirs, got + len, sizeof(got) - len)) > 0)
            len += (size_t)n;
    }
    assert_int_equal(len, strlen("stdin 204800\n") + large + strlen("jobs 0\n"));
    assert_memory_equal(got, "stdin 204800\nx", 14);
    assert_memory_equal(got + len - 7, "jobs 0\n", 7);
    (void)close(theirs);
    assert_int_equal(channel_read(&c), -EPIPE);
    assert_int_equal(channel_queue(&c, "jobs", NULL, 0), 0);
    assert_int_equal(channel_write(&c), -EPIPE);
    (void)close(c.fd);
    channel_done(&c);
}

static void websocket_answers_as_the_rfc_does(void **state)
{
    char accept[WEBSOCKET_ACCEPT] = "";
    assert_true(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept));
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    static const char *const bad[] = {"",
        "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ===", "dGhlIHNhbXBsZSBub25jZQAA",
        "!!!!!!!!!!!!!!!!!!!!!!!!"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(websocket_accept(bad[i], accept));
    assert_true(websocket_has_word("keep-alive, Upgrade", "upgrade"));
    assert_true(websocket_has_word("upgrade", "upgrade"));
    assert_false(websocket_has_word("upgrades, xupgrade", "upgrade"));
    assert_false(websocket_has_word(NULL, "upgrade"));
}

static void terminal_messages_are_sizes(void **state)
{
    struct terminal_size size = {7, 7};
    struct err err = {0};
    static const char *const good = "{\"cols\":80, \"type\":\"resize\",\"rows\":1000}";
    static const char *const bad[] = {"", "{}", "null", "[]", "{\"type\":\"resize\"}",
        "{\"type\":\"resize\",\"rows\":0,\"cols\":80}",
        "{\"type\":\"resize\",\"rows\":1001,\"cols\":80}",
        "{\"type\":\"resize\",\"rows\":1.0,\"cols\":80}",
        "{\"type\":\"size\",\"rows\":1,\"cols\":80}",
        "{\"type\":\"resize\",\"rows\":1,\"cols\":80,\"x\":0}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(terminal_control_parse(bad[i], strlen(bad[i]), &size, &err) < 0);
        assert_int_equal(size.rows, 7);
    }
    assert_int_equal(terminal_control_parse(good, strlen(good), &size, &err), 0);
    assert_int_equal(size.rows, 1000);
    assert_int_equal(size.cols, 80);
}

/* An interpreter with a part of a core needs longer for the same work. */
static void patience_follows_the_cores(void **state)
{
    struct session s = {0};

    assert_int_equal(session_patience_ms(&s, 10000), 10000);
    s.spec.limits.cpu_milli = 50;
    assert_int_equal(session_patience_ms(&s, 10000), 200000);
    s.spec.limits.cpu_milli = 4000;
    assert_int_equal(session_patience_ms(&s, 10000), 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patience_follows_the_cores),
        cmocka_unit_test(capture_keeps_both_ends),
        cmocka_unit_test(capture_cuts_between_code_points),
        cmocka_unit_test(frames_come_in_any_pieces),
        cmocka_unit_test(what_is_no_frame_is_refused),
        cmocka_unit_test(rubbish_is_survived),
        cmocka_unit_test(what_is_queued_arrives),
        cmocka_unit_test(websocket_answers_as_the_rfc_does),
        cmocka_unit_test(terminal_messages_are_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
