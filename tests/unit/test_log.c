/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the log: one event is one line of JSON, whatever its values contain. */

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

static int pipe_fds[2];
static char line[2 * PIPE_BUF];

static int open_pipe(void **state)
{
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    log_set_fd(pipe_fds[1]);
    return log_set_level("info");
}

static int close_pipe(void **state)
{
    log_set_fd(STDERR_FILENO);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    return 0;
}

/* Reads what was logged since the last call. */
static const char *logged(void)
{
    ssize_t n = read(pipe_fds[0], line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = '\0';
    return line;
}

/* The part from the level on: what comes before is the time. */
static const char *logged_after_time(void)
{
    const char *rest = strstr(logged(), "\"level\"");
    return rest ? rest : "";
}

static void event_is_one_line_of_json(void **state)
{
    int year;
    int ms;
    char end;

    log_event(LOG_INFO, "run finished", "run", "run_1", "status", "ok", NULL);
    const char *rest = logged_after_time();
    assert_string_equal(rest,
        "\"level\":\"info\",\"msg\":\"run finished\",\"run\":\"run_1\",\"status\":\"ok\"}\n");
    assert_int_equal(
        sscanf(line, "{\"time\":\"%d-%*d-%*dT%*d:%*d:%*d.%dZ%c", &year, &ms, &end), 3);
    assert_int_equal(end, '"');
    assert_true(year >= 2024 && ms < 1000);
}

static void level_decides_what_is_written(void **state)
{
    assert_int_equal(log_set_level("warning"), 0);
    assert_int_equal(log_get_level(), LOG_WARN);
    log_event(LOG_INFO, "x", NULL);
    assert_string_equal(logged(), "");
    log_event(LOG_WARN, "x", NULL);
    assert_string_equal(logged_after_time(), "\"level\":\"warn\",\"msg\":\"x\"}\n");
    assert_int_equal(log_set_level("debug"), 0);
    log_event(LOG_DEBUG, "x", NULL);
    assert_string_equal(logged_after_time(), "\"level\":\"debug\",\"msg\":\"x\"}\n");
}

static void unknown_level_changes_nothing(void **state)
{
    assert_int_equal(log_set_level("loud"), -EINVAL);
    assert_int_equal(log_set_level(""), -EINVAL);
    assert_int_equal(log_set_level(NULL), -EINVAL);
    assert_int_equal(log_get_level(), LOG_INFO);
}

static void control_characters_and_quotes_are_escaped(void **state)
{
    log_event(LOG_INFO, "a\"b\\c\n\t\r\x1b[2J\x7f\xc2\x9b", NULL);
    assert_string_equal(logged_after_time(),
        "\"level\":\"info\",\"msg\":\"a\\\"b\\\\c\\n\\t\\u000d\\u001b[2J\\u007f\\u009b\"}\n");
}

static void invalid_utf8_is_replaced_and_valid_kept(void **state)
{
    log_event(LOG_INFO, "x", "k", "\xff\xe2\x82 \xe2\x82\xac \xf0\x9f\x98\x80", NULL);
    assert_string_equal(logged_after_time(),
        "\"level\":\"info\",\"msg\":\"x\",\"k\":"
        "\"\\ufffd\\ufffd \xe2\x82\xac \xf0\x9f\x98\x80\"}\n");
}

static void null_value_is_null_and_ends_the_list(void **state)
{
    const char *missing = NULL;

    log_event(LOG_INFO, "x", "a", "1", "b", missing, NULL);
    assert_string_equal(
        logged_after_time(), "\"level\":\"info\",\"msg\":\"x\",\"a\":\"1\",\"b\":null}\n");
}

static void assert_is_closed_line(const char *s)
{
    size_t len = strlen(s);

    assert_true(len > 3 && len <= PIPE_BUF);
    assert_ptr_equal(strchr(s, '\n'), s + len - 1);
    assert_memory_equal(s + len - 3, "\"}\n", 3);
    assert_true(utf8_valid(s, len));
}

static void long_values_are_cut_and_the_line_is_closed(void **state)
{
    static char value[3 * PIPE_BUF];

    /* Every length around the limit, with characters that grow when escaped. */
    for (size_t len = PIPE_BUF - 200; len < PIPE_BUF + 50; len++) {
        memset(value, 'a', len);
        value[len] = '\0';
        log_event(LOG_INFO, "x", "k", value, "l", "m", "n", value, NULL);
        assert_is_closed_line(logged());
    }
    for (size_t shift = 0; shift < 6; shift++) {
        memset(value, 'a', shift);
        memset(value + shift, '\x01', sizeof(value) - shift - 1);
        log_event(LOG_INFO, value, value, value, NULL);
        assert_is_closed_line(logged());
        for (size_t i = shift; i + 3 < sizeof(value); i += 3)
            memcpy(value + i, "\xe2\x82\xac", 4);
        log_event(LOG_INFO, value, NULL);
        assert_is_closed_line(logged());
    }
}

static void errno_is_kept_and_a_broken_log_is_ignored(void **state)
{
    errno = EXDEV;
    log_event(LOG_INFO, "x", NULL);
    assert_int_equal(errno, EXDEV);
    log_set_fd(-1);
    log_event(LOG_INFO, "x", NULL);
    assert_int_equal(errno, EXDEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(event_is_one_line_of_json, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(level_decides_what_is_written, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(unknown_level_changes_nothing, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(
            control_characters_and_quotes_are_escaped, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(
            invalid_utf8_is_replaced_and_valid_kept, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(
            null_value_is_null_and_ends_the_list, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(
            long_values_are_cut_and_the_line_is_closed, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(
            errno_is_kept_and_a_broken_log_is_ignored, open_pipe, close_pipe),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
