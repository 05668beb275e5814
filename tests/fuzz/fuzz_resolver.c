/* SPDX-License-Identifier: Apache-2.0 */

/* Answers of a hostile name server on loopback: the input follows the question that the
 * resolver sent. The first byte says which type is asked for, and whether even the head is the
 * input's. */

#include "base/cleanup.h"
#include "egress/dns.h"
#include "egress/resolver.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct resolver *resolver;
static int server = -1;
static bool is_answered;

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void start(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    struct resolver_options options = {.server_count = 1, .timeout_ms = 1};
    server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(bind(server, (struct sockaddr *)&at, sizeof(at)) == 0);
    check(getsockname(server, (struct sockaddr *)&at, &len) == 0);
    options.servers[0] = address_v4((const uint8_t *)&at.sin_addr);
    options.port = ntohs(at.sin_port);
    check(resolver_new(&resolver, &options) == 0);
}

/* A question without an answer would be asked again, between those of later inputs. */
static void stop(void)
{
    resolver_free(resolver);
    close_fd(&server);
}

static void on_done(void *context, const struct resolver_answer *answer)
{
    (void)context;
    is_answered = true;
    check(answer->count <= RESOLVER_MAX_ADDRESSES);
    check((answer->status == RESOLVER_FOUND) == (answer->count > 0) || answer->raw);
    check(!answer->raw || answer->count == 0);
}

/* Answers what is asked with `data`. */
static void answer(const uint8_t *data, size_t size, bool keeps_head)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    uint8_t m[4096];
    struct dns_query q;
    ssize_t n = recvfrom(server, m, sizeof(m), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
    if (n <= 0 || dns_parse(&q, m, (size_t)n) < 0)
        return;
    size_t at = 12 + (size_t)q.question_len;
    size = size < sizeof(m) - at ? size : sizeof(m) - at;
    if (keeps_head) {
        m[2] = 0x80 | 1;
        m[3] = 0x80;
        m[7] = size ? data[0] % 8 : 0;
        memset(m + 8, 0, 4);
        memcpy(m + at, data, size);
        n = (ssize_t)(at + size);
    } else {
        memcpy(m + 2, data, size);
        n = (ssize_t)(2 + size);
    }
    (void)sendto(server, m, (size_t)n, 0, (struct sockaddr *)&from, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint16_t types[] = {DNS_A, DNS_AAAA, 16, DNS_PTR};
    static unsigned number;
    char name[32];
    if (size < 1)
        return 0;
    if (server < 0)
        start();
    is_answered = false;
    (void)snprintf(name, sizeof(name), "n%u.example", number++); /* none is kept */
    check(resolver_ask(resolver, name, types[data[0] % 4], 0, on_done, &server) == 0);
    for (int i = 0; i < 4 && !is_answered; i++) {
        answer(data + 1, size - 1, data[0] & 0x80);
        struct pollfd fd = {resolver_fd(resolver), POLLIN, 0};
        if (poll(&fd, 1, 0) > 0 || i == 3)
            resolver_process(resolver);
    }
    resolver_forget(resolver, &server);
    if (!is_answered)
        stop();
    return 0;
}
