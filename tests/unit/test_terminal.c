/* SPDX-License-Identifier: Apache-2.0 */

/* What a stranger says when it asks for a terminal and about it, and how long it may be silent.
 */

#include "test.h"

#include "proto/websocket.h"
#include "session/terminal.h"

#include <string.h>

static int parse(const char *text, struct terminal_size *ret, struct err *err)
{
    *err = (struct err){0};
    return terminal_control_parse(text, strlen(text), ret, err);
}

static void a_size_is_taken(void **state)
{
    struct terminal_size size = {0};
    struct err err;
    assert_int_equal(parse("{\"type\":\"resize\",\"rows\":1,\"cols\":1000}", &size, &err), 0);
    assert_int_equal(size.rows, 1);
    assert_int_equal(size.cols, 1000);
    assert_int_equal(
        parse(" {\"cols\": 80, \"rows\": 24, \"type\": \"resize\"}\n", &size, &err), 0);
    assert_int_equal(size.rows, 24);
    assert_int_equal(size.cols, 80);
}

static void the_wrong_side_is_named(void **state)
{
    static const char *const bad[] = {"0", "-1", "1001", "1.0", "\"5\"", "null", "true", "[5]",
        "4294967297", "9223372036854775807"};
    struct terminal_size size = {7, 7};
    struct err err;
    char text[128];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(
            text, sizeof(text), "{\"type\":\"resize\",\"rows\":%s,\"cols\":5}", bad[i]);
        assert_true(parse(text, &size, &err) < 0);
        assert_string_equal(err.field, "rows");
        (void)snprintf(
            text, sizeof(text), "{\"type\":\"resize\",\"rows\":5,\"cols\":%s}", bad[i]);
        assert_true(parse(text, &size, &err) < 0);
        assert_string_equal(err.field, "cols");
        assert_string_equal(err.message, "must be a number from 1 to 1000");
    }
    assert_int_equal(size.rows, 7); /* set on success only */
    assert_int_equal(size.cols, 7);
}

static void other_messages_are_refused(void **state)
{
    static const char *const bad[] = {"", "{", "[]", "null", "5", "\"resize\"", "{}",
        "{\"type\":\"resize\"}", "{\"type\":\"resize\",\"rows\":5}",
        "{\"type\":\"exit\",\"rows\":5,\"cols\":5}", "{\"type\":5,\"rows\":5,\"cols\":5}",
        "{\"type\":\"resize\",\"rows\":5,\"cols\":5,\"more\":1}",
        "{\"type\":\"resize\",\"rows\":5,\"rows\":5,\"cols\":5}",
        "{\"type\":\"resize\",\"rows\":5,\"cols\":5}x",
        "{\"type\":\"resize\",\"rows\":5,\"cols\":18446744073709551617}"};
    struct terminal_size size;
    struct err err;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(parse(bad[i], &size, &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
    }
    char text[TERMINAL_CONTROL_MAX + 2];
    memset(text, ' ', sizeof(text));
    assert_true(terminal_control_parse(text, TERMINAL_CONTROL_MAX + 1, &size, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

static void keys_of_an_opening(void **state)
{
    static const char *const bad[] = {"", "short",
        "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ===", "AAAAAAAAAAAAAAAAAAAAAAAA",
        "!!!!!!!!!!!!!!!!!!!!!!==", "dGhlIHNhbXBsZSBub25j====",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff=="};
    char accept[WEBSOCKET_ACCEPT];
    /* The example of RFC 6455, 1.3. */
    assert_true(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept));
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(websocket_accept(bad[i], accept));
}

static void words_of_a_header(void **state)
{
    static const char *const with[] = {
        "upgrade", "Upgrade", "keep-alive, Upgrade", "UPGRADE,close", " ,\tupgrade , x"};
    static const char *const without[] = {
        "", ",", "upgrades", "up grade", "xupgrade", "upgrade;x", "keep-alive", "upgrad"};
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++)
        assert_true(websocket_has_word(with[i], "upgrade"));
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        assert_false(websocket_has_word(without[i], "upgrade"));
    assert_false(websocket_has_word(NULL, "upgrade"));
}

enum { TICK_MS = 250, BEGIN_MS = 5000 };

/* Ticks until it is given up or so much time has passed; returns that time and counts pings. */
static uint64_t be_silent(
    struct terminal_silence *s, bool is_listening, uint64_t ms, unsigned *ret_pings)
{
    uint64_t begin = s->asked_ms;
    *ret_pings = 0;
    for (uint64_t now = begin; now <= begin + ms; now += TICK_MS) {
        enum terminal_verdict verdict = terminal_judge(s, is_listening, now);
        *ret_pings += verdict == TERMINAL_PING;
        if (verdict == TERMINAL_GIVE_UP)
            return now - begin;
    }
    return ms;
}

static void a_silent_client_is_asked_and_given_up(void **state)
{
    struct terminal_silence s;
    unsigned pings;
    terminal_heard(&s, BEGIN_MS);
    assert_int_equal(be_silent(&s, true, 19999, &pings), 19999);
    assert_int_equal(pings, 0);
    assert_int_equal(be_silent(&s, true, 600000, &pings), TERMINAL_SILENT_MS);
    assert_int_equal(pings, 2);
}

static void an_answer_counts(void **state)
{
    struct terminal_silence s;
    terminal_heard(&s, BEGIN_MS);
    for (uint64_t now = BEGIN_MS; now < BEGIN_MS + 600000; now += TICK_MS) {
        enum terminal_verdict verdict = terminal_judge(&s, true, now);
        assert_int_not_equal(verdict, TERMINAL_GIVE_UP);
        if (verdict == TERMINAL_PING)
            terminal_heard(&s, now);
    }
}

/* While it is not listened to it is pinged all the same, so that TCP sees whether it is there;
 * then it has all of its time. */
static void who_is_not_listened_to_is_pinged_only(void **state)
{
    struct terminal_silence s;
    unsigned pings;
    terminal_heard(&s, BEGIN_MS);
    assert_int_equal(be_silent(&s, false, 600000, &pings), 600000);
    assert_int_equal(pings, 30);
    uint64_t end = BEGIN_MS + 600000;
    assert_int_not_equal(
        terminal_judge(&s, true, end + TERMINAL_SILENT_MS - 1), TERMINAL_GIVE_UP);
    assert_int_equal(terminal_judge(&s, true, end + TERMINAL_SILENT_MS), TERMINAL_GIVE_UP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_is_taken),
        cmocka_unit_test(the_wrong_side_is_named),
        cmocka_unit_test(other_messages_are_refused),
        cmocka_unit_test(keys_of_an_opening),
        cmocka_unit_test(words_of_a_header),
        cmocka_unit_test(a_silent_client_is_asked_and_given_up),
        cmocka_unit_test(an_answer_counts),
        cmocka_unit_test(who_is_not_listened_to_is_pinged_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
