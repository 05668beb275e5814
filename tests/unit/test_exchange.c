/* SPDX-License-Identifier: Apache-2.0 */

/* The conversation of hermes-inject: what goes to the server, and what comes back to the box.
 */

#include "inject/exchange.h"
#include "inject/head.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define VALUE "secret-value-aabaab"
#define STARS "*******************"

static const struct exchange_rule rule = {.host = "api.example.com",
    .port = 443,
    .count = 1,
    .secrets = {{.header = "Authorization", .line = "Bearer " VALUE, .value = VALUE}}};

struct talk {
    struct exchange x;
    struct buf to_server;
    struct buf to_box;
};

static void begin(struct talk *t, const struct exchange_rule *r)
{
    exchange_init(&t->x, r);
    buf_init(&t->to_server, 1 << 20);
    buf_init(&t->to_box, 1 << 20);
}

static void end(struct talk *t)
{
    exchange_done(&t->x);
    buf_done(&t->to_server);
    buf_done(&t->to_box);
}

/* Gives a text in pieces of this size; what is not taken comes again with what follows. */
static void give(struct talk *t, bool is_request, const char *text, size_t step)
{
    char *pending = calloc(1, strlen(text) + 1);
    size_t have = 0;
    for (size_t at = 0, len = strlen(text); at < len;) {
        size_t n = len - at < step ? len - at : step;
        memcpy(pending + have, text + at, n);
        have += n;
        at += n;
        for (size_t taken = 1; taken && have && !t->x.is_over;) {
            int r = is_request ? exchange_request(
                                     &t->x, pending, have, &t->to_server, &t->to_box, &taken)
                               : exchange_answer(&t->x, pending, have, &t->to_box, &taken);
            assert_int_equal(r, 0);
            assert_true(taken <= have);
            memmove(pending, pending + taken, have - taken);
            have -= taken;
        }
    }
    free(pending);
}

static const char *text_of(const struct buf *b)
{
    return b->data ? b->data : "";
}

static void test_request_is_written_anew(void **state)
{
    static const char request[] =
        "POST /a?b HTTP/1.1\r\nhost: API.example.com\r\nauthorization: mine\r\n"
        "AUTHORIZATION: mine\r\nX-A: 1 \r\nConnection: keep-alive, X-A\r\nTE: trailers\r\n"
        "Accept-Encoding: br\r\nTransfer-Encoding: CHUNKED\r\n\r\n"
        "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
    (void)state;
    for (size_t step = 1; step < sizeof(request); step++) {
        struct talk t;
        begin(&t, &rule);
        give(&t, true, request, step);
        char *got = t.to_server.data;
        char *body = strstr(got, "\r\n\r\n");
        assert_non_null(body);
        body[2] = '\0';
        assert_string_equal(got,
            "POST /a?b HTTP/1.1\r\nHost: api.example.com\r\nAccept-Encoding: identity\r\n"
            "X-A: 1\r\nAuthorization: Bearer " VALUE "\r\nTransfer-Encoding: chunked\r\n");
        if (step == sizeof(request) - 1)
            assert_string_equal(body + 4, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_int_equal(t.x.request, PHASE_DONE);
        end(&t);
    }
}

static const struct {
    const char *request;
    const char *status; /* NULL: it passes */
} requests[] = {
    {"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", NULL},
    {"GET / HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n", NULL},
    {"OPTIONS * HTTP/1.1\r\nHost: api.example.com\r\n\r\n", NULL},
    {"GET / HTTP/1.1\r\nHost: api.example.com:444\r\n\r\n", "421"},
    {"GET / HTTP/1.1\r\nHost: api.example.com:\r\n\r\n", "421"},
    {"GET / HTTP/1.1\r\nHost: api.example.com.\r\n\r\n", "421"},
    {"GET / HTTP/1.1\r\nHost: api.example.comx\r\n\r\n", "421"},
    {"GET / HTTP/1.1\r\n\r\n", "421"},
    {"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: api.example.com\r\n\r\n", "421"},
    {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400"},
    {"GET /\x80 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400"},
    {"GET /a b HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400"},
    {"get / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400"},
    {"GET / HTTP/1.0\r\nHost: api.example.com\r\n\r\n", "505"},
    {"GET / HTTP/3.0\r\nHost: api.example.com\r\n\r\n", "505"},
    {"GET / XTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400"},
    {"TRACE / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "405"},
    {"GET / HTTP/1.1\r\nHost: api.example.com\r\nA : b\r\n\r\n", "400"},
    {"GET / HTTP/1.1\r\nHost: api.example.com\r\nA: b\r\n c\r\n\r\n", "400"},
    {"GET / HTTP/1.1\r\nHost: api.example.com\r\nA: b\nB: c\r\n\r\n", "400"},
    {"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
        "400"},
    {"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\nContent_Length: "
     "1\r\n\r\n",
        "400"},
    {"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "400"},
    {"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: x\r\n\r\n", "501"},
    {"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        "400"},
};

static void test_requests_that_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct talk t;
        begin(&t, &rule);
        give(&t, true, requests[i].request, 7);
        bool passes = !t.x.is_over && t.to_box.len == 0 && t.to_server.len > 0;
        const char *got = text_of(&t.to_box);
        if (requests[i].status ? strncmp(got + 9, requests[i].status, 3) != 0 : !passes)
            fail_msg("%s: %s", requests[i].request, got);
        end(&t);
    }
}

static void test_a_large_head_is_refused(void **state)
{
    struct talk t;
    char *text = malloc(HEAD_MAX + 10);
    (void)state;
    memset(text, 'a', HEAD_MAX + 9);
    text[HEAD_MAX + 9] = '\0';
    begin(&t, &rule);
    give(&t, true, text, 5000);
    assert_memory_equal(text_of(&t.to_box), "HTTP/1.1 431", 12);
    assert_int_equal(t.to_server.len, 0);
    end(&t);
    free(text);
}

static const struct {
    const char *answer;
    const char *expected; /* of what the box gets; with steps of 1 chunks are smaller */
} answers[] = {
    {"HTTP/1.1 200 OK\r\nX: a" VALUE "b\r\nContent-Length: 21\r\n\r\n<" VALUE ">",
        "HTTP/1.1 200 OK\r\nX: a" STARS "b\r\nContent-Length: 21\r\n\r\n<" STARS ">"},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nAlt-Svc: h3\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nsecret-secret-value-aabaaba",
        "HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nsecret-" STARS},
    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsecret-val",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsecret-val"},
    {"HTTP/1.1 304 x\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 304 x\r\nContent-Length: 10\r\n\r\n"},
    {"HTTP/1.1 101 x\r\n\r\n", "HTTP/1.1 502 "},
    {"HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n", "HTTP/1.1 502 "},
    {"HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "HTTP/1.1 502 "},
    {"HTTP/2 200 x\r\n\r\n", "HTTP/1.1 502 "},
    {"HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 502 "},
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        for (size_t step = 1; step < 200; step += 3) {
            struct talk t;
            begin(&t, &rule);
            give(&t, true, requests[0].request, 1000);
            give(&t, false, answers[i].answer, step);
            const char *got = text_of(&t.to_box);
            if (strncmp(got, answers[i].expected, strlen(answers[i].expected)) != 0)
                fail_msg("step %zu: %s", step, got);
            assert_null(strstr(got, VALUE));
            end(&t);
        }
    }
}

static void test_an_echo_over_chunks(void **state)
{
    struct talk t;
    (void)state;
    begin(&t, &rule);
    give(&t, true, requests[0].request, 1000);
    give(&t, false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 1000);
    buf_clear(&t.to_box);
    give(&t, false, "8\r\nsecret-v\r\n", 1000);
    assert_int_equal(t.to_box.len, 0); /* it may become the value */
    give(&t, false, "b\r\nalue-aabaab\r\n1\r\nx\r\n0\r\nT: " VALUE "\r\n\r\n", 1000);
    assert_string_equal(
        t.to_box.data, "1\r\n*\r\n1\r\n*\r\n12\r\n*****************x\r\n0\r\n\r\n");
    assert_true(exchange_is_idle(&t.x));
    end(&t);
}

static void test_pipelined_requests_wait_for_answers(void **state)
{
    struct talk t;
    size_t taken;
    (void)state;
    begin(&t, &rule);
    const char *two = "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
                      "GET /2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    size_t half = head_size(two, strlen(two));
    assert_int_equal(
        exchange_request(&t.x, two, strlen(two), &t.to_server, &t.to_box, &taken), 0);
    assert_int_equal(taken, half);
    assert_false(exchange_wants_request(&t.x));
    give(&t, false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 1000);
    assert_true(exchange_wants_request(&t.x));
    give(&t, true, two + half, 1000);
    assert_non_null(strstr(t.to_server.data, "GET /2 "));
    end(&t);
}

static void test_ends(void **state)
{
    struct talk t;
    (void)state;
    begin(&t, &rule); /* nobody has asked */
    give(&t, false, "HTTP/1.1 200 OK\r\n\r\n", 1000);
    assert_true(t.x.is_over && t.x.is_cut && t.to_box.len == 0);
    end(&t);
    begin(&t, &rule); /* until the end */
    give(&t, true, requests[0].request, 1000);
    give(&t, false, "HTTP/1.0 200 OK\r\n\r\nabc" VALUE "secret", 1000);
    assert_int_equal(exchange_answer_end(&t.x, true, &t.to_box), 0);
    assert_non_null(
        strstr(t.to_box.data, "\r\na\r\nabc*******\r\n12\r\n************secret\r\n0\r\n\r\n"));
    assert_true(t.x.is_over && !t.x.is_cut);
    end(&t);
    begin(&t, &rule); /* cut */
    give(&t, true, requests[0].request, 1000);
    give(&t, false, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 1000);
    assert_int_equal(exchange_answer_end(&t.x, true, &t.to_box), 0);
    assert_true(t.x.is_over && t.x.is_cut);
    end(&t);
    begin(&t, &rule); /* no server */
    exchange_fail(&t.x, &t.to_box);
    assert_memory_equal(t.to_box.data, "HTTP/1.1 502", 12);
    end(&t);
}

static void test_two_secrets(void **state)
{
    static const struct exchange_rule two = {.host = "api.example.com",
        .port = 8443,
        .count = 2,
        .secrets = {{"X-Id", "identity-1-of-me", "identity-1-of-me"}, {"X-Key", VALUE, VALUE}}};
    struct talk t;
    (void)state;
    begin(&t, &two);
    give(&t, true, "GET / HTTP/1.1\r\nHost: api.example.com:8443\r\nX_Key: mine\r\n\r\n", 1000);
    assert_string_equal(t.to_server.data,
        "GET / HTTP/1.1\r\nHost: api.example.com:8443\r\nAccept-Encoding: identity\r\n"
        "X-Id: identity-1-of-me\r\nX-Key: " VALUE "\r\n\r\n");
    give(&t, false, "HTTP/1.1 200 OK\r\nContent-Length: 37\r\n\r\n[identity-1-of-me" VALUE "]",
        5);
    assert_non_null(strstr(t.to_box.data, "[****************" STARS "]"));
    end(&t);
}

/* Against the plain search in the whole text. */
/* The value of one secret is a part of the other's: nothing is left of the longer one. */
static void test_a_secret_within_a_secret(void **state)
{
    static const struct exchange_rule nested = {.host = "api.example.com",
        .port = 443,
        .count = 3,
        .secrets = {
            {.header = "X-A", .line = "inner-inner-inner", .value = "inner-inner-inner"},
            {.header = "X-B",
                .line = "client:inner-inner-inner:end",
                .value = "client:inner-inner-inner:end"},
            {.header = "X-C", .line = "inner-inner-inn", .value = "inner-inner-inn"}}};
    (void)state;
    for (size_t step = 1; step < 100; step += 7) {
        struct talk t;
        begin(&t, &nested);
        give(&t, true, "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 1000);
        give(&t, false,
            "HTTP/1.1 200 OK\r\nX-Echo: client:inner-inner-inner:end\r\n"
            "Content-Length: 28\r\n\r\nclient:inner-inner-inner:end",
            step);
        assert_non_null(strstr(text_of(&t.to_box), "X-Echo: ****************************\r\n"));
        assert_non_null(strstr(text_of(&t.to_box), "\r\n\r\n****************************"));
        end(&t);
    }
}

static void test_scrub_finds_every_value(void **state)
{
    static const char *const values[] = {
        "aabaabaaaabaabaa", "abababababababab", "aaaaaaaaaaaaaaaa", "abcabcababcabcab"};
    unsigned seed = 1;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        const char *value = values[round % 4];
        char text[65] = "";
        char want[65];
        struct scrub s;
        struct buf got;
        for (int i = 0; i < 64; i++)
            text[i] = "abc"[(seed = seed * 1103515245 + 12345) / 65536 % (round % 3 + 1)];
        for (int i = 0; i < 64 - 16 && round % 5 == 0; i += 20)
            memcpy(text + i, value, 16);
        memcpy(want, text, sizeof(want));
        for (char *at = want; (at = strstr(at, value));)
            memset(at, '*', strlen(value));
        scrub_init(&s, value, strlen(value));
        buf_init(&got, 1000);
        for (size_t at = 0; at < 64;) {
            size_t n = (seed = seed * 1103515245 + 12345) / 65536 % 9;
            n = n < 64 - at ? n : 64 - at;
            assert_int_equal(scrub_feed(&s, text + at, n, &got), 0);
            at += n;
            assert_int_equal(got.len, at < 15 ? 0 : at - 15); /* whatever the text is */
        }
        assert_int_equal(scrub_flush(&s, &got), 0);
        scrub_text(&s, text, 64);
        assert_string_equal(text, want);
        if (strcmp(got.data, want) != 0)
            fail_msg("%s in %s: %s, not %s", value, text, got.data, want);
        buf_done(&got);
        scrub_done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_is_written_anew),
        cmocka_unit_test(test_requests_that_are_refused),
        cmocka_unit_test(test_a_large_head_is_refused),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_an_echo_over_chunks),
        cmocka_unit_test(test_pipelined_requests_wait_for_answers),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_two_secrets),
        cmocka_unit_test(test_a_secret_within_a_secret),
        cmocka_unit_test(test_scrub_finds_every_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
