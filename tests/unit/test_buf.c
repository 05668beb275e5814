/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about struct buf: the ceiling holds, nothing is half stored, the NUL is always there.
 */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

static void append_keeps_bytes_and_terminates(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 100);
    assert_int_equal(buf_append(&b, "ab\0c", 4), 0);
    assert_int_equal(buf_append_str(&b, "de"), 0);
    assert_int_equal(b.len, 6);
    assert_memory_equal(b.data, "ab\0cde", 7);
}

static void append_of_nothing_touches_nothing(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 0);
    assert_int_equal(buf_append(&b, NULL, 0), 0);
    assert_null(b.data);
}

static void append_past_max_stores_nothing_and_stays_usable(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 4);
    assert_int_equal(buf_append_str(&b, "abc"), 0);
    assert_int_equal(buf_append_str(&b, "de"), -EMSGSIZE);
    assert_string_equal(b.data, "abc");
    assert_int_equal(buf_append_str(&b, "d"), 0);
    assert_string_equal(b.data, "abcd");
    assert_int_equal(buf_append(&b, "x", SIZE_MAX), -EMSGSIZE);
}

static void append_some_takes_what_fits(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 4);
    assert_int_equal(buf_append_some(&b, "abc", 3), 3);
    assert_int_equal(buf_append_some(&b, "def", 3), 1);
    assert_int_equal(buf_append_some(&b, "g", 1), 0);
    assert_string_equal(b.data, "abcd");
}

static void printf_fits_exactly_or_not_at_all(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 6);
    assert_int_equal(buf_printf(&b, "%d-%s", 12, "abc"), 0);
    assert_int_equal(buf_printf(&b, "%s", "d"), -EMSGSIZE);
    assert_string_equal(b.data, "12-abc");
    assert_int_equal(buf_printf(&b, "%s", ""), 0);
}

static void growth_survives_many_appends(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, 100000);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(buf_append(&b, &"0123456789"[i % 10], 1), 0);
    assert_int_equal(buf_append(&b, "x", 1), -EMSGSIZE);
    assert_int_equal(b.len, 100000);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(b.data[i], '0' + i % 10);
    assert_true(b.cap <= b.max + 1);
}

static void a_maximum_without_bound_does_not_wrap(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, SIZE_MAX);
    assert_int_equal(buf_append_str(&b, "abc"), 0);
    assert_int_equal(buf_append(&b, "x", SIZE_MAX), -EMSGSIZE);
    assert_string_equal(b.data, "abc");
}

static void exhaustion_is_an_error_not_the_end(void **state)
{
    cleanup_buf struct buf b;

    buf_init(&b, SIZE_MAX);
    assert_int_equal(buf_append_str(&b, "abc"), 0);
#ifndef __SANITIZE_ADDRESS__ /* which ends the program when so much is asked for */
    assert_int_equal(buf_append(&b, "x", (size_t)1 << 60), -ENOMEM);
#endif
    assert_string_equal(b.data, "abc");
}

static void read_stops_at_max_and_reports_full(void **state)
{
    cleanup_buf struct buf b;
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    cleanup_close int from = fds[0];
    cleanup_close int to = fds[1];
    buf_init(&b, 5);
    assert_int_equal(buf_read_fd(&b, from, 10), -EAGAIN);
    assert_int_equal(write(to, "abcdefg", 7), 7);
    assert_int_equal(buf_read_fd(&b, from, 2), 2);
    assert_int_equal(buf_read_fd(&b, from, SIZE_MAX), 3);
    assert_string_equal(b.data, "abcde");
    assert_int_equal(buf_read_fd(&b, from, 10), -EMSGSIZE);
    buf_clear(&b);
    assert_int_equal(buf_read_fd(&b, from, 10), 2);
    close_fd(&to);
    assert_int_equal(buf_read_fd(&b, from, 10), 0);
    assert_string_equal(b.data, "fg");
    assert_int_equal(buf_read_fd(&b, -1, 10), -EBADF);
    assert_int_equal(buf_read_fd(&b, from, 0), -EINVAL);
}

static void take_hands_over_and_never_is_null(void **state)
{
    cleanup_buf struct buf b;
    size_t len = 99;

    buf_init(&b, 10);
    cleanup_free char *empty = buf_take(&b, &len);
    assert_string_equal(empty, "");
    assert_int_equal(len, 0);
    assert_int_equal(buf_append_str(&b, "abc"), 0);
    cleanup_free char *taken = buf_take(&b, &len);
    assert_string_equal(taken, "abc");
    assert_int_equal(len, 3);
    assert_null(b.data);
    assert_int_equal(buf_append_str(&b, "0123456789"), 0);
    assert_int_equal(b.len, 10);
}

static void done_accepts_a_zeroed_struct_and_twice(void **state)
{
    struct buf b = {0};

    buf_done(&b);
    buf_init(&b, 10);
    assert_int_equal(buf_append_str(&b, "abc"), 0);
    buf_done(&b);
    buf_done(&b);
    buf_done(NULL);
    assert_int_equal(b.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(append_keeps_bytes_and_terminates),
        cmocka_unit_test(append_of_nothing_touches_nothing),
        cmocka_unit_test(append_past_max_stores_nothing_and_stays_usable),
        cmocka_unit_test(append_some_takes_what_fits),
        cmocka_unit_test(printf_fits_exactly_or_not_at_all),
        cmocka_unit_test(growth_survives_many_appends),
        cmocka_unit_test(a_maximum_without_bound_does_not_wrap),
        cmocka_unit_test(exhaustion_is_an_error_not_the_end),
        cmocka_unit_test(read_stops_at_max_and_reports_full),
        cmocka_unit_test(take_hands_over_and_never_is_null),
        cmocka_unit_test(done_accepts_a_zeroed_struct_and_twice),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
