/* SPDX-License-Identifier: Apache-2.0 */

/* Questions of a box, and the answers to them. */

#include "egress/dns.h"
#include "test.h"

#include <errno.h>
#include <string.h>

/* Writes a query for a name of labels; returns its length. */
static size_t put_query(uint8_t *to, const char *name, uint16_t type, int edns)
{
    static const uint8_t head[12] = {0x12, 0x34, 0x01, 0, 0, 1};
    size_t n = sizeof(head);
    memcpy(to, head, n);
    while (*name) {
        size_t label = strcspn(name, ".");
        to[n++] = (uint8_t)label;
        memcpy(to + n, name, label);
        n += label;
        name += label + (name[label] == '.');
    }
    uint8_t tail[] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
    memcpy(to + n, tail, sizeof(tail));
    n += sizeof(tail);
    if (edns >= 0) {
        uint8_t opt[11] = {0, 0, 41, (uint8_t)(edns >> 8), (uint8_t)edns};
        memcpy(to + n, opt, sizeof(opt));
        n += sizeof(opt);
        to[11] = 1;
    }
    return n;
}

static unsigned word(const uint8_t *p)
{
    return (unsigned)(p[0] << 8 | p[1]);
}

static void test_query(void **state)
{
    struct dns_query q;
    uint8_t m[600];
    (void)state;
    size_t n = put_query(m, "API.Example-1.c_m", DNS_AAAA, -1);
    assert_int_equal(dns_parse(&q, m, n), 0);
    assert_string_equal(q.name, "api.example-1.c_m");
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.type, DNS_AAAA);
    assert_int_equal(q.udp_room, 512);
    assert_true(q.wants_recursion && !q.has_edns);
    for (size_t cut = 12; cut < n; cut++)
        assert_int_equal(dns_parse(&q, m, cut), -EBADMSG);
    assert_int_equal(q.question_len, 0);
    for (size_t cut = 0; cut < 12; cut++)
        assert_int_equal(dns_parse(&q, m, cut), -EINVAL);
    static const int rooms[][2] = {{0, 512}, {1000, 1000}, {1232, 1232}, {65535, 1232}};
    for (size_t i = 0; i < 4; i++) {
        n = put_query(m, "a.b", DNS_A, rooms[i][0]);
        assert_int_equal(dns_parse(&q, m, n), 0);
        assert_true(q.has_edns);
        assert_int_equal(q.udp_room, rooms[i][1]);
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        int result;
    } cases[] = {
        {"a", 0}, {"xn--bcher-kva.example", 0}, {"_dmarc.example.com", 0},
        {"a b.example", -EBADMSG}, {"a*.example", -EBADMSG},
        {"b\xc3\xbc"
         "cher.example",
            -EBADMSG},
        {"", -EBADMSG}, /* the root */
    };
    struct dns_query q;
    uint8_t m[600];
    char name[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = put_query(m, cases[i].name, DNS_A, -1);
        assert_int_equal(dns_parse(&q, m, n), cases[i].result);
    }
    /* 253 characters are the most, and 63 in a label */
    memset(name, 'a', sizeof(name));
    name[63] = name[127] = name[191] = '.';
    name[253] = '\0';
    assert_int_equal(dns_parse(&q, m, put_query(m, name, DNS_A, -1)), 0);
    assert_string_equal(q.name, name);
    assert_int_equal(q.question_len, DNS_QUESTION);
    name[253] = 'a';
    name[254] = '\0';
    assert_int_equal(dns_parse(&q, m, put_query(m, name, DNS_A, -1)), -EBADMSG);
    memset(name, 'a', 64);
    name[64] = '\0';
    assert_int_equal(dns_parse(&q, m, put_query(m, name, DNS_A, -1)), -EBADMSG);
}

static void test_not_a_query(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        int result;
    } cases[] = {
        {2, 0x81, -EINVAL},   /* an answer */
        {2, 0x29, -EBADMSG},  /* an update */
        {2, 0x03, -EBADMSG},  /* cut */
        {5, 0, -EBADMSG},     /* no question */
        {5, 2, -EBADMSG},     /* two */
        {12, 0xc0, -EBADMSG}, /* a compressed name */
        {20, 3, -EBADMSG},    /* class CHAOS */
    };
    struct dns_query q;
    uint8_t m[64];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = put_query(m, "a.b", DNS_A, -1);
        m[cases[i].at] = cases[i].value;
        if (dns_parse(&q, m, n) != cases[i].result)
            fail_msg("byte %zu", cases[i].at);
    }
}

static void test_answers(void **state)
{
    struct dns_query q;
    uint8_t m[DNS_MAX_MESSAGE];
    struct address found[40];
    (void)state;
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(address_parse(&found[i], i % 2 ? "2606:4700::1" : "8.8.4.4"), 0);
    assert_int_equal(dns_parse(&q, m, put_query(m, "A.b", DNS_A, -1)), 0);
    struct dns_answer answer = {.ttl_s = 3600, .count = 3, .addresses = found};
    size_t n = dns_build(m, &q, &answer, false);
    assert_int_equal(n, 12 + q.question_len + 2 * 16);
    assert_int_equal(word(m), 0x1234);
    assert_int_equal(word(m + 2), 0x8180);
    assert_int_equal(word(m + 4), 1);
    assert_int_equal(word(m + 6), 2); /* the IPv6 address is not of this type */
    assert_memory_equal(m + 12, q.question, q.question_len);
    static const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 8, 8, 4, 4};
    assert_memory_equal(m + 12 + q.question_len, record, sizeof(record));

    answer.code = DNS_NO_NAME;
    n = dns_build(m, &q, &answer, false);
    assert_int_equal(n, 12 + q.question_len);
    assert_int_equal(word(m + 2), 0x8183);
    assert_int_equal(word(m + 6), 0);

    /* twenty addresses of 28 bytes do not fit into 512 bytes, into EDNS or TCP they do */
    answer.code = DNS_NO_ERROR;
    answer.count = 40;
    assert_int_equal(dns_parse(&q, m, put_query(m, "a.b", DNS_AAAA, -1)), 0);
    n = dns_build(m, &q, &answer, false);
    assert_int_equal(n, 12 + q.question_len);
    assert_int_equal(word(m + 2), 0x8380);
    assert_int_equal(word(m + 6), 0);
    assert_int_equal(dns_build(m, &q, &answer, true), 12 + q.question_len + 20 * 28);
    assert_int_equal(word(m + 6), 20);
    assert_int_equal(dns_parse(&q, m, put_query(m, "a.b", DNS_AAAA, 1232)), 0);
    assert_int_equal(dns_build(m, &q, &answer, false), 12 + q.question_len + 20 * 28 + 11);
    assert_int_equal(word(m + 10), 1);
}

static void test_error_without_question(void **state)
{
    struct dns_query q;
    uint8_t m[DNS_MAX_MESSAGE];
    (void)state;
    assert_int_equal(dns_parse(&q, m, put_query(m, "a b", DNS_A, -1)), -EBADMSG);
    assert_int_equal(dns_build(m, &q, &(struct dns_answer){.code = DNS_REFUSED}, false), 12);
    assert_int_equal(word(m), 0x1234);
    assert_int_equal(word(m + 2), 0x8185);
    assert_int_equal(word(m + 4), 0);
}

static void test_empty_types(void **state)
{
    (void)state;
    assert_true(dns_type_is_empty(DNS_SVCB) && dns_type_is_empty(DNS_HTTPS));
    assert_true(dns_type_is_empty(255) && dns_type_is_empty(252));
    assert_false(dns_type_is_empty(DNS_A) || dns_type_is_empty(DNS_AAAA) ||
                 dns_type_is_empty(16) || dns_type_is_empty(33) || dns_type_is_empty(257));
}

/* An answer of a name server: TXT of a.b with a long TTL, and an address in a later section. */
static size_t put_upstream(uint8_t *to, const struct dns_query *q, uint16_t record_type)
{
    static const uint8_t head[12] = {0xff, 0xee, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 1};
    uint8_t record[] = {0xc0, 12, (uint8_t)(record_type >> 8), (uint8_t)record_type, 0, 1, 0, 1,
        0, 0, 0, 4, 3, 'x', 'y', 'z'};
    static const uint8_t extra[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, 5};
    memcpy(to, head, 12);
    memcpy(to + 12, q->question, q->question_len);
    memcpy(to + 12 + q->question_len, record, sizeof(record));
    memcpy(to + 12 + q->question_len + sizeof(record), extra, sizeof(extra));
    return 12 + q->question_len + sizeof(record) + sizeof(extra);
}

static void test_copy(void **state)
{
    struct dns_query q;
    uint8_t m[DNS_MAX_MESSAGE], from[512];
    (void)state;
    assert_int_equal(dns_parse(&q, m, put_query(m, "A.b", 16, -1)), 0);
    size_t len = put_upstream(from, &q, 16);
    from[13] = 'a'; /* the name server answers in another case */
    size_t all = 12 + (size_t)q.question_len + 16;
    assert_int_equal(dns_copy(m, &q, from, len, false), all);
    assert_int_equal(word(m), 0x1234);
    assert_int_equal(m[13], 'A');
    assert_int_equal(word(m + 6), 1);
    assert_int_equal(word(m + 10), 0); /* the address is gone */
    assert_int_equal(word(m + all - 10), 0);
    assert_int_equal(word(m + all - 8), DNS_MAX_TTL);
    assert_memory_equal(m + all - 4, "\3xyz", 4);
    /* cut anywhere before the end of the record */
    for (size_t cut = 0; cut < all; cut++)
        assert_int_equal(dns_copy(m, &q, from, cut, false), -EBADMSG);
    /* too long for UDP */
    q.udp_room = 24;
    assert_int_equal(dns_copy(m, &q, from, len, false), 12 + q.question_len);
    assert_int_equal(word(m + 2), 0x8380);
    assert_int_equal(dns_copy(m, &q, from, len, true), all);
    /* an address in the answer section, another question, a query */
    static const uint16_t closed[] = {DNS_A, DNS_AAAA, DNS_HTTPS, DNS_SVCB};
    for (size_t i = 0; i < 4; i++) {
        len = put_upstream(from, &q, closed[i]);
        assert_int_equal(dns_copy(m, &q, from, len, true), -EBADMSG);
    }
    len = put_upstream(from, &q, 16);
    from[13] = 'c';
    assert_int_equal(dns_copy(m, &q, from, len, true), -EBADMSG);
    len = put_upstream(from, &q, 16);
    from[2] = 1;
    assert_int_equal(dns_copy(m, &q, from, len, true), -EBADMSG);
}

static void test_reverse(void **state)
{
    static const struct {
        const char *name;
        const char *address;
    } cases[] = {
        {"5.0.9.10.in-addr.arpa", "10.9.0.5"},
        {"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
            "2001:db8::1"},
        {"9.10.in-addr.arpa", NULL},
        {"256.0.9.10.in-addr.arpa", NULL},
        {"-1.0.9.10.in-addr.arpa", NULL},
        {"5.0.9.10 .in-addr.arpa", NULL},
        {"05.0.9.10.in-addr.arpa", NULL},
        {"5.0.9.10.1.in-addr.arpa", NULL},
        {"in-addr.arpa", NULL},
        {"1.0.ip6.arpa", NULL},
        {"example.com", NULL},
    };
    char text[ADDRESS_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct address a;
        assert_int_equal(dns_reverse(&a, cases[i].name), cases[i].address != NULL);
        if (!cases[i].address)
            continue;
        address_print(&a, text);
        assert_string_equal(text, cases[i].address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_not_a_query),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_error_without_question),
        cmocka_unit_test(test_empty_types),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
