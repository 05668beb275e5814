/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the two ends of a terminal on a backend. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/terminal_link.h"

struct ends {
    struct terminal_link a, b;
    int a_bytes, b_bytes; /* what stands behind each end */
};

static void make(struct ends *e)
{
    int talk[2], left[2], right[2];
    int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    assert_int_equal(socketpair(AF_UNIX, type, 0, talk), 0);
    assert_int_equal(socketpair(AF_UNIX, type, 0, left), 0);
    assert_int_equal(socketpair(AF_UNIX, type, 0, right), 0);
    terminal_link_init(&e->a, talk[0], left[0]);
    terminal_link_init(&e->b, talk[1], right[0]);
    e->a_bytes = left[1];
    e->b_bytes = right[1];
}

static void done(struct ends *e)
{
    struct terminal_link *both[] = {&e->a, &e->b};
    for (int i = 0; i < 2; i++) {
        (void)close(both[i]->talk_fd);
        (void)close(both[i]->bytes_fd);
        buf_done(&both[i]->in);
        buf_done(&both[i]->out);
        buf_done(&both[i]->bytes);
    }
    (void)close(e->a_bytes);
    (void)close(e->b_bytes);
}

/* One turn of an end. Returns what terminal_link_next() returned last. */
static int turn(struct terminal_link *l, char *kind, uint32_t *value)
{
    if (terminal_link_bytes_events(l) & POLLIN)
        (void)terminal_link_read_bytes(l);
    if (terminal_link_talk_events(l) & POLLIN)
        (void)terminal_link_read_talk(l);
    int r = terminal_link_next(l, kind, value);
    terminal_link_write(l);
    return r;
}

static void bytes_and_words_arrive_in_their_order(void **state)
{
    struct ends e;
    char text[8] = "", kind = 0;
    uint32_t value = 0;
    make(&e);
    assert_int_equal(write(e.a_bytes, "hello", 5), 5);
    assert_int_equal(turn(&e.a, &kind, &value), 0);
    terminal_link_say(&e.a, TERMINAL_STATUS, 0x12345678);
    assert_int_equal(turn(&e.a, &kind, &value), 0);
    assert_int_equal(turn(&e.b, &kind, &value), 1);
    assert_int_equal(kind, TERMINAL_STATUS);
    assert_int_equal(value, 0x12345678);
    assert_int_equal(read(e.b_bytes, text, sizeof(text)), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(e.a.unconfirmed, 5);
    assert_int_equal(turn(&e.a, &kind, &value), 0);
    assert_int_equal(e.a.unconfirmed, 0);
    done(&e);
}

/* Control: with a reader all of it arrives. */
static void a_side_that_is_not_read_takes_a_window(void **state)
{
    static char piece[8192], out[8192];
    struct ends e;
    char kind;
    uint32_t value;
    size_t given = 0, taken = 0;
    make(&e);
    for (int i = 0; i < 2000; i++) {
        ssize_t n = write(e.a_bytes, piece, sizeof(piece));
        given += n > 0 ? (size_t)n : 0;
        assert_int_equal(turn(&e.a, &kind, &value), 0);
        assert_int_equal(turn(&e.b, &kind, &value), 0);
        assert_true(e.b.bytes.len <= TERMINAL_WINDOW && e.a.unconfirmed <= TERMINAL_WINDOW);
    }
    assert_int_equal(e.a.unconfirmed, TERMINAL_WINDOW);
    for (int i = 0; i < 100000 && taken < given; i++) {
        ssize_t n = read(e.b_bytes, out, sizeof(out));
        taken += n > 0 ? (size_t)n : 0;
        assert_int_equal(turn(&e.a, &kind, &value), 0);
        assert_int_equal(turn(&e.b, &kind, &value), 0);
    }
    assert_int_equal(taken, given);
    done(&e);
}

static int hears(const char *message, size_t len)
{
    struct ends e;
    char kind;
    uint32_t value;
    make(&e);
    (void)buf_append(&e.a.in, message, len);
    int r = terminal_link_next(&e.a, &kind, &value);
    done(&e);
    return r;
}

static void rules_that_are_broken_end_it(void **state)
{
    static char piece[16384 + 4] = {TERMINAL_BYTES, 0, 0x40, 0};
    struct ends e;
    char kind;
    uint32_t value;
    assert_int_equal(hears("a\0\0\4\0\0\0\1", 8), -EPROTO); /* nothing was sent */
    assert_int_equal(hears("e\0\0\5\0\0\0\1\1", 9), -EPROTO);
    assert_int_equal(hears("d\1\0\0", 4), -EPROTO);
    assert_int_equal(hears("d\0\0\1", 4), 0); /* control: not whole yet */
    assert_int_equal(hears("s\0\0\4\0\1\0\1", 8), 1);
    make(&e);
    for (int i = 0; i < TERMINAL_WINDOW / 16384; i++) {
        assert_int_equal(buf_append(&e.a.in, piece, sizeof(piece)), 0);
        assert_int_equal(terminal_link_next(&e.a, &kind, &value), 0);
    }
    assert_int_equal(buf_append(&e.a.in, piece, sizeof(piece)), 0);
    assert_int_equal(terminal_link_next(&e.a, &kind, &value), -EPROTO); /* above the window */
    done(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_words_arrive_in_their_order),
        cmocka_unit_test(a_side_that_is_not_read_takes_a_window),
        cmocka_unit_test(rules_that_are_broken_end_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
