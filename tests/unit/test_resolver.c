/* SPDX-License-Identifier: Apache-2.0 */

/* The resolver against a name server of the test on loopback. The name says what the server
 * answers: see serve(). */

#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/dns.h"
#include "egress/resolver.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct world {
    int server;
    struct resolver *resolver;
    unsigned questions; /* that arrived at the server */
    unsigned answers;   /* that came back through the resolver */
    struct resolver_answer last;
    uint8_t raw[512];
    bool asks_again, forgets;
};

/* "two.x": two addresses with TTL 30; "none.x": no data; "gone.x": no such name; "zero.x": one
 * address with TTL 0; "deaf.x": nothing; "odd.x": bytes that are no answer. */
static size_t serve(uint8_t *m, size_t len)
{
    static const uint8_t v4[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 8, 8, 4, 4};
    static const uint8_t text[] = {0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 30, 0, 4, 3, 'a', 'b', 'c'};
    struct dns_query q;
    assert_int_equal(dns_parse(&q, m, len), 0);
    size_t n = 12 + q.question_len;
    memset(m + 10, 0, 2);
    m[2] = 0x81;
    m[3] = strncmp(q.name, "gone", 4) == 0 ? 0x83 : 0x80;
    if (strncmp(q.name, "deaf", 4) == 0)
        return 0;
    if (strncmp(q.name, "odd", 3) == 0) {
        m[7] = 9; /* nine records that are not there */
        return n;
    }
    if (m[3] == 0x83 || strncmp(q.name, "none", 4) == 0)
        return n;
    if (q.type == 16) {
        m[7] = 1;
        memcpy(m + n, text, sizeof(text));
        return n + sizeof(text);
    }
    m[7] = q.name[0] == 't' ? 2 : 1;
    for (unsigned i = 0; i < m[7]; i++, n += sizeof(v4)) {
        memcpy(m + n, v4, sizeof(v4));
        m[n + 9] = q.name[0] == 'z' ? 0 : 30;
        m[n + 15] = (uint8_t)(4 + i);
    }
    return n;
}

static void on_done(void *context, const struct resolver_answer *answer)
{
    struct world *w = context;
    w->answers++;
    w->last = *answer;
    if (answer->raw) {
        memcpy(w->raw, answer->raw, answer->raw_len < 512 ? answer->raw_len : 512);
        w->last.raw = w->raw;
    }
    if (w->forgets)
        resolver_forget(w->resolver, w);
    if (w->asks_again) {
        w->asks_again = false;
        assert_int_equal(resolver_ask(w->resolver, "two.x", DNS_A, 7, on_done, w), 0);
    }
}

/* Lets server and resolver work until so many answers have come, or none is awaited. */
static void turn(struct world *w, unsigned answers)
{
    struct sockaddr_storage from;
    uint8_t m[2048];
    while (w->answers < answers) {
        struct pollfd fds[2] = {{w->server, POLLIN, 0}, {resolver_fd(w->resolver), POLLIN, 0}};
        int left = resolver_timeout_ms(w->resolver);
        if (left < 0)
            return;
        (void)poll(fds, 2, left);
        resolver_process(w->resolver);
        socklen_t len = sizeof(from);
        ssize_t n =
            recvfrom(w->server, m, sizeof(m), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
        if (n <= 0)
            continue;
        w->questions++;
        size_t answer = serve(m, (size_t)n);
        if (answer)
            assert_int_equal(
                sendto(w->server, m, answer, 0, (struct sockaddr *)&from, len), answer);
    }
}

static int set_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct world *w = calloc(1, sizeof(*w));
    struct resolver_options options = {.server_count = 1, .timeout_ms = 50};
    w->server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(w->server, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        getsockname(w->server, (struct sockaddr *)&at, &len) < 0)
        return -1;
    options.servers[0] = address_v4((const uint8_t *)&at.sin_addr);
    options.port = ntohs(at.sin_port);
    *state = w;
    return resolver_new(&w->resolver, &options);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    resolver_free(w->resolver);
    close_fd(&w->server);
    free(w);
    return 0;
}

static void ask(struct world *w, const char *name, uint16_t type)
{
    unsigned wanted = w->answers + 1;
    assert_int_equal(resolver_ask(w->resolver, name, type, 7, on_done, w), 0);
    turn(w, wanted);
    assert_int_equal(w->answers, wanted);
}

static void test_addresses(void **state)
{
    struct world *w = *state;
    char text[ADDRESS_TEXT];
    ask(w, "two.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_FOUND);
    assert_int_equal(w->last.count, 2);
    assert_int_equal(w->last.ttl_s, 30);
    address_print(&w->last.addresses[1], text);
    assert_string_equal(text, "8.8.4.5");
    ask(w, "none.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_NO_DATA);
    ask(w, "gone.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_NO_NAME);
    ask(w, "two.x", DNS_AAAA); /* answered with addresses of the other family */
    assert_int_equal(w->last.count, 0);
    assert_int_not_equal(w->last.status, RESOLVER_FOUND);
}

static void test_failures(void **state)
{
    struct world *w = *state;
    ask(w, "deaf.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_FAILED);
    assert_int_equal(w->questions, 2); /* it tried twice */
    ask(w, "odd.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_FAILED);
    assert_int_equal(resolver_ask(w->resolver, "", DNS_A, 0, on_done, w), -EINVAL);
}

static void test_raw(void **state)
{
    struct world *w = *state;
    ask(w, "text.x", 16);
    assert_int_equal(w->last.status, RESOLVER_FOUND);
    assert_int_equal(w->last.raw_len, 12 + 8 + 4 + 16);
    assert_memory_equal(w->raw + 36, "\3abc", 4);
}

static void test_kept(void **state)
{
    struct world *w = *state;
    ask(w, "two.x", DNS_A);
    ask(w, "two.x", DNS_A);
    assert_int_equal(w->questions, 1);
    assert_int_equal(w->last.count, 2);
    assert_true(w->last.ttl_s <= 30);
    ask(w, "gone.x", DNS_A);
    ask(w, "gone.x", DNS_A);
    assert_int_equal(w->questions, 2);
    ask(w, "zero.x", DNS_A);
    ask(w, "zero.x", DNS_A);
    assert_int_equal(w->questions, 4);
    /* another key does not see what this one asked */
    assert_int_equal(resolver_ask(w->resolver, "two.x", DNS_A, 8, on_done, w), 0);
    turn(w, w->answers + 1);
    assert_int_equal(w->questions, 5);
}

static void test_joined_and_forgotten(void **state)
{
    struct world *w = *state;
    struct world other = {.server = -1};
    for (int i = 0; i < 5; i++)
        assert_int_equal(resolver_ask(w->resolver, "zero.x", DNS_A, 7, on_done, w), 0);
    assert_int_equal(resolver_ask(w->resolver, "zero.x", DNS_A, 7, on_done, &other), 0);
    resolver_forget(w->resolver, &other);
    turn(w, 5);
    assert_int_equal(w->answers, 5);
    assert_int_equal(w->questions, 1);
    assert_int_equal(other.answers, 0);
    /* forgotten by one of those that are called */
    w->forgets = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(resolver_ask(w->resolver, "zero.x", DNS_A, 7, on_done, w), 0);
    turn(w, 6);
    turn(w, 9);
    assert_int_equal(w->answers, 6);
    /* asked again from within */
    w->forgets = false;
    w->asks_again = true;
    ask(w, "one.x", DNS_A);
    turn(w, 8);
    assert_int_equal(w->answers, 8);
    assert_int_equal(w->last.count, 2);
}

static void test_bounds(void **state)
{
    struct world *w = *state;
    char name[32];
    unsigned i = 0;
    int r;
    do {
        (void)snprintf(name, sizeof(name), "deaf%u.x", i);
        r = resolver_ask(w->resolver, name, DNS_A, 7, on_done, w);
    } while (r == 0 && ++i < 2 * RESOLVER_MAX_OUTSTANDING);
    assert_int_equal(r, -EBUSY);
    assert_int_equal(i, RESOLVER_MAX_OUTSTANDING / 2);
    for (; i < 2 * RESOLVER_MAX_WAITERS; i++)
        if ((r = resolver_ask(w->resolver, "deaf1.x", DNS_A, 7, on_done, w)) < 0)
            break;
    assert_int_equal(r, -EBUSY);
    assert_int_equal(i, RESOLVER_MAX_WAITERS);
    assert_int_equal(w->answers, 0);
}

/* One key asks and goes away, again and again: what it left behind takes no place of others. */
static void test_share(void **state)
{
    struct world *w = *state;
    char name[32];
    int r = 0;
    unsigned i;
    w->last.status = RESOLVER_FAILED;
    for (i = 0; r == 0 && i < 2 * RESOLVER_MAX_OUTSTANDING; i++) {
        (void)snprintf(name, sizeof(name), "deaf%u.x", i);
        r = resolver_ask(w->resolver, name, DNS_A, 6, on_done, w);
        resolver_forget(w->resolver, w);
    }
    assert_int_equal(r, -EBUSY);
    /* On a busy machine the server may take longer than the resolver waits. */
    for (i = 0; i < 100 && w->last.status != RESOLVER_FOUND; i++)
        ask(w, "two.x", DNS_A);
    assert_int_equal(w->last.status, RESOLVER_FOUND);
}

/* After resolver_new() no file is opened: a filter ends a child that tries. */
static void test_without_files(void **state)
{
    static const int denied[] = {SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2),
        SCMP_SYS(stat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(access),
        SCMP_SYS(faccessat), SCMP_SYS(readlink), SCMP_SYS(clone), SCMP_SYS(clone3)};
    struct world *w = *state;
    for (int breaks = 0; breaks < 2; breaks++) {
        int status;
        pid_t child = fork();
        assert_int_not_equal(child, -1);
        if (child == 0) {
            scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
            for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
                (void)seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, denied[i], 0);
            if (seccomp_load(filter) < 0)
                _exit(2);
            if (breaks)
                (void)access("/", F_OK);
            ask(w, "two.x", DNS_A);
            ask(w, "deaf.x", DNS_A);
            ask(w, "text.x", 16);
            _exit(w->answers == 3 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (breaks)
            assert_true(WIFSIGNALED(status));
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_addresses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_raw, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_joined_and_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_files, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
