/* SPDX-License-Identifier: Apache-2.0 */

/* Questions of boxes, and answers of name servers. The first two bytes split the input into
 * both. What is built fits, repeats the question and is no query. */

#include "egress/dns.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_answer(const struct dns_query *q, const uint8_t *m, size_t len, bool is_tcp)
{
    struct dns_query back;
    check(len >= 12 + (size_t)q->question_len);
    check(len <= (is_tcp ? (size_t)DNS_MAX_MESSAGE : q->udp_room) || len <= DNS_PLAIN_UDP);
    check((m[0] << 8 | m[1]) == q->id && m[2] & 0x80);
    check(memcmp(m + 12, q->question, q->question_len) == 0);
    check(dns_parse(&back, m, len) < 0);
}

static void try_answers(const struct dns_query *q, const uint8_t *data, size_t size)
{
    static const enum dns_code codes[] = {
        DNS_NO_ERROR, DNS_BAD_FORMAT, DNS_SERVER_FAILED, DNS_NO_NAME, DNS_REFUSED};
    uint8_t *out = malloc(DNS_MAX_MESSAGE);
    struct address *found = calloc(64, sizeof(*found));
    size_t count = size / sizeof(*found) < 64 ? size / sizeof(*found) : 64;
    memcpy(found, data, count * sizeof(*found));
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
            struct dns_answer answer = {codes[i], (uint32_t)size * 77, count, found};
            check_answer(q, out, dns_build(out, q, &answer, is_tcp), is_tcp);
        }
        ssize_t n = dns_copy(out, q, data, size, is_tcp);
        if (n >= 0)
            check_answer(q, out, (size_t)n, is_tcp);
    }
    free(found);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dns_query q;
    struct address a;
    if (size < 2)
        return 0;
    size_t first = (size_t)(data[0] << 8 | data[1]) % (size - 1);
    int r = dns_parse(&q, data + 2, first);
    check(q.question_len <= DNS_QUESTION && strnlen(q.name, NETWORK_NAME) < NETWORK_NAME);
    check((r == 0) == (q.question_len > 0) && (r == 0) == (q.name[0] != '\0'));
    check(strspn(q.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == strlen(q.name));
    (void)dns_reverse(&a, q.name);
    try_answers(&q, data + 2 + first, size - 2 - first);
    return 0;
}
