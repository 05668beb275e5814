/* SPDX-License-Identifier: Apache-2.0 */

/* CONNECT through an HTTP proxy. */

#include "egress/upstream.h"
#include "test.h"

#include <string.h>

static void test_request(void **state)
{
    char text[UPSTREAM_REQUEST];
    char host[300], secret[300];
    (void)state;
    size_t n = upstream_request(text, "api.example.com", 443, "");
    assert_string_equal(
        text, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n");
    assert_int_equal(n, strlen(text));
    (void)upstream_request(text, "2001:db8::1", 80, "user:pass");
    assert_string_equal(text, "CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n"
                              "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n");
    assert_int_equal(upstream_request(text, "a\r\nb", 80, ""), 0);
    assert_int_equal(upstream_request(text, "", 80, ""), 0);
    memset(host, 'a', sizeof(host));
    memset(secret, 's', sizeof(secret));
    host[253] = secret[255] = '\0';
    n = upstream_request(text, host, 65535, secret);
    assert_true(n > 0 && n < UPSTREAM_REQUEST && n == strlen(text));
    host[253] = 'a';
    host[254] = '\0';
    assert_int_equal(upstream_request(text, host, 80, ""), 0);
    secret[255] = 's';
    secret[256] = '\0';
    assert_int_equal(upstream_request(text, "a", 80, secret), 0);
}

static const struct {
    const char *text;
    enum upstream_state state;
    const char *rest;
} cases[] = {
    {"HTTP/1.1 200 Connection established\r\n\r\n", UPSTREAM_OPEN, ""},
    {"HTTP/1.0 200 OK\r\nVia: x\r\n\r\nSSH-2.0", UPSTREAM_OPEN, "SSH-2.0"},
    {"HTTP/1.1 200\r\n\r\n\r\n", UPSTREAM_OPEN, "\r\n"},
    {"HTTP/1.1 204 x\n\nrest", UPSTREAM_OPEN, "rest"},
    {"HTTP/1.1 200 OK\r\nA: b\r\n", UPSTREAM_MORE, ""},
    {"HTTP/1.1 403 Forbidden\r\n\r\n", UPSTREAM_FAILED, ""},
    {"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", UPSTREAM_FAILED, ""},
    {"HTTP/1.1 100 Continue\r\n\r\n", UPSTREAM_FAILED, ""},
    {"HTTP/1.1 2000 OK\r\n\r\n", UPSTREAM_FAILED, NULL},
    {"HTTP/1.1 20\r\n\r\n", UPSTREAM_FAILED, NULL},
    {"HTTP/2 200 OK\r\n\r\n", UPSTREAM_FAILED, NULL},
    {"\r\nHTTP/1.1 200 OK\r\n\r\n", UPSTREAM_FAILED, NULL},
    {"SSH-2.0\r\n\r\n", UPSTREAM_FAILED, NULL},
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct upstream u = {0};
        size_t taken;
        size_t len = strlen(cases[i].text);
        if (upstream_feed(&u, cases[i].text, len, &taken) != cases[i].state)
            fail_msg("%s: state %d", cases[i].text, u.state);
        if (cases[i].rest)
            assert_string_equal(cases[i].text + taken, cases[i].rest);
        /* the same, one byte at a time */
        struct upstream slow = {0};
        size_t all = 0;
        for (size_t at = 0; at < len; at++) {
            size_t one;
            (void)upstream_feed(&slow, cases[i].text + at, 1, &one);
            all += one;
        }
        assert_int_equal(slow.state, u.state);
        assert_int_equal(slow.status, u.status);
        assert_int_equal(all, taken);
    }
}

static void test_endless(void **state)
{
    struct upstream u = {0};
    size_t taken;
    size_t all = 0;
    (void)state;
    (void)upstream_feed(&u, "HTTP/1.1 200 OK\r\n", 17, &taken);
    while (upstream_feed(&u, "a: b\r\n", 6, &taken) == UPSTREAM_MORE)
        all += taken;
    assert_int_equal(u.state, UPSTREAM_FAILED);
    assert_true(all < UPSTREAM_MAX_HEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_endless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
