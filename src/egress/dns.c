/* SPDX-License-Identifier: Apache-2.0 */

/* See dns.h. A name of the box is never compressed; names of a name server are only skipped. */

#include "egress/dns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum {
    HEAD = 12,
    MAX_LABEL = 63,
    CLASS_IN = 1,
    TYPE_OPT = 41,
    EDNS = 11,        /* bytes of an OPT record without options */
    RECORD_HEAD = 10, /* type, class, TTL and length, behind the name */
    FIRST_META_TYPE = 128,
    LAST_META_TYPE = 255,
};
/* Bits of the third and fourth byte. */
enum {
    IS_ANSWER = 0x80,
    OPCODE = 0x78,
    IS_TRUNCATED = 0x02,
    WANTS_RECURSION = 0x01,
    HAS_RECURSION = 0x80,
    CODE = 0x0f,
};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, size_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

/* The lower-case form of a character that names may hold, else 0. */
static char name_char(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    bool is_allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    return is_allowed ? (char)c : '\0';
}

/* Reads a name without compression at `at`; returns the place behind it, or 0. */
static size_t parse_name(char name[NETWORK_NAME], const uint8_t *data, size_t len, size_t at)
{
    size_t out = 0;
    while (at < len && data[at] != 0) {
        size_t label = data[at++];
        if (label > MAX_LABEL || label > len - at || out + label + 1 > NETWORK_NAME)
            return 0;
        for (size_t i = 0; i < label; i++) {
            name[out + i] = name_char(data[at + i]);
            if (!name[out + i])
                return 0;
        }
        out += label;
        name[out++] = '.';
        at += label;
    }
    if (at == len || out == 0)
        return 0;
    name[out - 1] = '\0';
    return at + 1;
}

/* Reads an OPT record that directly follows the question: the only place where resolvers put
 * it. */
static void parse_edns(struct dns_query *q, const uint8_t *data, size_t len, size_t at)
{
    bool has_others = get16(data + 6) || get16(data + 8);
    if (has_others || get16(data + 10) == 0 || len - at < EDNS)
        return;
    if (data[at] != 0 || get16(data + at + 1) != TYPE_OPT)
        return;
    uint16_t room = get16(data + at + 3);
    q->has_edns = true;
    if (room > q->udp_room)
        q->udp_room = room < DNS_MAX_UDP ? room : DNS_MAX_UDP;
}

int dns_parse(struct dns_query *ret, const uint8_t *data, size_t len)
{
    *ret = (struct dns_query){.udp_room = DNS_PLAIN_UDP};
    if (len < HEAD || len > DNS_MAX_MESSAGE || data[2] & IS_ANSWER)
        return -EINVAL;
    ret->id = get16(data);
    ret->wants_recursion = data[2] & WANTS_RECURSION;
    if (data[2] & (OPCODE | IS_TRUNCATED) || get16(data + 4) != 1)
        return -EBADMSG;
    size_t at = parse_name(ret->name, data, len, HEAD);
    if (at == 0 || len - at < 4 || get16(data + at + 2) != CLASS_IN) {
        memset(ret->name, 0, sizeof(ret->name));
        return -EBADMSG;
    }
    ret->type = get16(data + at);
    ret->question_len = (uint16_t)(at + 4 - HEAD);
    memcpy(ret->question, data + HEAD, ret->question_len);
    parse_edns(ret, data, len, at + 4);
    return 0;
}

bool dns_type_is_empty(uint16_t type)
{
    return type == DNS_SVCB || type == DNS_HTTPS ||
           (type >= FIRST_META_TYPE && type <= LAST_META_TYPE);
}

/* "4.3.2.1.in-addr.arpa" */
static bool reverse_v4(struct address *ret, const char *name, size_t len)
{
    char text[ADDRESS_TEXT];
    uint8_t n[4];
    if (len >= sizeof(text))
        return false;
    memcpy(text, name, len);
    text[len] = '\0';
    if (inet_pton(AF_INET, text, n) != 1)
        return false;
    *ret = address_v4((const uint8_t[]){n[3], n[2], n[1], n[0]});
    return true;
}

/* "1.0.0.0. ... .8.b.d.0.1.0.0.2.ip6.arpa": 32 digits, the last of the address first. */
static bool reverse_v6(struct address *ret, const char *name, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    struct address a = {{0}};
    if (len != 2 * 32 - 1)
        return false;
    for (size_t i = 0; i < 32; i++) {
        const char *digit = name[2 * i] ? strchr(digits, name[2 * i]) : NULL;
        if (!digit || (i < 31 && name[2 * i + 1] != '.'))
            return false;
        a.bytes[15 - i / 2] |= (uint8_t)((digit - digits) << (i % 2 ? 4 : 0));
    }
    *ret = a;
    return true;
}

bool dns_reverse(struct address *ret, const char *name)
{
    static const char v4[] = ".in-addr.arpa";
    static const char v6[] = ".ip6.arpa";
    size_t len = strlen(name);
    if (len > strlen(v4) && strcmp(name + len - strlen(v4), v4) == 0)
        return reverse_v4(ret, name, len - strlen(v4));
    if (len > strlen(v6) && strcmp(name + len - strlen(v6), v6) == 0)
        return reverse_v6(ret, name, len - strlen(v6));
    return false;
}

/* Writes head and question of an answer without records; returns the length. */
static size_t put_head(uint8_t *p, const struct dns_query *q, unsigned code)
{
    memset(p, 0, HEAD);
    put16(p, q->id);
    p[2] = (uint8_t)(IS_ANSWER | (q->wants_recursion ? WANTS_RECURSION : 0));
    p[3] = (uint8_t)(HAS_RECURSION | code);
    put16(p + 4, q->question_len > 0);
    memcpy(p + HEAD, q->question, q->question_len);
    return HEAD + (size_t)q->question_len;
}

/* Ends an answer: adds the OPT record if the box sent one, and cuts what UDP cannot carry. */
static size_t finish(uint8_t *p, size_t len, const struct dns_query *q, bool is_tcp)
{
    size_t room = is_tcp ? (size_t)DNS_MAX_MESSAGE : q->udp_room;
    if (len + (q->has_edns ? EDNS : 0) > room) {
        len = put_head(p, q, p[3] & CODE);
        p[2] |= IS_TRUNCATED;
    }
    if (!q->has_edns)
        return len;
    put16(p + 10, 1);
    memset(p + len, 0, EDNS);
    put16(p + len + 1, TYPE_OPT);
    put16(p + len + 3, DNS_MAX_UDP);
    return len + EDNS;
}

/* Writes an address record for the name of the question; returns its length. */
static size_t put_address(uint8_t *p, uint16_t type, uint32_t ttl_s, const struct address *a)
{
    size_t len = type == DNS_A ? 4 : 16;
    put16(p, 0xc000 | HEAD); /* the name: that of the question */
    put16(p + 2, type);
    put16(p + 4, CLASS_IN);
    put16(p + 6, 0);
    put16(p + 8, ttl_s < DNS_MAX_TTL ? ttl_s : DNS_MAX_TTL);
    put16(p + 10, len);
    memcpy(p + 12, a->bytes + sizeof(a->bytes) - len, len);
    return 12 + len;
}

size_t dns_build(uint8_t ret[DNS_MAX_MESSAGE], const struct dns_query *query,
    const struct dns_answer *answer, bool is_tcp)
{
    size_t len = put_head(ret, query, answer->code);
    bool has_addresses = query->type == DNS_A || query->type == DNS_AAAA;
    unsigned count = 0;
    if (answer->code == DNS_NO_ERROR && has_addresses)
        for (size_t i = 0; i < answer->count && count < DNS_MAX_ADDRESSES; i++) {
            if (address_is_v4(&answer->addresses[i]) != (query->type == DNS_A))
                continue;
            len += put_address(ret + len, query->type, answer->ttl_s, &answer->addresses[i]);
            count++;
        }
    put16(ret + 6, count);
    return finish(ret, len, query, is_tcp);
}

/* Returns the place behind a name that may be compressed, or 0. */
static size_t skip_name(const uint8_t *data, size_t len, size_t at)
{
    while (at < len) {
        if (data[at] == 0)
            return at + 1;
        if (data[at] >> 6 == 3)
            return len - at >= 2 ? at + 2 : 0;
        if (data[at] > MAX_LABEL)
            return 0;
        at += 1 + (size_t)data[at];
    }
    return 0;
}

/* Checks the record at `at` and shortens its TTL; returns the place behind it, or 0. */
static size_t pass_record(uint8_t *data, size_t len, size_t at)
{
    at = skip_name(data, len, at);
    if (at == 0 || len - at < RECORD_HEAD)
        return 0;
    uint8_t *p = data + at;
    uint16_t type = get16(p);
    if (type == DNS_A || type == DNS_AAAA || dns_type_is_empty(type))
        return 0;
    if (get16(p + 4) != 0 || get16(p + 6) > DNS_MAX_TTL) {
        put16(p + 4, 0);
        put16(p + 6, DNS_MAX_TTL);
    }
    size_t content = get16(p + 8);
    return content <= len - at - RECORD_HEAD ? at + RECORD_HEAD + content : 0;
}

/* Whether the answer repeats the question; upper and lower case may differ. */
static bool is_same_question(const struct dns_query *q, const uint8_t *answer, size_t len)
{
    char name[NETWORK_NAME];
    size_t at = parse_name(name, answer, len, HEAD);
    return at && at + 4 <= len && get16(answer + at) == q->type &&
           get16(answer + at + 2) == CLASS_IN && strcmp(name, q->name) == 0;
}

ssize_t dns_copy(uint8_t ret[DNS_MAX_MESSAGE], const struct dns_query *query,
    const uint8_t *answer, size_t len, bool is_tcp)
{
    size_t at = HEAD + (size_t)query->question_len;
    if (len < at || len > DNS_MAX_MESSAGE - EDNS || query->question_len == 0)
        return -EBADMSG;
    if (!(answer[2] & IS_ANSWER) || answer[2] & (OPCODE | IS_TRUNCATED) ||
        get16(answer + 4) != 1 || !is_same_question(query, answer, len))
        return -EBADMSG;
    memcpy(ret, answer, len);
    (void)put_head(ret, query, answer[3] & CODE);
    uint16_t count = get16(answer + 6);
    for (uint16_t i = 0; i < count; i++) {
        at = pass_record(ret, len, at);
        if (at == 0)
            return -EBADMSG;
    }
    put16(ret + 6, count);
    return (ssize_t)finish(ret, at, query, is_tcp);
}
